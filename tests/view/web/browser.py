"""Chromium without a screen, for the tests of a module.

Where Chromium or Playwright is not installed its tests are skipped by name, unless CI or
ANABRANCH_REQUIRE_CHROMIUM is set: then they fail.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]
PATIENCE_MS = 30_000.0
"""Whoever waits goes on as soon as it is there, and a busy machine may take its time."""
WIDE, PHONE = {"width": 1360, "height": 900}, {"width": 360, "height": 740}


def missing() -> str:
    """What is not installed; nothing if all is there."""
    if find_spec("playwright") is None:
        return "playwright is not installed (pip install playwright)"
    if not any(shutil.which(name) for name in PROGRAMS):
        return "Chromium is not installed (apt-get install chromium)"
    return ""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of a module."""
    lacking = missing()
    if lacking:
        if os.environ.get("CI") or os.environ.get("ANABRANCH_REQUIRE_CHROMIUM"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    from playwright.sync_api import sync_playwright

    program = next(path for path in map(shutil.which, PROGRAMS) if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page, what it asked for, and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def reads(self, selector: str, text: str) -> None:
        """Wait until an element shows a text."""
        self.page.wait_for_selector(selector)
        end = time.monotonic() + PATIENCE_MS / 1000
        while self.text(selector) != text and time.monotonic() < end:
            self.page.wait_for_timeout(20)
        assert self.text(selector) == text

    def until(self, expression: str, within_ms: float = PATIENCE_MS) -> None:
        """Wait until an expression of the page is true; the page itself may evaluate no text."""
        end = time.monotonic() + within_ms / 1000
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"not within {within_ms} ms: {expression}"
            self.page.wait_for_timeout(20)


Open = Callable[..., Opened]


@pytest.fixture
def opened(chromium: Any) -> Iterator[Open]:
    """Opens addresses, each in a browser that knows nothing yet; no script of it may fail."""
    found: list[tuple[Any, Opened]] = []

    def open_page(url: str, drawn: str = ".g-step", script: str = "", **context: Any) -> Opened:
        holder = chromium.new_context(**{"viewport": WIDE, **context})
        each = Opened(holder.new_page())
        each.page.add_init_script(script)
        found.append((holder, each))
        each.page.goto(url)
        if drawn:
            each.page.wait_for_selector(drawn)
        return each

    yield open_page
    errors = [error for _, each in found for error in each.errors]
    for holder, _ in found:
        holder.close()
    assert errors == []
