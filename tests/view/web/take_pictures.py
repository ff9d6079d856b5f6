"""Takes the pictures of the dashboard that the documentation shows; no test, and not run by them.

They show a run on the threads of this machine: a policy tunes it, and a user changes it by hand.

python -m tests.view.web.take_pictures
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.apps import network_monitoring
from anabranch.planning.plan import Plan
from anabranch.view.web import Dashboard, serve
from tests.view.web.browser import FLAGS, PROGRAMS

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
WIDE = {"width": 1360, "height": 900}
CASES: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "light",
        "device_scale_factor": 1.5,
    },
}
SECONDS = 20.0
"""How long it runs before each change by hand, and after the last one."""
CHOSEN = "FailureWindow"


@contextmanager
def tuned() -> Iterator[Dashboard]:
    """A run that begins with one replica of everything, and small batches."""
    flow = network_monitoring.build(rows=None)
    plan = Plan.sequential(flow).with_source("lines", batch_rows=4096)
    with serve(port=0) as dashboard:
        run = ab.start(
            flow,
            engine="local",
            plan=plan,
            policy="auto",
            listener=dashboard.hear,
        )
        dashboard.control(run)
        run.await_termination(SECONDS)
        yield dashboard
        run.stop()


def change_by_hand(page: Any) -> None:
    """Two changes, as a user makes them."""
    page.click('[data-key="region:AuthFailureFilter"]')
    page.fill("#replicas", "2")
    page.click("#replicas-form button")
    page.wait_for_timeout(SECONDS * 1000)
    page.click(f'[data-key="region:{CHOSEN}"]')
    page.click('button[aria-label="Split the pipeline before CutOff"]')
    page.wait_for_timeout(SECONDS * 1000)


def take(dashboard: Dashboard, folder: Path) -> None:
    """Change the plan by hand, and write one picture per case."""
    from playwright.sync_api import sync_playwright

    program = next(path for path in map(shutil.which, PROGRAMS) if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        pages = {name: browser.new_context(**context).new_page() for name, context in CASES.items()}
        for page in pages.values():
            page.goto(dashboard.url)
            page.wait_for_selector(".g-step")
        change_by_hand(pages["light"])
        for name, page in pages.items():
            page.click(f'[data-key="region:{CHOSEN}"]')
            page.wait_for_timeout(1000)  # colours fade in
            page.evaluate("document.querySelector('#graph').scrollLeft = 0; scrollTo(0, 0)")
            page.screenshot(path=folder / f"dashboard-{name}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    place = Path(sys.argv[1]) if sys.argv[1:] else PICTURES
    place.mkdir(exist_ok=True)
    with tuned() as shown:
        take(shown, place)
