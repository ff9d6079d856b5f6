"""Balance: buckets move off a hot replica, and what no move can mend is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.adapt.policies import balance
from anabranch.adapt.policies.balance import Balance, loads_of, split
from anabranch.engines.simulator.flows import flow_of
from anabranch.events import HotKey, Observation
from anabranch.graph import StateKind
from anabranch.planning.bucket_map import balanced, moved, replica_loads
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain
from tests.adapt.scripted import ScriptedRun, observation, seen
from tests.sampling import some

FLOW = flow_of(chain([OperatorProfile("a", 1.0, state=StateKind.PARTITIONED, key=("k",))]))
BUCKETS = len(Plan.sequential(FLOW).region("a").bucket_map)


def dealt_in_turn(replicas: int) -> Plan:
    """Buckets 0, 2, 4, … are replica 0's, when there are two."""
    plan = Plan.sequential(FLOW).with_replicas("a", replicas)
    return plan.with_bucket_map("a", balanced(BUCKETS, replicas))


START = dealt_in_turn(2)


def told(
    plan: Plan,
    rows: Sequence[int],
    at_s: float = 1.0,
    cost_s: Sequence[float] | float = 1e-3,
    hottest: HotKey | None = None,
) -> Observation:
    """One second in which tuples came to buckets, each with its cost."""
    costs = [cost_s] * len(rows) if isinstance(cost_s, float) else list(cost_s)
    region = plan.region("a")
    work = [n * cost for n, cost in zip(rows, costs, strict=True)]
    busy = replica_loads(region.bucket_map, work, region.replicas)
    quiet = observation(plan, at_s=at_s, rate=float(sum(rows)))
    regions = [
        replace(each, replica_busy=busy, bucket_rows=tuple(rows), hottest_key=hottest)
        if each.region == "a"
        else each
        for each in quiet.regions
    ]
    return replace(quiet, regions=tuple(regions))


def with_rows(**by_bucket: int) -> list[int]:
    """One tuple in every bucket, and more in those that are named like b7."""
    rows = [1] * BUCKETS
    for name, count in by_bucket.items():
        rows[int(name[1:])] = count
    return rows


def test_as_few_buckets_as_needed_move_and_the_move_is_kept():
    # Buckets 0 and 2 are replica 0's: 300 and 250 of 804 tuples; one of them has to go.
    rows = with_rows(b0=300, b2=250)
    run = ScriptedRun(FLOW, START, lambda plan, second: told(plan, rows, float(second)))
    run.go(run.tuned_by(Balance()), 20)
    [plan] = run.plans
    assert moved(START.region("a").bucket_map, plan.region("a").bucket_map) == (2,)
    assert [decision.outcome for decision in run.journal] == ["tried", "kept"]
    assert run.journal[0].why == (
        "region a: replica 0 has 1.68 times the mean to do, moving 1 of 256 buckets promises 1.06"
    )
    assert run.journal[1].why.endswith("tried, hottest replica 1.68 → 1.06 times the mean")


def test_even_replicas_are_left_alone():
    rows = with_rows(b0=100, b1=100)
    assert Balance().decide(Balance().begin(), seen(FLOW, START, told(START, rows)))[1] is None


def test_replicas_that_are_idle_anyway_are_left_alone():
    looked = seen(FLOW, START, told(START, with_rows(b0=300, b2=200), cost_s=1e-4))
    assert Balance().decide(Balance().begin(), looked)[1] is None


def test_a_key_that_is_more_than_a_fair_share_is_named_once_and_nothing_moves():
    rows, hottest = with_rows(b0=3000), HotKey("word 'the'", 0.9)
    run = ScriptedRun(
        FLOW,
        START.with_bucket_map("a", (0,) + (1,) * (BUCKETS - 1)),
        lambda plan, second: told(plan, rows, float(second), 1e-4, hottest),
    )
    run.go(run.tuned_by(Balance()), 30)
    assert run.plans == []
    [decision] = run.journal
    assert decision.outcome == "noted"
    assert decision.why == (
        "region a: word 'the' alone has 0.90 of the tuples, a replica's fair share is 0.50: "
        "no move of buckets helps"
    )


def test_what_is_named_is_remembered():
    plan = START.with_bucket_map("a", (0,) + (1,) * (BUCKETS - 1))
    window = [told(plan, with_rows(b0=3000), 1.0, 1e-4, HotKey("word 'the'", 0.9))]
    memory, first = Balance().decide(Balance().begin(), seen(FLOW, plan, *window))
    assert first is not None
    assert Balance().decide(memory, seen(FLOW, plan, *window)) == (memory, None)


def test_others_make_room_for_a_hot_key_before_it_is_named():
    rows, hottest = with_rows(b0=600, b3=100, b6=100), HotKey("k 7", 0.5)
    plan = dealt_in_turn(3)  # all of those are replica 0's
    run = ScriptedRun(FLOW, plan, lambda now, second: told(now, rows, float(second), 1e-3, hottest))
    run.go(run.tuned_by(Balance()), 40)
    assert [decision.outcome for decision in run.journal] == ["tried", "kept", "noted"]
    assert "k 7 alone has 0.50" in run.journal[-1].why
    assert run.plan.region("a").bucket_map[0] == 0


def test_a_bucket_whose_keys_are_alike_is_named_itself():
    rows = with_rows(b0=3000)
    plan = START.with_bucket_map("a", (0,) + (1,) * (BUCKETS - 1))
    _, proposal = Balance().decide(Balance().begin(), seen(FLOW, plan, told(plan, rows, 1.0)))
    assert proposal is not None
    assert proposal.plan == plan
    assert "bucket 0 alone has 0.92 of the work, a replica's" in proposal.why


def test_a_bucket_with_dear_tuples_weighs_more_than_its_tuples_say():
    rows = [10] * BUCKETS
    dear = [1e-2 if b in (0, 2) else 1e-4 for b in range(BUCKETS)]
    loads = loads_of(seen(FLOW, START, told(START, rows, cost_s=dear)), "a")
    assert loads is not None
    assert loads.imbalance > 1.2
    assert sum(rows[b] for b in range(0, BUCKETS, 2)) == sum(rows[b] for b in range(1, BUCKETS, 2))


def test_work_is_counted_in_tuples_where_nobody_knows_how_busy_replicas_are():
    looked = told(START, with_rows(b0=300))
    blind = replace(looked, regions=tuple(replace(r, replica_busy=()) for r in looked.regions))
    loads = loads_of(seen(FLOW, START, blind), "a")
    assert loads is not None
    assert loads.busiest_share is None
    assert loads.replicas == (427.0, 128.0)


def test_a_move_that_does_not_help_is_reverted():
    """The load follows the buckets: whatever replica 1 gets, it gets too much of."""
    hot = with_rows(b0=300, b2=200)
    other = with_rows(b1=300, b3=300, b5=300)

    def script(plan: Plan, second: int) -> Observation:
        changed = plan.region("a").bucket_map != START.region("a").bucket_map
        return told(plan, other if changed else hot, float(second))

    run = ScriptedRun(FLOW, START, script)
    run.go(run.tuned_by(Balance()), 12)
    assert [decision.outcome for decision in run.journal][:2] == ["tried", "reverted"]
    assert run.plans[1] == START


@settings(max_examples=some(40))
@given(
    st.lists(st.integers(0, 60), min_size=BUCKETS, max_size=BUCKETS),
    st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(0, 4000), max_size=6),
    st.integers(2, 6),
)
def test_it_never_thrashes_under_a_load_that_stays(rows, hot, replicas):
    for bucket, count in hot.items():
        rows[bucket] += count
    plan = dealt_in_turn(replicas)
    run = ScriptedRun(FLOW, plan, lambda now, second: told(now, rows, float(second), cost_s=1e-3))
    run.go(run.tuned_by(Balance()), 60)
    assert len(run.plans) <= 2
    assert not [d for d in run.journal if d.outcome in ("refused", "failed", "reverted")]
    before = replica_loads(plan.region("a").bucket_map, rows, replicas)
    after = replica_loads(run.plan.region("a").bucket_map, rows, replicas)
    assert max(after) <= max(before)


def test_nothing_is_decided_without_tuples_by_bucket():
    assert Balance().decide(Balance().begin(), seen(FLOW, START)) == (Balance().begin(), None)
    assert loads_of(seen(FLOW, START), "a") is None


def test_a_decision_depends_on_what_is_seen_alone():
    looked = seen(FLOW, START, told(START, with_rows(b0=300, b2=200)))
    first, second = (Balance().decide(Balance().begin(), looked) for _ in range(2))
    assert first == second
    assert first[1] is not None


@pytest.mark.parametrize("shares", [(0.3, 0.1), (0.1, 0.3)])
def test_a_hot_key_counts_by_the_tuples_of_its_periods(shares):
    rows = with_rows(b0=300)
    window = [
        told(START, rows, at_s, hottest=HotKey("k 1", share))
        for at_s, share in enumerate(shares, start=1)
    ]
    loads = loads_of(seen(FLOW, START, *window), "a")
    assert loads is not None
    assert loads.hottest_key == HotKey("k 1", pytest.approx(0.2))


def test_what_replicas_do_whatever_comes_is_told_apart_from_what_tuples_cost():
    fixed, costs = split([300.0, 100.0, 200.0], [0.5, 0.3, 0.4])
    assert (fixed, costs) == (pytest.approx(0.2), pytest.approx((1e-3,) * 3))


def test_a_replica_that_no_line_explains_has_dearer_tuples():
    fixed, costs = split([100.0, 110.0, 90.0], [0.9, 0.31, 0.29])
    assert fixed == 0.0
    assert costs == pytest.approx((9e-3, 0.31 / 110, 0.29 / 90))


def test_of_many_hot_keys_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(balance, "MOST_NAMED", 2)
    plan = START.with_bucket_map("a", (0,) + (1,) * (BUCKETS - 1))
    memory = Balance().begin()
    for key in ("k 1", "k 2", "k 3"):
        window = told(plan, with_rows(b0=3000), 1.0, 1e-4, HotKey(key, 0.9))
        memory, _ = Balance().decide(memory, seen(FLOW, plan, window))
    assert [named for _, named in memory.named] == ["k 2", "k 3"]
