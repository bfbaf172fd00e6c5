"""The pictures of the page on the explorer, of a real server in a headless Chromium.

headscope explore --no-browser
python docs/tools/explore.py ADDRESS
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "images"
DONE = ".explorer[data-state=done]"


def pressed(page: Page, name: str) -> None:
    """Press a button and wait for all that follows."""
    before = page.get_attribute(".explorer", "data-run")
    page.get_by_role("button", name=name, exact=True).click()
    page.wait_for_selector(f"{DONE}:not([data-run='{before}'])")


def main() -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": 1280, "height": 1010})
        page.goto(sys.argv[1])
        page.wait_for_selector(DONE)
        page.screenshot(path=IMAGES / "explore.png")
        pressed(page, "3 Look")
        token = page.locator(".lane[data-lane=original] .tokens .tok").nth(8)
        token.scroll_into_view_if_needed()
        token.hover()
        page.wait_for_timeout(300)
        page.screenshot(path=IMAGES / "explore-head.png")
        pressed(page, "As it arrives")
        for _ in range(6):
            page.get_by_role("button", name="Next word").click()
        page.mouse.move(0, 0)
        page.locator(".outputs").screenshot(path=IMAGES / "explore-arrives.png")
        browser.close()


if __name__ == "__main__":
    main()
