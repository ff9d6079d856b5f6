"""A tour of plans on Spark, with a run that is scripted."""

import pytest

from anabranch.engines.measuring import spark_calibration as spark_bench
from anabranch.engines.measuring.busy_flows import busy_flow
from anabranch.engines.measuring.spark_calibration import Tour, Turn, spark_trials, tour_spark
from anabranch.events import BatchTimes, Observation, Observed
from anabranch.graph import StateKind
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain

DONE = Observed(Observation(0.0, 0, 1, 1, BatchTimes(1.0, 0, 0, 0, 0, 0, 0), 0, 0))


class ScriptedRun:
    """A run whose micro-batches take as many seconds as their plan has replicas."""

    def __init__(self, clock, plan, hear):
        self.clock, self.plan, self.hear, self.stopped = clock, plan, hear, False
        self.batches = []

    def reconfigure(self, plan):
        self.plan = plan

    def await_termination(self, timeout_s):
        self.batches.append(self.plan.region("a").replicas)
        self.clock[0] += self.batches[-1]
        self.hear(DONE)
        return False

    def stop(self):
        self.stopped = True


@pytest.fixture
def scripted(monkeypatch):
    clock, runs = [100.0], []
    monkeypatch.setattr(spark_bench.time, "perf_counter", lambda: clock[0])

    def start(flow, plan, listener, session):
        runs.append(ScriptedRun(clock, plan, listener))
        return runs[-1]

    monkeypatch.setattr(spark_bench, "start", start)
    return runs


def plans():
    keyed = OperatorProfile("a", 1.0, state=StateKind.PARTITIONED, key=("key",))
    flow = busy_flow(chain([keyed]), rows=None)
    plan = Plan.sequential(flow)
    return flow, {f"x{n}": plan.with_replicas("a", n) for n in (1, 2, 3)}


def test_every_plan_gets_its_turns_and_its_own_times(scripted):
    flow, named = plans()
    found = tour_spark(flow, named, 2, lambda: None, batches=3)
    assert [(turn.plan, turn.seconds) for turn in found] == [
        ("x1", (1.0,) * 3),
        ("x2", (2.0,) * 3),
        ("x3", (3.0,) * 3),
    ] * 2
    assert scripted[0].stopped


def test_the_first_round_and_the_first_batch_of_a_turn_do_not_count(scripted):
    flow, named = plans()
    found = tour_spark(flow, named, 1, lambda: None, batches=1)
    assert scripted[0].batches == [1, 1, 2, 2, 3, 3] * 2
    assert len(found) == 3


def test_looks_stand_around_a_turn_and_cost_it_no_time(scripted):
    flow, named = plans()
    looks = []

    def look():
        scripted[0].clock[0] += 50
        looks.append(len(scripted[0].batches))
        return looks[-1]

    found = tour_spark(flow, named, 1, look, batches=2)
    assert [turn.seconds for turn in found] == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]
    assert [(turn.before, turn.after) for turn in found] == [(10, 12), (13, 15), (16, 18)]


def test_a_tour_that_is_over_hears_nothing_more():
    _, named = plans()
    tour = Tour(named, 0, 1, lambda: None)
    for _ in range(20):
        tour.hear(DONE)
    assert tour.over
    assert tour.turns == []


def test_trials_say_what_they_were(monkeypatch):
    def tour(flow, plans, rounds, look, *, session=None):
        return [
            Turn(name, (plan.region("count").replicas / 10,), look(), look())
            for name, plan in plans.items()
        ]

    monkeypatch.setattr(spark_bench, "tour_spark", tour)
    found = spark_trials()
    assert {(t.rows, t.row_bytes) for t in found} == {(2000, 16), (200_000, 16), (200_000, 112)}
    assert all(t.seconds == (t.replicas / 10,) for t in found)
