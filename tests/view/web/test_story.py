"""What the page is told of a run: history and news."""

from __future__ import annotations

import json
import math

import pytest

import anabranch as ab
from anabranch.events import Decision, Kind, Observed, Reconfiguration, RunEnded
from anabranch.view.web.numbers import to_json
from anabranch.view.web.seen import seen_as_object, traffic
from anabranch.view.web.story import MOST_ENTRIES, Story
from tests.view.web.made import (
    observed,
    paced_flow,
    small_change,
    small_plan,
    small_seen,
    small_shape,
    small_start,
)


def story_of(*events):
    story = Story()
    for event in events:
        story.take(event)
    return story.history()()


def test_before_a_run_there_is_nothing_to_show():
    history = story_of()
    assert history["started"] is None
    assert (history["points"], history["entries"], history["seen"]) == ([], [], None)


def test_a_plan_change_is_drawn_and_explained_by_the_decision_before_it():
    story = Story()
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
    story = Story()
    story.take(small_start())
    story.take(Decision(2.0, "auto", Kind.NOTED, "nothing to do"))
    assert story.take(small_change())()["entry"]["why"] == ""


def test_the_journal_is_bounded_and_keeps_the_newest():
    many = [Decision(float(n), "auto", Kind.NOTED, str(n)) for n in range(MOST_ENTRIES + 5)]
    entries = story_of(small_start(), *many)["entries"]
    assert len(entries) == MOST_ENTRIES
    assert entries[-1]["text"] == str(MOST_ENTRIES + 4)


def test_what_is_seen_is_told_by_the_names_of_boxes():
    seen = seen_as_object(small_seen().observation, small_plan(2), small_shape())
    count = seen["steps"]["count"]
    assert (count["cost_us"], count["selectivity"], count["keys"]) == (800, 0.25, 7)
    assert (count["skipped"], count["late"], count["busy"]) == (3, 2, 0.4)  # two replicas
    assert seen["pipelines"] == {"count/0": 0.8, "out/0": 0.01}
    assert seen["regions"]["count"]["replica_rows"] == [60, 20]
    assert seen["regions"]["count"]["skew"] == 1.5
    assert seen["traffic"] == [1000, 250]
    assert seen["bottleneck"] == "count"


def test_pipelines_of_an_earlier_plan_are_not_drawn_on_the_new_one():
    other = small_plan(2)
    seen = small_seen().observation
    gone = tuple(p for p in seen.pipelines if p.region == "out")
    assert set(seen_as_object(seen, other, small_shape())["pipelines"]) == {"count/0", "out/0"}
    only = observed(1.0, pipelines=gone).observation
    assert set(seen_as_object(only, other, small_shape())["pipelines"]) == {"out/0"}


def test_traffic_that_nobody_counted_is_not_zero():
    assert traffic(observed(1.0).observation, small_shape().streams) == [None, None]


def test_what_is_no_number_is_told_as_nothing():
    event = observed(1.0)
    broken = Observed(
        type(event.observation)(1.0, 0, 10, 0, event.observation.times, math.nan, math.inf)
    )
    told = json.loads(to_json(story_of(small_start(), broken)))
    assert told["points"][0][2:4] == [None, None]


def test_a_run_that_starts_again_begins_a_new_story():
    history = story_of(small_start(), observed(1.0), small_change(), small_start())
    assert (history["points"], history["entries"], history["rows_in"]) == ([], [], 0)


def test_news_and_history_come_to_the_same():
    """What a page that was there from the start knows, and one that is opened at the end."""
    events = [small_start(), small_seen(1.0), small_change(), small_seen(4.0), small_seen(5.0)]
    story, followed = Story(), {}
    for event in [*events, RunEnded(6.0, 3000, 1500, ended=True)]:
        followed |= story.take(event)()
    history = story.history()()
    for name in ("plan", "drawing", "seen", "rows_in", "rows_out", "rate_per_s", "ended"):
        assert followed[name] == history[name]
    assert history["ended"] == {"at_s": 6.0, "whole": True, "error": ""}


def test_a_real_run_can_be_told():
    heard = []
    run = ab.start(paced_flow(), engine="local", policy="none", listener=heard.append)
    run.apply(run.plan.with_pipelines("even", 1, 2))
    run.await_termination(2.5)
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
