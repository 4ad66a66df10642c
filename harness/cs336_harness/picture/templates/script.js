"use strict";
const said = document.getElementById("said");

// What a fragment names is unfolded, with all that it lies in.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  target.scrollIntoView({ block: "nearest" });
  target.querySelector("summary")?.focus({ preventScroll: true });
}
addEventListener("hashchange", unfold);
unfold();

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // an older browser, or a page that was opened as a file
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("refused");
  }
}

document.addEventListener("click", async event => {
  const button = event.target.closest("button[data-copy]");
  const link = event.target.closest("svg a");
  if (link && link.getAttribute("href") === location.hash) unfold(); // the fragment does not change a second time
  if (!button) return;
  try {
    await copy(document.getElementById(button.dataset.copy).textContent + "\n");
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it by hand";
  }
  said.textContent = button.textContent;
  setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 2000);
});

// The text of a cell: on pointing at it, and from the keyboard.
function show(cell) {
  const svg = cell.ownerSVGElement;
  for (const other of svg.querySelectorAll("rect.here")) other.classList.remove("here");
  cell.classList.add("here");
  svg.parentElement.querySelector("p.cell").textContent = cell.querySelector("title").textContent;
}
document.addEventListener("pointerover", event => {
  const cell = event.target.closest?.(".chart rect");
  if (cell?.querySelector("title")) show(cell);
});
const WAYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
document.addEventListener("keydown", event => {
  const way = WAYS[event.key], svg = event.target.closest?.(".chart > svg");
  if (!way || !svg) return;
  event.preventDefault();
  const cells = [...svg.querySelectorAll("rect")], here = svg.querySelector("rect.here");
  if (!here) return show(cells[0]);
  const middle = cell => [cell.x.baseVal.value + cell.width.baseVal.value / 2, cell.y.baseVal.value + cell.height.baseVal.value / 2];
  const [x, y] = middle(here);
  let best = null, least = Infinity;
  for (const cell of cells) {
    const [dx, dy] = middle(cell).map((value, axis) => value - [x, y][axis]);
    const ahead = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (ahead > 0.5 && ahead + 8 * aside < least) [best, least] = [cell, ahead + 8 * aside];
  }
  if (best) show(best);
});
