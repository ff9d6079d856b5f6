"""Takes the pictures of the dashboard that the documentation shows; no test, and not run by them.

python -m tests.view.web.take_pictures
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.apps import sentiment
from anabranch.engines.registry import Simulated
from anabranch.engines.simulator.scenario import Load, Scenario
from anabranch.plan.machine import Machine
from anabranch.plan.plan import Plan
from anabranch.view.web import Dashboard, serve
from tests.view.web.browser import FLAGS, PHONE, PROGRAMS

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
CASES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1360, "height": 1010}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1360, "height": 1010}, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}
RATES = ((0.0, 40_000.0), (45.0, 110_000.0), (90.0, 60_000.0), (130.0, 180_000.0))
SECONDS = 175.0
CHOSEN = "intermediate_ranking"


@contextmanager
def tuned() -> Iterator[Dashboard]:
    """A run in virtual time whose load changes, on sixteen cores that need not be there."""
    flow = sentiment.build()
    site = Simulated(Machine.of_cores(16), scenario=Scenario(loads=(Load(RATES),)))
    plan = Plan.sequential(flow)
    with serve(port=0) as dashboard:
        hear = dashboard.hear
        run = ab.start(
            flow, engine="simulator", plan=plan, policy="auto", simulated=site, listener=hear
        )
        dashboard.control(run)
        run.await_termination(SECONDS)
        dashboard.settle()
        yield dashboard
        run.stop()


def take(dashboard: Dashboard, folder: Path) -> None:
    """Write one picture per case."""
    from playwright.sync_api import sync_playwright

    program = next(path for path in map(shutil.which, PROGRAMS) if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for name, context in CASES.items():
            page = browser.new_context(**context).new_page()
            page.goto(dashboard.url)
            page.click(f'[data-key="step:{CHOSEN}"]')
            page.wait_for_timeout(1000)  # colours fade in
            page.screenshot(path=folder / f"dashboard-{name}.png")
        browser.close()


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    with tuned() as shown:
        take(shown, PICTURES)
