"""What the page is told of a run: history and news."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

import anabranch as ab
from anabranch.events import (
    Decision,
    Kind,
    Observed,
    PipelineMetrics,
    Reconfiguration,
    RunEnded,
    Shape,
    StepMetrics,
)
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.view.progress import Progress
from anabranch.view.web.numbers import to_json
from anabranch.view.web.observation import Look, RateWindow, seen_as_object, traffic
from anabranch.view.web.timeline import MOST_ENTRIES, MOST_PLANS, Timeline
from tests.view.web.made import (
    observed,
    paced_flow,
    small_change,
    small_plan,
    small_seen,
    small_shape,
    small_start,
    times,
)
from tests.waiting import wait_until


def story_of(*events):
    story = Timeline()
    for event in events:
        story.take(event)
    return story.history()()


def looked(seen, plan, shape):
    return seen_as_object(Look(seen, plan, RateWindow((seen,))), shape)


def test_before_a_run_there_is_nothing_to_show():
    history = story_of()
    assert history["started"] is None
    assert (history["points"], history["entries"], history["seen"]) == ([], [], None)


def test_a_plan_change_is_drawn_and_explained_by_the_decision_before_it():
    story = Timeline()
    story.take(small_start())
    story.take(Decision(2.0, "auto", Kind.TRIED, "count is busy"))
    news = story.take(small_change())()
    assert news["entry"]["why"] == "auto: count is busy"
    assert news["entry"]["text"] == "1 → 2 replicas of region count, 2 of 4 buckets move"
    assert news["plan"]["replicas"] == {"count": 2, "out": 1, "words": 1}
    (count,) = [box for box in news["drawing"]["boxes"] if box["name"] == "count"]
    assert count["replicas"] == 2
    assert story.take(small_change(9.0))()["entry"]["why"] == ""  # one reason, one change


def test_a_remark_explains_no_plan_change():
    story = Timeline()
    story.take(small_start())
    story.take(Decision(2.0, "auto", Kind.NOTED, "nothing to do"))
    assert story.take(small_change())()["entry"]["why"] == ""


def test_the_journal_is_bounded_and_keeps_the_newest():
    many = [Decision(float(n), "auto", Kind.NOTED, str(n)) for n in range(MOST_ENTRIES + 5)]
    entries = story_of(small_start(), *many)["entries"]
    assert len(entries) == MOST_ENTRIES
    assert entries[-1]["text"] == str(MOST_ENTRIES + 4)


def test_what_is_seen_is_told_by_the_names_of_boxes():
    seen = looked(small_seen().observation, small_plan(2), small_shape())
    count = seen["steps"]["count"]
    assert (count["cost_us"], count["selectivity"], count["keys"]) == (800, 0.25, 7)
    assert (count["skipped"], count["late"], count["busy"]) == (3, 2, 0.4)  # two replicas
    # A region is as busy as its hottest replica, and so is the pipeline that makes it so.
    assert seen["pipelines"] == {"count/0": 0.9, "out/0": 0.01}
    assert seen["busy"] == {"count": 0.9, "out": 0.01}
    assert seen["regions"]["count"]["replica_rows"] == [60, 20]
    assert seen["regions"]["count"]["skew"] == 1.5
    assert seen["traffic"] == [1000, 250]
    assert seen["bottleneck"] == "count"


def test_pipelines_of_an_earlier_plan_are_not_drawn_on_the_new_one():
    other = small_plan(2)
    seen = small_seen().observation
    gone = tuple(p for p in seen.pipelines if p.region == "out")
    assert set(looked(seen, other, small_shape())["pipelines"]) == {"count/0", "out/0"}
    only = observed(1.0, pipelines=gone).observation
    assert set(looked(only, other, small_shape())["pipelines"]) == {"out/0"}


def test_a_region_whose_name_begins_like_another_one_is_not_taken_for_it():
    busy = (
        PipelineMetrics("a", ("a",), 0.2, 0.0),
        PipelineMetrics("a/0", ("a/0",), 0.9, 0.0),
    )
    plan = Plan("f", "f", (RegionPlan("a", (("a",),)), RegionPlan("a/0", (("a/0",),))), ())
    seen = looked(observed(1.0, pipelines=busy).observation, plan, Shape())
    assert seen["busy"] == {"a": 0.2, "a/0": 0.9}
    assert seen["pipelines"] == {"a/0": 0.2, "a/0/0": 0.9}
    assert seen["bottleneck"] == "a/0"


def test_after_the_end_the_last_full_period_is_shown_with_the_last_counts():
    full = replace(small_seen(4.0).observation, latency_p999_ms=9.0)
    lost = (StepMetrics("count", 0, 0, 0.0, keys=9, skipped=5, late=4),)
    short = replace(times(), total_s=0.17)
    for rows in (0, 30):
        rest = replace(full, at_s=4.17, rows_in=rows, steps=lost, pipelines=(), times=short)
        events = [small_start(), Observed(full), Observed(rest)]
        assert story_of(*events)["seen"]["steps"]["count"]["cost_us"] is None  # while it goes on
        seen = story_of(*events, RunEnded(4.2, 1000 + rows, 500, ended=True))["seen"]
        count = seen["steps"]["count"]
        assert (count["cost_us"], count["keys"]) == (800, 9)
        assert count["in_per_s"] == pytest.approx(1000 / 1.17, rel=1e-3)  # by the tile's clock
        assert (count["skipped"], count["late"]) == (5, 4)
        assert seen["bottleneck"] == "count"


def test_a_batch_may_be_short_and_still_be_shown_after_the_end():
    short = replace(small_seen(5.0, 400).observation, times=replace(times(), total_s=0.1))
    events = [small_start(), small_seen(4.0), Observed(short), RunEnded(6.0, 1, 1, ended=True)]
    assert story_of(*events)["seen"]["at_s"] == 5.0


def test_a_wish_that_failed_explains_no_plan_change():
    story = Timeline()
    story.take(small_start())
    story.take(Decision(2.0, "by hand", Kind.APPLIED, "two replicas"))
    story.take(Decision(2.0, "by hand", Kind.FAILED, "expected one"))
    assert story.take(small_change())()["entry"]["why"] == ""


def test_times_are_exact_however_long_a_run_is():
    seen = observed(400_000.129)
    noted = Decision(400_000.126, "auto", Kind.NOTED, "still here")
    history = story_of(small_start(), seen, noted, RunEnded(400_001.25, 1, 1, ended=True))
    assert history["points"][0][0] == 400_000.13
    assert history["entries"][0]["at_s"] == 400_000.13
    assert history["ended"]["at_s"] == 400_001.25


def test_traffic_that_nobody_counted_is_not_zero():
    assert traffic(RateWindow((observed(1.0).observation,)), small_shape().streams) == [None, None]


def test_what_is_no_number_is_told_as_nothing():
    event = observed(1.0)
    broken = Observed(
        type(event.observation)(1.0, 0, 10, 0, event.observation.times, math.nan, math.inf)
    )
    told = json.loads(to_json(story_of(small_start(), broken)))
    assert told["points"][0][2:4] == [None, None]


def test_all_rates_are_by_the_clock_of_the_terminal():
    """A batch of half a second every two seconds; boxes, lines and tile agree."""
    progress, story = Progress("small"), Timeline()
    short = replace(times(), total_s=0.5)
    batches = [
        Observed(replace(small_seen(2.0 * n, 500 * n).observation, times=short))
        for n in range(1, 9)
    ]
    for event in (small_start(), *batches):
        progress.hear(event)
        told = story.take(event)()
    rate = progress.standing().rate_per_s
    assert told["rate_per_s"] == pytest.approx(rate, rel=1e-4)
    assert told["rate_per_s"] == pytest.approx(500 * (4 + 5 + 6 + 7 + 8) / 8.5, rel=1e-4)
    assert told["seen"]["sources"]["words"]["rate_per_s"] == told["rate_per_s"]
    assert told["seen"]["steps"]["count"]["in_per_s"] == told["rate_per_s"]
    assert told["seen"]["traffic"][0] == told["rate_per_s"]


def test_an_earlier_plan_is_shown_with_what_was_seen_under_it():
    story = Timeline()
    for event in (small_start(), small_seen(1.0), small_seen(2.0), small_change(3.0)):
        story.take(event)
    assert story.then(1)()["seen"]["at_s"] == 2.0
    assert story.then(2)()["seen"] is None  # nothing was seen yet
    assert story.then(3) is None
    story.take(small_start())
    assert story.then(2) is None  # that was another run


def test_no_more_plans_are_kept_than_can_be_looked_at():
    story = Timeline()
    story.take(small_start())
    for second in range(MOST_PLANS + 9):
        entry = story.take(small_change(second + 1.0))()["entry"]
    assert (entry["plan"], entry["who"]) == (MOST_PLANS + 10, f"plan {MOST_PLANS + 10}")
    assert story.then(10) is None
    assert story.then(11)()["number"] == 11


def test_a_run_that_starts_again_begins_a_new_story():
    history = story_of(small_start(), observed(1.0), small_change(), small_start())
    assert (history["points"], history["entries"], history["rows_in"]) == ([], [], 0)


def test_news_and_history_come_to_the_same():
    """What a page that was there from the start knows, and one that is opened at the end."""
    events = [small_start(), small_seen(1.0), small_change(), small_seen(4.0), small_seen(5.0)]
    story, followed = Timeline(), {}
    for event in [*events, RunEnded(6.0, 3000, 1500, ended=True)]:
        followed |= story.take(event)()
    history = story.history()()
    for name in ("plan", "drawing", "seen", "rows_in", "rows_out", "rate_per_s", "ended"):
        assert followed[name] == history[name]
    assert history["ended"] == {"at_s": 6.0, "whole": True, "error": ""}


def test_a_real_run_can_be_told():
    heard = []
    run = ab.start(paced_flow(), engine="local", policy="none", listener=heard.append)
    run.reconfigure(run.plan.with_pipelines("even", 1, 2))
    wait_until(lambda: any(isinstance(event, Reconfiguration) for event in heard))
    seen = len(heard)
    wait_until(lambda: any(isinstance(event, Observed) for event in heard[seen:]))
    run.stop()
    history = json.loads(to_json(story_of(*heard)))
    assert history["rows_in"] == run.result().rows_in
    assert history["plan"]["text"] == repr(run.plan)
    assert set(history["seen"]["steps"]) >= {"even", "positive", "count.combine", "count", "out"}
    assert any(isinstance(event, Reconfiguration) for event in heard)
    assert {"even/0", "even/1"} <= set(history["seen"]["pipelines"])
    assert history["seen"]["traffic"] == pytest.approx(
        [step["in_per_s"] for step in history["seen"]["steps"].values()]
    )
