"""The page in a browser, while a flow runs on Spark."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.planning.plan import Plan
from anabranch.view.web import serve
from tests.engines.spark.conftest import spark
from tests.view.web.browser import chromium, opened
from tests.view.web.made import paced_flow

__all__ = ["chromium", "opened", "spark"]

WITHIN_MS = 30_000


@pytest.fixture
def dashboard():
    with serve(port=0) as served:
        yield served


@pytest.fixture
def start(spark, dashboard):
    """Starts a paced flow that the dashboard shows; it is stopped in the end."""
    runs = []

    def begin():
        flow = paced_flow(5_000)
        plan = Plan.sequential(flow)
        runs.append(
            ab.start(flow, plan=plan, policy="auto", session=spark, listener=dashboard.hear)
        )
        dashboard.control(runs[0])
        return runs[0]

    yield begin
    for run in runs:
        run.stop()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_page_that_was_there_before_spark_shows_the_run_and_changes_it(start, dashboard, opened):
    page = opened(dashboard.url, drawn="#graph")
    page.until("document.querySelector('#state').dataset.state === 'waiting'")
    run = start()
    page.until("!document.querySelector('#pause').hidden", WITHIN_MS)
    page.page.click("#pause")  # nobody else shall change the plan
    page.until("document.querySelector('#rate').textContent !== '–'", WITHIN_MS)
    before = page.text("#rows-in")
    page.until(f"document.querySelector('#rows-in').textContent !== '{before}'", WITHIN_MS)
    assert page.text("#plan-unit") == "tasks"  # stages run one after another
    assert "batch" in page.text("#about")

    page.page.click('[data-key="step:count"]')
    page.until("document.querySelector('#detail').textContent.includes('Takes in')", WITHIN_MS)
    assert "Waiting in front" not in page.text("#detail")
    changes = len(run.reconfigurations)
    page.page.fill("#replicas", "2")
    page.page.click("#replicas-form button")
    label = """document.querySelector('[data-key="step:count"]').ariaLabel"""
    page.until(f"{label}.includes('2 replicas')", WITHIN_MS)
    page.until("document.querySelector('#answer').textContent.startsWith('In force: ')")
    page.until(f"document.querySelectorAll('.entry[data-kind=change]').length === {changes + 1}")
    assert run.plan.region("count").replicas == 2
    run.stop()
    page.until("document.querySelector('#state').dataset.state === 'stopped'")
