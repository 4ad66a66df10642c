"""The pictures of the README: two known mistakes, judged, drawn, and photographed by a headless browser.

    uv run --group browser python benchmarks/pictures.py [FOLDER]

FOLDER is docs/pictures where it is left out. It needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver

from cs336_harness.checks import all_checks
from cs336_harness.defects import all_defects, subject_of
from cs336_harness.picture import page
from cs336_harness.verdict.report import to_json
from cs336_harness.verdict.suite import Suite

HOME = Path(__file__).resolve().parent.parent
PICTURES = {"mask": ("causal-mask-off-by-one", "light"), "rope": ("rope-half-split-pairs", "dark")}
"""Each picture by name: the known mistake, and the colours of the screen."""

SIZE = (1180, 860)
COLOURS = 256
"""Colours that a picture keeps, which makes it half as large."""


def browser() -> webdriver.Chrome:
    """A headless browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("headless", "no-sandbox", "disable-gpu", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def photograph(driver: webdriver.Chrome, file: Path, colours: str, picture: Path, size: tuple[int, int] = SIZE) -> None:
    """Writes what a screen of that size and those colours shows of a page, as PNG."""
    features = [{"name": "prefers-color-scheme", "value": colours}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get(file.as_uri())
    shown = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    shown.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(picture, optimize=True)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "docs" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    driver = browser()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for name, (mistake, colours) in PICTURES.items():
                suite = Suite(subject_of(all_defects()[mistake]))
                results = list(suite.run(all_checks().values()))
                file = Path(scratch) / f"{name}.html"
                page.write(to_json("adapters.py", results), file)
                photograph(driver, file, colours, folder / f"{name}.png")
                print(f"{folder / name}.png: {mistake}, {colours}")
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
