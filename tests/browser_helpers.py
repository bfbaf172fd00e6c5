"""Open a page in a real headless Chromium and keep what the browser says about it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass
class Visit:
    """An open page, with its console errors, uncaught errors, dialogs and requested addresses."""

    page: Any
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def value(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def choose(self, selector: str, value: str) -> None:
        self.page.select_option(selector, value)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless Chromium; the test that asks for it is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        # CI installs one where it may; where it may not, all other tests are still worth running.
        pytest.skip(f"no browser found: none of {', '.join(NAMES)} is installed")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(SWITCHES))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Any, file: Path | str, width: int = 1280, height: int = 900, **context: Any
) -> Iterator[Visit]:
    """Open a file from disk, or an address, in a window of this size.

    `context` goes to the browser's context.
    """
    opened = browser.new_context(viewport={"width": width, "height": height}, **context)
    try:
        seen = Visit(opened.new_page())
        seen.page.on("console", lambda m: seen.errors.append(m.text) if m.type == "error" else None)
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on("request", lambda request: seen.requests.append(request.url))

        def dismiss(dialog: Any) -> None:
            seen.dialogs.append(dialog.message)
            dialog.dismiss()

        seen.page.on("dialog", dismiss)
        seen.page.goto(file if isinstance(file, str) else file.resolve().as_uri())
        yield seen
    finally:
        opened.close()
