"""The parts of `benchmarks/policies.py`: what the referee knows, and what runs are worth."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path

import pytest

from anabranch.adapt.policy import Cadence, Proposal
from anabranch.engines.engine import Options
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.simulator.scenario import Load, Scenario
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from policies_cases import Case, draw
from policies_referee import EVEN, Conditions, Referee, _other_ways, _threads, dealt_out
from policies_runs import (
    Arena,
    Phase,
    Run,
    Score,
    needed_changes,
    over_provisioning,
    regret,
    run,
    score,
)
from policies_tables import Done, as_json, dominators, place, quantile, summary
from random_loads import TraceSettings

from tests.sampling import few, thorough

SHORT = TraceSettings(seconds=60.0, hold_s=20.0)
CALM = Conditions((), ())


def small_case(**changes):
    """A reader, and a region that can have replicas or two pipelines; 6 ms of work a tuple."""
    profile = chain(
        [
            OperatorProfile("read", 0.1, state=StateKind.STATEFUL),
            OperatorProfile("parse", 4.0),
            OperatorProfile("count", 2.0, state=StateKind.PARTITIONED, key=("word",)),
        ],
        unit="ms",
    )
    scenario = replace(Scenario(step_s=0.5, queue_tuples=10), **changes)
    return Case(0, 0, "chain under steps", profile, Machine.of_cores(4), scenario, SHORT)


def arena_of(load, **changes):
    """One while of a minute under a load."""
    case = small_case(loads=(Load(((0.0, load),)),), **changes)
    phase = Phase(0.0, 60.0, inf if load is None else load, True, Referee(case, CALM))
    return Arena(case, (phase,))


def wider(arena, replicas):
    return Plan.sequential(arena.case.flow).with_replicas("count", replicas)


# The referee


def test_the_referee_finds_what_is_known_to_be_best():
    referee = Referee(small_case(), CALM)
    assert referee.sequential == pytest.approx(1000 / 6)
    assert referee.best == pytest.approx(4 / 6.1 * 1000, rel=1e-3)


@pytest.mark.parametrize("number", few([0, 2, 3, 6, 7], 1))
def test_no_plan_at_all_carries_much_more_than_the_best(number):
    case = replace(draw(number, 7, SHORT), machine=Machine.of_cores(2))
    referee = Referee(case, CALM, EVEN)
    least, most = _every_plan(referee, case)
    assert referee._carried(referee._best_shape) >= 0.98 * most
    assert referee.cheapest(inf) <= least + 1


def _every_plan(referee, case):
    """Fewest threads of those within 5 % of the most that any plan carries, and that."""
    ways = [_ways(region, case.limits.replicas) for region in referee._regions]
    shapes = [s for s in product(*ways) if _threads(s) <= referee._most]
    carried = {shape: referee._carried(shape) for shape in shapes}
    most = max(carried.values())
    good = [_threads(s) for s, c in carried.items() if c >= 0.95 * most]
    return min(good) + referee._ends, most


def _ways(region, most):
    """All ways to run a region: closed under the referee's own steps from one to another."""
    found, new = set(), {((len(region.steps),), 1)}
    while new:
        found |= new
        near = {w for cutting, n in new for w in _other_ways(region, cutting, n) if w[1] <= most}
        new = near - found
    return sorted(found, key=lambda way: len(way[0]) * way[1])


def test_what_the_referee_says_of_a_plan_is_what_the_engine_does():
    arena = arena_of(None)
    plan = wider(arena, 2)
    case = arena.case
    engine = SimulatorEngine(case.flow, plan, Options(), case.profile, case.machine, case.scenario)
    engine.start(lambda event: None)
    engine.wait(100.0)
    before = engine.rows[0]
    engine.wait(100.0)
    assert (engine.rows[0] - before) / 100 == pytest.approx(
        arena.phases[0].referee.capacity(plan), rel=0.01
    )


def test_buckets_go_to_who_is_done_first():
    owners = dealt_out([4.0, 3.0, 2.0, 1.0], [1.0, 1.0])
    assert owners == (0, 1, 1, 0)
    assert dealt_out([1.0] * 4, [3.0, 1.0]).count(0) == 3


# What runs are worth


def test_reading_all_that_comes_is_no_regret():
    arena = arena_of(100.0)
    assert regret(arena, Run([], [], [(s + 1.0, [100]) for s in range(60)])) == 0


def test_regret_is_the_part_that_was_not_read_in_time():
    arena = arena_of(100.0)
    late = [(s + 1.0, [50 if s < 30 else 150]) for s in range(60)]
    assert regret(arena, Run([], [], late)) == pytest.approx(0.25)


def test_nobody_regrets_what_no_plan_can_read():
    arena = arena_of(None)
    best = int(arena.phases[0].referee.best)
    assert regret(arena, Run([], [], [(s + 1.0, [best]) for s in range(60)])) < 0.005


def test_threads_that_are_not_needed_count_by_time():
    arena = arena_of(300.0)
    least = arena.phases[0].referee.cheapest(300.0)
    assert least == 5  # a reader in front, a sink behind, the reader's operator, two replicas
    made = Run([(0.0, wider(arena, 2)), (30.0, wider(arena, 4))])
    assert over_provisioning(arena, made) == pytest.approx(2 * 30 / (5 * 60))


def test_changes_count_until_a_plan_is_good():
    arena = arena_of(400.0)
    plans = [(0.0, wider(arena, 1)), (9.0, wider(arena, 2)), (19.0, wider(arena, 3))]
    assert [n for _, n in needed_changes(arena, Run(plans))] == [2]
    assert [n for _, n in needed_changes(arena, Run(plans[:2]))] == [inf]


def test_where_the_plan_is_good_no_change_is_needed():
    arena = arena_of(100.0)
    assert list(needed_changes(arena, Run([(0.0, wider(arena, 1))]))) == []


class Widen:
    """Goes to so many replicas at once."""

    name = "widen"
    pace = Cadence(settle=0, periods=3)

    def begin(self):
        return None

    def decide(self, memory, seen):
        plan = seen.plan.with_replicas("count", 3)
        return memory, None if plan == seen.plan else Proposal(plan, "because", trial=False)


def test_a_policy_is_run_and_judged():
    arena = arena_of(400.0)
    made = run(arena, Widen())
    found = score(arena, made)
    assert (found.changes, found.first, found.failures) == ((1,), (1,), 0)
    assert found.rescales == pytest.approx(60)
    assert 0 < found.regret < 0.1
    assert [d.outcome for d in made.journal] == ["applied"]


def test_the_same_seed_gives_the_same_figures():
    some, same = (Arena.of(3, 5, SHORT) for _ in range(2))
    assert some.case.scenario == same.case.scenario
    assert [p.goal for p in some.phases] == [p.goal for p in same.phases]


@thorough
@pytest.mark.parametrize("number", range(4))
def test_phases_follow_each_other_to_the_end(number):
    arena = Arena.of(number, 0, SHORT)
    assert arena.phases[0].begins_s == 0
    assert arena.phases[-1].ends_s == SHORT.seconds
    borders = [(a.ends_s, b.begins_s) for a, b in zip(arena.phases, arena.phases[1:], strict=False)]
    assert all(end == begin for end, begin in borders)


# Tables


def scored(changes, of_regret, over, rescales):
    return Score(changes, changes[:1], of_regret, over, rescales, 0)


DONE = [
    Done(0, "chain under steps", {"auto": scored((1, 2), 0.1, 0.5, 20.0)}),
    Done(1, "graph under ramp", {"auto": scored((inf,), 0.3, 0.1, 40.0)}),
]


def test_who_never_gets_there_is_beyond_every_number():
    assert quantile([1, 2, inf], 0.5) == 2
    assert quantile([1, 2, inf], 0.95) == inf
    row = summary(DONE, ["auto"])["auto"]
    assert (row["changes_median"], row["changes_never"]) == (2, pytest.approx(1 / 3))
    assert row["regret_mean"] == pytest.approx(0.2)


def test_to_dominate_is_to_be_as_good_in_all_and_better_in_one():
    def row(*values):
        names = ("changes", "regret", "over", "rescales")
        return {f"{name}_median": value for name, value in zip(names, values, strict=True)}

    table = {"a": row(1, 1, 1, 1), "b": row(1, 1, 1, 2), "c": row(0, 9, 1, 1), "d": row(1, 1, 1, 1)}
    assert dominators(table, "b", "median") == ["a", "d"]
    assert dominators(table, "a", "median") == dominators(table, "c", "median") == []
    assert [place(table, name, "changes_median") for name in table] == [2, 2, 1, 2]


def test_the_report_is_one_object_without_infinite_numbers():
    def refuse(constant):
        raise ValueError(constant)

    told = json.loads(as_json(DONE, ["auto"]), parse_constant=refuse)
    assert told["figures"]["auto"]["changes_p95"] == "never"
    assert told["figures"]["place of auto"]["regret_median"] == 1
    assert told["bars"]["auto_changes_median"]["holds"]
    assert not told["bars"]["auto_changes_p95"]["holds"]
