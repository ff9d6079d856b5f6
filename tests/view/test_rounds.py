"""Rounds: which plan stands, when a policy is done, and what a round came to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.adapt.policy import Cadence
from anabranch.apps import word_count
from anabranch.events import Decision, Observed, Reconfiguration, RunStarted
from anabranch.planning.plan import Plan
from anabranch.view.tuning_report import Rounds, as_object, report
from tests.adapt.scripted import observation

FIRST = Plan.sequential(word_count.build())
WIDER = FIRST.with_replicas("count", 2)


class Scripted:
    """A run that says what a test wants."""

    def __init__(self) -> None:
        self.rounds, self.now, self.plan = Rounds(Cadence(settle=1, periods=2)), 0, FIRST
        self.rounds.hear(RunStarted("word-count", "local", FIRST.to_json(), -1))

    def sees(self, periods: int, **seen: object) -> None:
        for _ in range(periods):
            self.now += 1
            self.rounds.hear(Observed(observation(self.plan, at_s=float(self.now), **seen)))

    def decides(self, outcome: str, why: str = "because") -> None:
        self.rounds.hear(Decision(float(self.now), "mine", outcome, why))

    def changes_to(self, plan: Plan) -> None:
        before, self.plan = self.plan.to_json(), plan
        told = Reconfiguration(float(self.now), self.now, 1.0, ("x",), 0, before, plan.to_json())
        self.rounds.hear(told)


def test_a_policy_is_done_when_its_chances_have_changed_nothing():
    run = Scripted()
    run.sees(6)
    assert not run.rounds.settled(3)  # the first period settles
    run.sees(1)
    assert run.rounds.settled(3)
    run.decides("noted")
    assert run.rounds.settled(3)
    run.decides("applied")
    assert not run.rounds.settled(3)


def test_a_policy_is_not_done_while_a_plan_is_on_trial():
    run = Scripted()
    run.decides("tried")
    run.changes_to(WIDER)
    run.sees(50)
    assert not run.rounds.settled(1)
    run.decides("kept")
    run.sees(3)
    assert run.rounds.settled(1)


@pytest.mark.parametrize(
    ("story", "stands"),
    [
        ([], FIRST),
        (["applied", WIDER], WIDER),
        (["tried", WIDER], FIRST),
        (["tried", WIDER, "kept"], WIDER),
        (["tried", WIDER, "reverted"], FIRST),
        (["tried", WIDER, "reverted", FIRST], FIRST),
        (["tried", WIDER, "reverted", "tried", FIRST.with_replicas("count", 3)], FIRST),
        (["tried", "failed"], FIRST),
    ],
)
def test_the_plan_that_stands_is_never_one_on_trial(story, stands):
    run = Scripted()
    for each in story:
        run.decides(each) if isinstance(each, str) else run.changes_to(each)
    assert run.rounds.plan == stands


@pytest.mark.parametrize(
    ("story", "under_way"),
    [
        ([], False),
        (["applied"], True),
        (["applied", WIDER], False),
        (["tried", WIDER, "kept"], False),
        (["tried", WIDER, "reverted"], True),
        (["tried", "failed"], False),
    ],
)
def test_a_plan_that_was_decided_on_is_under_way_until_it_is_in_force(story, under_way):
    run = Scripted()
    for each in story:
        run.decides(each) if isinstance(each, str) else run.changes_to(each)
    assert run.rounds.under_way == under_way


def test_a_round_tells_what_came_of_its_plan_once_settled():
    run = Scripted()
    run.sees(1, rate=10.0, latency_ms=900.0)
    run.sees(2, rate=1000.0, latency_ms=20.0, backlog=70)
    run.decides("tried", "region count: busy 0.97")
    run.changes_to(WIDER)
    run.sees(3, rate=2000.0)
    run.decides("kept", "region count: busy 0.97, tried, gained 100 %")
    first, second = run.rounds.rounds
    told = run.rounds.figures(first)
    assert (told.periods, told.rate_per_s, told.backlog_rows) == (2, 1000.0, 70)
    assert (told.latency_p50_ms, told.latency_p99_ms) == (20.0, 40.0)
    assert run.rounds.figures(second).rate_per_s == 2000.0
    page = report("word-count", "all is said", run.rounds)
    assert "| 0 | 0 s | 1,000 | 20.0, 40.0 ms | – | – | 70 | lines 1 reader" in page
    assert "| 1 | 3 s | 2,000 | 10.0, 20.0 ms | – | – | unknown |" in page
    assert "- 6.0 s  mine: region count: busy 0.97, tried, gained 100 %, kept" in page
    assert repr(WIDER) in page
    objects = as_object(run.rounds)
    assert [each["figures"]["rate_per_s"] for each in objects] == [1000.0, 2000.0]
    assert [each["decisions"][0]["outcome"] for each in objects] == ["tried", "kept"]


def test_lag_and_what_it_makes_end_to_end_are_told_where_a_source_knows():
    run = Scripted()
    run.sees(2)
    last = observation(FIRST, at_s=3.0, latency_ms=20.0)
    (source,) = last.sources
    run.rounds.hear(Observed(replace(last, sources=(replace(source, lag_ms=1500.0),))))
    page = report("word-count", "over", run.rounds)
    assert "| 1,500 ms | 1,515.0, 1,530.0 ms |" in page  # the median period took 15 and 30 ms
    assert as_object(run.rounds)[0]["figures"]["lag_ms"] == 1500.0


def test_a_round_of_which_nothing_was_seen_is_told_too():
    run = Scripted()
    run.changes_to(WIDER)
    assert "| 0 | 0 s | – | – | – | – | – | lines" in report("word-count", "over", run.rounds)
