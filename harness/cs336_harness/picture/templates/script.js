"use strict";
const said = document.getElementById("said");

// What a fragment names is unfolded, with all that it lies in.
function unfold(fragment) {
  const target = document.getElementById(decodeURIComponent(fragment.slice(1)));
  if (!target) return;
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  target.scrollIntoView({ block: "nearest" });
  target.querySelector("summary")?.focus({ preventScroll: true });
}
addEventListener("hashchange", () => unfold(location.hash));
unfold(location.hash);

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
  const link = event.target.closest('a[href^="#"]'), fragment = link?.getAttribute("href");
  if (link && location.protocol === "about:") event.preventDefault(); // in a notebook a fragment is one of its own page
  if (link && (event.defaultPrevented || fragment === location.hash)) unfold(fragment); // or does not change again
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

// A table of a class is sorted by the column whose head is pressed, the other way when it is pressed again.
document.addEventListener("click", event => {
  const head = event.target.closest?.(".sortable th"), button = event.target.closest?.("button");
  if (!head || !button) return;
  const table = head.closest("table"), falling = head.ariaSort === "ascending", column = head.cellIndex;
  const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)], order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
    return falling ? -order : order;
  });
  for (const each of table.querySelectorAll("th[aria-sort]")) each.removeAttribute("aria-sort");
  head.ariaSort = falling ? "descending" : "ascending";
  table.tBodies[0].append(...rows);
});

// The live page: each verdict takes the place of the one before. What the reader has unfolded stays so, but a hint of
// another failure stays folded.
if ("live" in document.body.dataset) {
  const main = document.querySelector("main"), connection = document.getElementById("connection");
  const SILENCE = 25000; // the server gives a sign of life every 10 s
  const SILENT = "The watch does not answer. This is its last verdict; trying again …";
  let source, heard, ended = false;

  const of = details => details.closest(".failure")?.dataset.of ?? "";
  function replace({ content, title, icon }) {
    const open = new Map([...main.querySelectorAll("details[id]")].map(each => [each.id + " " + of(each), each.open]));
    const focused = document.activeElement?.closest?.("[id]")?.id, top = scrollY;
    main.innerHTML = content;
    for (const each of main.querySelectorAll("details[id]")) {
      const before = open.get(each.id + " " + of(each));
      if (before !== undefined) each.open = before;
    }
    const again = focused && document.getElementById(focused);
    if (again) (again.querySelector("summary") ?? again).focus({ preventScroll: true });
    scrollTo({ top, behavior: "instant" });
    document.title = title;
    document.querySelector("link[rel=icon]").href = icon;
    said.textContent = title;
  }

  function connect() {
    source?.close();
    heard = Date.now();
    source = new EventSource("/events");
    const on = (kind, act) => source.addEventListener(kind, event => { heard = Date.now(); act(JSON.parse(event.data), event); });
    on("verdict", (told, { lastEventId }) => {
      if (document.body.dataset.live !== lastEventId) replace(told); // the page came with a verdict in it
      document.body.dataset.live = lastEventId;
    });
    on("judging", ({ why }) => { connection.textContent = why ? `Judging: ${why} …` : ""; });
    on("beat", () => {});
    on("end", () => {
      ended = true;
      source.close();
      connection.textContent = "The watch has ended. This is its last verdict.";
    });
    source.onerror = () => {
      if (!ended) connection.textContent = SILENT;
      if (!ended && source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    };
  }
  const look = () => {
    if (ended || Date.now() - heard <= SILENCE) return;
    connection.textContent = SILENT; // the first that is heard takes it away
    connect();
  };
  setInterval(look, 5000);
  for (const each of ["visibilitychange", "online", "pageshow"]) addEventListener(each, look);
  connect();
}
