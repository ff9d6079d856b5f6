"""The page in a browser: how figures are written, and where."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from anabranch.events import (
    Observed,
    PipelineMetrics,
    RegionMetrics,
    RunEnded,
    RunStarted,
    Shape,
    SourceMetrics,
    StepMetrics,
    StepShape,
    StreamShape,
)
from anabranch.planning.plan import Plan, RegionPlan, SourcePlan
from anabranch.view.web import serve
from tests.view.web.browser import PHONE, chromium, opened
from tests.view.web.made import observed, small_change, small_seen, small_start

__all__ = ["chromium", "opened"]

pytestmark = pytest.mark.xdist_group("page")  # a browser for each file, not for each worker

OVER = RunEnded(9.0, 10, 5, ended=True)


@pytest.fixture
def shown(opened):
    """Events on a page."""
    pages = []

    def show(*events, **context):
        pages.append(serve(port=0, journal="run.jsonl"))
        for event in events:
            pages[-1].hear(event)
        pages[-1].settle()
        return opened(pages[-1].url, **context)

    yield show
    for page in pages:
        page.close()


def with_latency(p50_ms, p99_ms):
    return Observed(replace(small_seen().observation, latency_p50_ms=p50_ms, latency_p99_ms=p99_ms))


@pytest.mark.parametrize(
    ("p99_ms", "written"),
    [(12.34, "12.3 ms"), (999.0, "999 ms"), (1_210.0, "1.21 s"), (45_600.0, "45.6 s")],
)
def test_a_latency_of_a_second_or_more_is_told_in_seconds(shown, p99_ms, written):
    page = shown(small_start(), with_latency(1.0, p99_ms), OVER)
    assert f"{page.text('#p99')} {page.text('#p99-unit')}" == written
    assert (page.text("#p50"), page.text("#p50-unit")) == ("1", "ms")


def test_the_latency_chart_has_one_unit_and_says_which(shown):
    page = shown(small_start(), with_latency(1_100.0, 3_900.0), OVER)
    page.page.wait_for_selector("#latency-chart .axis", state="attached")
    assert page.text("figure:nth-of-type(2) figcaption") == "Latency, s"
    axis = '#latency-chart text[text-anchor="end"]'
    assert page.page.eval_on_selector_all(axis, "all => all.map(e => e.textContent)") == [
        *("0", "2", "4")
    ]
    page.page.hover("#latency-chart svg")
    assert "p50 1.1 s, p99 3.9 s" in page.text("#tip")


def two_pipelines():
    """A source, a region of three steps cut in two, and a sink: all as busy as can be."""
    names = ("parse", "clean", "x")
    region = RegionPlan("parse", (names[:2], names[2:]), 2)
    plan = Plan("cut", "f", (region, RegionPlan("out", (("out",),))), (SourcePlan("s"),))
    steps = [StepShape("s", "source", region="s")]
    steps += [StepShape(name, "operator", "stateless", region="parse") for name in names]
    steps += [StepShape("out", "sink", region="out")]
    streams = tuple(StreamShape(a.step, "out", b.step) for a, b in pairwise(steps))
    start = RunStarted("cut", "local", plan.to_json(), -1, Shape(tuple(steps), streams))
    rows = 888_800
    seen = observed(
        1.0,
        rows,
        steps=tuple(StepMetrics(n, rows, rows, 0.9, skipped=888_000) for n in (*names, "out")),
        pipelines=(
            PipelineMetrics("parse", names[:2], 0.85, 0.25),
            PipelineMetrics("parse", names[2:], 0.3, 0.0),
            PipelineMetrics("out", ("out",), 1.0, 0.0),
        ),
        regions=(RegionMetrics("parse", 2, rows, replica_busy=(0.8, 0.9)),),
        sources=(SourceMetrics("s", rows, rows, None, busy_share=1.0),),
    )
    return start, seen


OUTSIDE = """boxes => boxes.flatMap((box) => {
  const face = box.querySelector(".face").getBoundingClientRect();
  return [...box.querySelectorAll(":scope > text")].filter((text) => {
    const place = text.getBoundingClientRect();
    return place.left < face.left || place.right > face.right;
  }).map((text) => text.textContent);
})"""


def test_no_text_leaves_its_box(shown):
    page = shown(*two_pipelines(), OVER)
    flows = page.page.eval_on_selector_all(".flow", "all => all.map(e => e.textContent)")
    assert flows == ["889k/s · 100 %", "889k/s", "889k/s", "889k/s", "889k/s · 100 %"]
    lost = page.page.eval_on_selector_all(".lost", "all => all.map(e => e.textContent)")
    assert lost == ["", "▲888k", "▲888k", "▲888k", "▲888k"]
    assert page.page.eval_on_selector_all(".g-step", OUTSIDE) == []
    badge = """all => all.filter((e) => e.lastChild.textContent
        && e.lastChild.getBBox().width > e.firstChild.getBBox().width - 6).length"""
    assert page.page.eval_on_selector_all(".lost", badge) == 0


def test_what_is_serial_is_named_with_its_share_and_its_bound(shown):
    start, seen = two_pipelines()
    *others, out = start.shape.steps
    steps = (*others, replace(out, serial="takes a changelog"))
    serial = replace(start, shape=replace(start.shape, steps=steps))
    page = shown(serial, seen, OVER)
    # The pipelines have two replicas: 1.0 of 1.0 + 2 × 0.85 + 2 × 0.3 + 1.0.
    page.reads(
        "#serial",
        "Serial: `out` takes a changelog (23 % of the work): at most 4.3 cores can help",
    )
    page.page.click('[data-key="step:out"]')
    page.until("document.querySelector('#detail').textContent.includes('it takes a changelog')")
    page.page.click('[data-key="region:parse"]')
    page.until("!document.querySelector('#detail').textContent.includes('Serial')")
    assert shown(start, seen, OVER).text("#serial") == ""


def test_how_busy_a_pipeline_is_stands_there_in_words(shown):
    page = shown(*two_pipelines(), OVER)
    frames = page.page.eval_on_selector_all(
        '[data-region="parse"] .frame', "all => all.map(e => e.ariaLabel)"
    )
    assert frames == ["pipeline parse · clean: 90 % busy", "pipeline x: 30 % busy"]
    page.page.click('[data-key="region:parse"]')
    page.reads("#detail-title", "Region parse")
    told = page.text("#detail").replace("\n\n", "\n")
    assert "parse · clean (overhead 25 %)\n90 %" in told
    assert "x\n30 %" in told


def test_a_source_that_holds_up_the_run_is_marked(shown):
    start, seen = two_pipelines()
    quiet = tuple(replace(p, busy_share=0.1) for p in seen.observation.pipelines)
    seen = Observed(replace(seen.observation, pipelines=quiet, regions=()))
    page = shown(start, seen, OVER)
    assert page.page.locator('[data-region="s"].bottleneck > .frame.busy-4').count() == 1
    label = page.page.get_attribute('[data-key="step:s"]', "aria-label")
    assert label == "source s, 889k/s, 1 replica, 100 % busy, bottleneck"
    page.page.click('[data-key="step:s"]')
    page.until("document.querySelector('#detail').textContent.includes('Busy100 %')")


def test_no_button_lies_in_another_one(shown):
    page = shown(*two_pipelines(), OVER)
    assert page.page.locator('[data-key="region:parse"]').count() == 1
    assert page.page.locator("[role=button] [role=button]").count() == 0
    assert page.page.get_attribute('[data-region="parse"]', "role") == "group"


@pytest.mark.parametrize(("p999_ms", "word"), [(None, "tasks"), (5.0, "threads")])
def test_what_waits_is_told_where_steps_run_side_by_side(shown, p999_ms, word):
    seen = Observed(replace(small_seen().observation, latency_p999_ms=p999_ms))
    page = shown(small_start(), small_change(3.0), seen, OVER)
    assert page.text("#plan-unit") == word
    page.page.click('[data-key="step:count"]')
    page.reads("#detail-title", "Operator count")
    assert ("Waiting in front\n12 rows" in page.text("#detail")) == (word == "threads")


SMALLEST = """all => Math.min(...all.filter((e) => e.textContent).map((e) =>
  parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a))"""


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1360, "height": 900}])
def test_a_wide_graph_can_be_read_and_be_seen_whole(shown, viewport):
    steps = tuple(StepShape(f"step {n}", "operator", region=f"step {n}") for n in range(20))
    streams = tuple(StreamShape(f"step {n}", "out", f"step {n + 1}") for n in range(19))
    plan = Plan("wide", "f", tuple(RegionPlan(s.step, ((s.step,),)) for s in steps), ())
    start = RunStarted("wide", "local", plan.to_json(), -1, Shape(steps, streams))
    page = shown(start, viewport=viewport)
    room = page.page.locator("#graph").bounding_box()["width"]
    assert page.page.eval_on_selector_all("#graph text", SMALLEST) >= 9
    assert page.page.locator("#graph svg").bounding_box()["width"] > room
    page.page.click("#zoom-fit")
    page.until(f"document.querySelector('#graph svg').clientWidth <= {room}")


def test_an_empty_journal_takes_little_room(shown):
    page = shown(small_start(), viewport=PHONE)
    assert page.page.locator("#journal").bounding_box()["height"] < 100
    page = shown(small_start(), *(small_change(float(n)) for n in range(30)), viewport=PHONE)
    page.page.wait_for_selector(".entry")
    assert 300 < page.page.locator("#journal").bounding_box()["height"] < 400


def test_the_tiles_are_a_list_of_names_and_values(shown):
    page = shown(small_start())
    tags = page.page.eval_on_selector_all("dl > div > *", "all => all.map(e => e.tagName)")
    assert set(tags) == {"DT", "DD"}
    assert page.page.get_attribute("#journal-count", "role") is None  # not every entry aloud


def test_a_browser_that_may_remember_nothing_shows_the_page_all_the_same(shown):
    forbidden = """Object.defineProperty(window, "localStorage", {
        get() { throw new DOMException("forbidden", "SecurityError"); } })"""
    page = shown(small_start(), script=forbidden)
    page.page.click("#theme")
    assert page.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_an_earlier_plan_of_a_journal_is_shown(shown):
    page = shown(
        small_start(),
        small_seen(1.0),
        small_change(3.0),
        small_seen(4.0, 2000),
        small_change(5.0),
        OVER,
    )
    rate = """document.querySelector('[data-key="step:words"] .flow').textContent"""
    page.until(f"{rate} === '750/s'")  # over the last observations
    page.page.click(".c-mark circle")
    page.until(
        "document.querySelector('#then-text').textContent.includes('plan 2, from 3 s to 5 s')"
    )
    page.page.click("#then-earlier")
    page.until(f"{rate} === '1k/s'")  # there was one
    assert page.text("#then-text") == "The graph under plan 1, from 0 s to 3 s"
    page.page.click("#then-later")
    page.page.click("#then-now")
    page.until(f"{rate} === '750/s'")
