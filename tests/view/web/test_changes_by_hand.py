"""The page in a browser: when it may change a run, and what becomes of a change."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.planning.plan import Plan
from anabranch.view.web import serve
from tests.view.web.browser import chromium, opened
from tests.view.web.made import Content, paced_flow

__all__ = ["chromium", "opened"]

pytestmark = pytest.mark.xdist_group("page")  # a browser for each file, not for each worker

ANSWER = "document.querySelector('#answer').textContent"


def started(dashboard):
    flow = paced_flow()
    plan = Plan.sequential(flow)
    hear = dashboard.hear
    run = ab.start(flow, engine="local", plan=plan, policy=Content(), listener=hear)
    dashboard.control(run)
    return run


@pytest.fixture
def live():
    """A paced run, and its page."""
    with serve(port=0) as dashboard:
        run = started(dashboard)
        yield dashboard, run
        run.stop()


def test_a_page_opened_before_the_run_begins_can_change_it(opened):
    with serve(port=0) as dashboard:
        page = opened(dashboard.url, drawn="#graph")
        page.until("document.querySelector('#state').dataset.state === 'waiting'")
        run = started(dashboard)
        page.until("!document.querySelector('#pause').hidden")
        page.page.click('[data-key="step:count"]')
        page.page.wait_for_selector("#replicas")
        run.pause_adaptation()  # not by this page
        page.until("document.querySelector('#pause').textContent === 'Resume adaptation'")
        run.stop()
        page.until("document.querySelector('#pause').hidden")


def test_a_page_that_only_shows_has_no_controls(opened):
    with serve(port=0, controls=False) as dashboard:
        run = started(dashboard)
        page = opened(dashboard.url)
        page.page.click('[data-key="step:count"]')
        page.until("document.querySelector('#rate').textContent !== '–'")
        assert page.page.is_hidden("#pause")
        assert page.page.is_hidden("#region-controls")
        run.stop()


def test_a_change_is_pending_until_it_is_in_force(live, opened, monkeypatch):
    dashboard, run = live
    held = []
    monkeypatch.setattr(run, "reconfigure", held.append)  # an engine that takes its time
    page = opened(dashboard.url)
    page.page.click('[data-key="step:even"]')
    page.page.click('button[aria-label^="Split the pipeline before positive"]')
    page.until(f"{ANSWER}.startsWith('Pending: ')")
    page.page.click('button[aria-label^="Split the pipeline before count.combine"]')
    page.until(f"{ANSWER}.endsWith('even | positive | count.combine.')")
    assert page.text("#answer").startswith("Pending: ")
    run.engine.reconfigure(held[-1])
    page.until(f"{ANSWER}.startsWith('In force: ')")
    page.until("document.querySelectorAll('[data-region=\"even\"] .frame').length === 3")


def test_a_change_that_another_one_replaces_is_not_pending_for_ever(live, opened, monkeypatch):
    dashboard, run = live
    monkeypatch.setattr(run, "reconfigure", lambda plan: None)
    page = opened(dashboard.url)
    page.page.click('[data-key="step:count"]')
    page.page.fill("#replicas", "4")
    page.page.click("#replicas-form button")
    page.until(f"{ANSWER}.startsWith('Pending: ')")
    run.engine.reconfigure(run.plan.with_source("numbers", replicas=2))
    page.until(f"{ANSWER}.startsWith('Another plan came instead of this: ')")


def test_a_run_that_ends_leaves_nothing_pending(live, opened, monkeypatch):
    dashboard, run = live
    monkeypatch.setattr(run, "reconfigure", lambda plan: None)
    page = opened(dashboard.url)
    page.page.click('[data-key="step:count"]')
    page.page.fill("#replicas", "4")
    page.page.click("#replicas-form button")
    page.until(f"{ANSWER}.startsWith('Pending: ')")
    run.stop()
    page.until(f"{ANSWER}.startsWith('The run ended before this: ')")


def test_the_graph_of_an_earlier_plan_is_shown_and_left_again(live, opened):
    dashboard, run = live
    page = opened(dashboard.url)
    page.until("document.querySelector('#rate').textContent !== '–'")
    run.reconfigure(run.plan.with_replicas("count", 3))
    page.until("document.querySelectorAll('.c-mark').length === 1")
    label = """document.querySelector('[data-key="step:count"]').ariaLabel"""
    page.until(f"{label}.includes('3 replicas')")
    page.page.click(".c-mark circle")
    assert page.page.is_hidden("#then")  # the newest plan is what is now
    run.reconfigure(run.plan.with_replicas("count", 2))
    page.until(f"{label}.includes('2 replicas')")
    page.page.click(".entry[data-kind=change] >> nth=1")
    page.until(f"{label}.includes('3 replicas')")
    assert page.text("#then-text").startswith("The graph under plan 2, from ")
    page.page.click('[data-key="step:count"]')
    assert page.page.is_hidden("#region-controls")  # what was is not to be changed
    page.page.click("#then-earlier")
    page.until(f"{label}.includes('1 replica')")
    page.until("document.querySelector('#plan-text').textContent.includes('count: 1 replica')")
    assert page.page.is_disabled("#then-earlier")
    page.page.click("#then-now")
    page.until(f"{label}.includes('2 replicas')")
    assert page.page.is_hidden("#then")
    page.page.wait_for_selector("#region-controls")


# When the page asks for the stream, by its own clock.
WHEN_ASKED = """
window.asked = [];
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    window.asked.push(performance.now());
  }
};
"""


def test_a_page_whose_run_is_over_asks_less_and_less(opened):
    dashboard = serve(port=0)
    run = started(dashboard)
    page = opened(dashboard.url, script=WHEN_ASKED)
    page.until("document.querySelector('#state').dataset.state === 'running'")
    run.stop()
    dashboard.close()
    page.until("document.querySelector('#state').dataset.state === 'stopped'")
    before = page.page.evaluate("asked.length")
    page.until(f"asked.length >= {before + 2}")
    first, second = page.page.evaluate(f"asked.slice({before}, {before + 2})")
    assert second - first > 3500  # left to itself, a browser asks every second
