"""The page in a real browser, headless: no error, the keyboard, the copy button, the live page. ``pytest -m browser``.

It needs Debian's chromium and chromium-driver and the dependency group ``browser``.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cs336_harness.checks import all_checks
from cs336_harness.defects import all_defects, subject_of
from cs336_harness.grading import pages
from cs336_harness.grading.records import scored
from cs336_harness.grading.rubric import Rubric
from cs336_harness.picture import page
from cs336_harness.picture.live import Live
from cs336_harness.verdict.report import to_json
from cs336_harness.verdict.suite import Suite

webdriver = pytest.importorskip("selenium.webdriver", reason="needs the dependency group `browser`")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not shutil.which("chromedriver"), reason="needs chromium and chromium-driver"),
]


def verdict_on(defect: str, *check_ids: str) -> dict[str, Any]:
    """The JSON result of a known mistake."""
    suite = Suite(subject_of(all_defects()[defect]) if defect else subject_of())
    return to_json("adapters.py", list(suite.run(all_checks()[check_id] for check_id in check_ids)))


@pytest.fixture(scope="module")
def rotated() -> dict[str, Any]:
    """Half-split RoPE, and a second failure."""
    return verdict_on("rope-half-split-pairs", "components.rope", "components.silu", "components.transformer_block")


@pytest.fixture(scope="module")
def right() -> dict[str, Any]:
    """A decoder in which nothing is wrong."""
    return verdict_on("", "components.silu")


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def complaints(browser: Any) -> list[str]:
    """What the browser's console holds: errors, and whatever the page's policy refused."""
    return [entry["message"] for entry in browser.get_log("browser")]


def wait(browser: Any, condition: Callable[[Any], Any], seconds: float = 10) -> Any:
    return WebDriverWait(browser, seconds, poll_frequency=0.05).until(condition)


def text(browser: Any, selector: str) -> str:
    """What a reader sees of the first such element, found and read in one step: a live page changes between two."""
    return browser.execute_script("return document.querySelector(arguments[0]).innerText.trim()", selector)


@pytest.fixture
def opened(browser: Any, rotated: dict[str, Any], tmp_path: Path) -> Any:
    """The report, opened as a file."""
    page.write(rotated, tmp_path / "verdict.html")
    browser.get((tmp_path / "verdict.html").as_uri())
    return browser


def test_it_opens_without_a_complaint_and_with_the_culprit(opened: Any) -> None:
    assert complaints(opened) == []
    assert opened.title == "✗ adapters.py"
    assert "Channel i is paired with channel i + d_head/2" in text(opened, "details.failure[open] h2")
    assert opened.find_element(By.CSS_SELECTOR, "svg.decoder a.culprit").get_attribute("aria-label").startswith("RoPE")
    assert not opened.find_element(By.CSS_SELECTOR, ".hint p").is_displayed()


def width_on_a_telephone(browser: Any) -> int:
    """How wide the page is on a screen of 400."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        return browser.execute_script("return document.documentElement.scrollWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_nothing_is_wider_than_a_telephone(opened: Any) -> None:
    assert width_on_a_telephone(opened) <= 400


def _walk(browser: Any) -> Iterator[Any]:
    """The elements that Tab reaches, in order, until it is back at the page's own."""
    body = browser.find_element(By.TAG_NAME, "body")
    browser.execute_script("document.activeElement.blur()")
    for _ in range(200):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active == body:
            return
        yield active


def unreached_by_key(browser: Any) -> list[str]:
    """What can be used and Tab does not reach."""
    reached = list(_walk(browser))
    return browser.execute_script(
        """const reached = new Set(arguments[0]);
        return [...document.querySelectorAll("a[href], summary, button, pre, .chart > svg")]
          .filter(each => each.checkVisibility() && !reached.has(each)).map(each => each.outerHTML.slice(0, 80))""",
        reached,
    )


def test_the_keyboard_alone_reaches_everything(opened: Any) -> None:
    assert unreached_by_key(opened) == []


def test_a_hint_opens_by_key_and_a_box_leads_to_its_checks(opened: Any) -> None:
    opened.find_element(By.CSS_SELECTOR, ".hint > summary").send_keys(Keys.ENTER)
    assert opened.find_element(By.CSS_SELECTOR, ".hint > p").is_displayed()
    opened.find_element(By.CSS_SELECTOR, 'svg.decoder a[href="#part-rope"]').send_keys(Keys.ENTER)
    wait(opened, lambda b: b.find_element(By.ID, "part-rope").get_attribute("open"))
    assert "components.rope" in text(opened, "#part-rope")


def test_a_wrong_cell_says_what_it_must_be_by_pointer_and_by_key(opened: Any) -> None:
    dials = opened.find_element(By.CSS_SELECTOR, ".chart > svg")
    dials.send_keys(Keys.ARROW_RIGHT)
    dials.send_keys(Keys.ARROW_RIGHT)
    assert text(opened, ".chart p.cell") == "pair 0, position 1: turned by 0 rad, must be 1 rad"
    cell = dials.find_element(By.CSS_SELECTOR, "rect.dial.off")
    webdriver.ActionChains(opened).move_to_element(cell).perform()
    assert "must be" in text(opened, ".chart p.cell")


def test_the_copy_button_copies_what_python_can_run(opened: Any, rotated: dict[str, Any]) -> None:
    opened.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    button = opened.find_element(By.CSS_SELECTOR, "button[data-copy]")
    button.click()
    wait(opened, lambda _: button.text == "Copied")
    copied = opened.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert copied == rotated["checks"][0]["diagnosis"]["reproducer"] + "\n"
    compile(copied, "copied", "exec")
    assert complaints(opened) == []


def test_in_a_notebook_a_box_leads_to_its_checks_and_the_code_is_copied(
    browser: Any, rotated: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{page.framed(rotated)}")
    browser.get((tmp_path / "notebook.html").as_uri())
    browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    browser.find_element(By.CSS_SELECTOR, 'svg.decoder a[href="#part-rope"]').send_keys(Keys.ENTER)
    wait(browser, lambda b: b.find_element(By.ID, "part-rope").get_attribute("open"))
    button = browser.find_element(By.CSS_SELECTOR, "button[data-copy]")
    button.send_keys(Keys.ENTER)
    wait(browser, lambda _: button.text == "Copied")
    browser.switch_to.default_content()
    assert complaints(browser) == []


def test_a_page_of_attempts_at_the_reader_runs_none(browser: Any, tmp_path: Path) -> None:
    evil = "</title></script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">\u202e"
    check = {"id": "components.linear", "task": "linear", "outcome": "failed", "message": evil, "details": [evil]}
    page.write({"subject": evil, "checks": [{**check, "diagnosis": None, "blocked_by": None}]}, tmp_path / "page.html")
    browser.get((tmp_path / "page.html").as_uri())
    assert complaints(browser) == []
    assert browser.title.startswith("✗ </title>")
    assert text(browser, ".failure h2 span:last-child").startswith("</title></script><script>")


@pytest.fixture
def of_a_class(browser: Any, rotated: dict[str, Any], right: dict[str, Any], tmp_path: Path) -> Any:
    """The page of a class of three, opened as a file."""
    records = []
    for name, data in (("cho", right), ("ann", rotated), ("bob", rotated)):
        checks = [{**each, "advisory": False, "required": True} for each in data["checks"]]
        record = {"name": name, "state": "judged", "reason": None, "checks": checks, "writeup": None}
        record["diagnosis"] = [each for check in checks for each in (check["diagnosis"] or {}).get("defects", ())]
        records.append(scored(record, Rubric(), 0.0))
    pages.write(tmp_path, records, Rubric())
    browser.get((tmp_path / "index.html").as_uri())
    return browser


def names(browser: Any) -> list[str]:
    """The students, in the order in which they stand."""
    return [each.text for each in browser.find_elements(By.CSS_SELECTOR, ".sortable tbody th")]


def test_the_class_page_is_reached_sorted_and_followed_by_key(of_a_class: Any) -> None:
    assert complaints(of_a_class) == []
    assert unreached_by_key(of_a_class) == []
    assert width_on_a_telephone(of_a_class) <= 400
    by_name = of_a_class.find_element(By.CSS_SELECTOR, ".sortable thead th:first-child button")
    for expected in (["ann", "bob", "cho"], ["cho", "bob", "ann"]):
        by_name.send_keys(Keys.ENTER)
        assert names(of_a_class) == expected
    of_a_class.find_element(By.CSS_SELECTOR, 'svg.decoder a[href="#part-rope"]').send_keys(Keys.ENTER)
    wait(of_a_class, lambda b: b.find_element(By.ID, "part-rope").get_attribute("open"))
    of_a_class.find_element(By.CSS_SELECTOR, "#part-rope p a").click()
    wait(of_a_class, lambda b: text(b, ".subject") == "ann")
    assert complaints(of_a_class) == []


@pytest.fixture
def live(rotated: dict[str, Any]) -> Generator[Live]:
    server = Live(rotated)
    try:
        yield server
    finally:
        server.close()


def test_each_verdict_arrives_in_every_tab_at_once(
    browser: Any, live: Live, rotated: dict[str, Any], right: dict[str, Any]
) -> None:
    browser.get(live.address)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(live.address)
    wait(browser, lambda _: live.streams == 2)
    live.judging("model.py saved")
    wait(browser, lambda b: "model.py saved" in text(b, "#connection"))
    live.show(right)
    wait(browser, lambda b: "All required checks that were asked passed" in text(b, "h1"))
    assert browser.title == "✓ adapters.py"
    assert text(browser, "#connection") == ""
    browser.close()
    browser.switch_to.window(first)
    wait(browser, lambda b: "All required checks that were asked passed" in text(b, "h1"))
    browser.refresh()
    assert "All required checks that were asked passed" in text(browser, "h1")
    live.show(rotated)
    wait(browser, lambda b: "failed" in text(b, "h1"))
    assert complaints(browser) == []


def test_what_is_unfolded_stays_unfolded_but_not_the_hint_of_another_failure(
    browser: Any, live: Live, rotated: dict[str, Any]
) -> None:
    browser.get(live.address)
    wait(browser, lambda _: live.streams == 1)
    browser.find_element(By.CSS_SELECTOR, ".hint > summary").click()
    live.show(dict(rotated) | {"subject": "again"})
    wait(browser, lambda b: text(b, ".subject") == "again")
    assert browser.find_element(By.CSS_SELECTOR, ".hint > p").is_displayed()
    other = json.loads(json.dumps(rotated))
    other["checks"][0]["diagnosis"]["defects"][0] |= {"explanation": "Something else.", "hint": "Another hint."}
    live.show(other | {"subject": "other"})
    wait(browser, lambda b: text(b, ".subject") == "other")
    assert not browser.find_element(By.CSS_SELECTOR, ".hint > p").is_displayed()


def test_the_page_says_that_the_watch_has_ended_and_keeps_the_verdict(browser: Any, live: Live) -> None:
    browser.get(live.address)
    wait(browser, lambda _: live.streams == 1)
    live.close()
    wait(browser, lambda b: "The watch has ended" in text(b, "#connection"))
    assert "Channel i is paired" in text(browser, "details.failure[open] h2")


def test_a_connection_that_breaks_is_made_again(browser: Any, live: Live, right: dict[str, Any]) -> None:
    browser.get(live.address)
    wait(browser, lambda _: live.streams == 1)
    browser.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    live.show(right)
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline | {"offline": False})
    wait(browser, lambda b: "All required checks that were asked passed" in text(b, "h1"), 20)
    browser.execute_cdp_cmd("Network.disable", {})


def test_a_server_that_is_silent_is_said_to_be_until_it_is_heard_again(browser: Any, live: Live) -> None:
    """As after the sleep of the machine, or of the server alone: the clock has gone on, and no sign of life came."""
    browser.get(live.address)
    wait(browser, lambda _: live.streams == 1)
    browser.execute_script(
        """const line = document.querySelector("#connection"), now = Date.now.bind(Date);
        window.lines = [];
        new MutationObserver(() => window.lines.push(line.textContent)).observe(line, { childList: true });
        Date.now = () => now() + 60000;
        dispatchEvent(new Event("online"));"""
    )
    wait(browser, lambda b: b.execute_script("return window.lines.length") >= 2)
    silent, heard = browser.execute_script("return window.lines.slice(0, 2)")
    assert silent.startswith("The watch does not answer.")
    assert heard == ""
    wait(browser, lambda _: live.judging("a write shows that the first stream is gone") or live.streams == 1)


def _used() -> int:
    """Threads and open files of this process."""
    gc.collect()
    return threading.active_count() + len(os.listdir("/proc/self/fd"))


def test_sixty_verdicts_in_a_row_leak_nothing(
    browser: Any, live: Live, rotated: dict[str, Any], right: dict[str, Any]
) -> None:
    browser.get(live.address)
    wait(browser, lambda _: live.streams == 1)

    def grown(times: int) -> int:
        for number in range(times):
            subject = f"save {number} of {times}"
            live.show((rotated if number % 2 else right) | {"subject": subject})
            if number % 5 == 0:
                browser.refresh()
            wait(browser, lambda b, subject=subject: text(b, ".subject") == subject)
        wait(browser, lambda _: live.streams == 1)
        browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return browser.execute_cdp_cmd("Memory.getDOMCounters", {})["nodes"]

    before = grown(10), _used()
    nodes = grown(50)
    assert nodes < 1.5 * before[0]
    wait(browser, lambda _: _used() <= before[1])  # threads of tabs that have just gone are still ending
    assert complaints(browser) == []
