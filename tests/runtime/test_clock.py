"""Replicas of a clock: which rows each gets, and what goes between them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.planning.plan import Plan
from anabranch.runtime.host import Host
from anabranch.runtime.messages import ClockMessage, Delivery, EntryState, Passed, UnitId
from anabranch.state.positions import is_end
from anabranch.testing.sequential import run_sequential
from tests.runtime.cluster import Cluster

CLOCK = "rows.time"
ROWS = 2_000
REPLICAS = 4
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


@partitioned(key="k", out="k: int64, n: int64")
def counted(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(k=row.k, n=ctx.state["n"] * 1000 + row.ts)


def timed_flow(rows: int = ROWS) -> Flow:
    """A source that is slightly out of order, with wrong dates here and there."""
    rng = Random(7)
    times = [
        10**6 if rng.random() < 0.005 else number // 4 + rng.choice((0, 0, -1, -3, -9))
        for number in range(rows)
    ]
    flow = Flow("timed", buckets=64)
    drawn = [{"ts": time, "k": rng.randrange(500)} for time in times]
    clock = flow.source("rows", memory(drawn, SCHEMA), time="ts", lateness=3, ahead=50)
    clock.late.sink("late", collect())
    clock.apply("counted", counted).sink("out", collect())
    return flow


def side_by_side(flow: Flow, replicas: int = REPLICAS, batch_rows: int = 50) -> Plan:
    plan = Plan.sequential(flow).with_source("rows", replicas=replicas, batch_rows=batch_rows)
    return plan.with_replicas(CLOCK, replicas).with_replicas("counted", replicas)


def agrees(cluster: Cluster) -> bool:
    expected = run_sequential(cluster.flow)
    return all(cluster.rows(sink) == expected.rows(sink) for sink in ("out", "late"))


@pytest.fixture(scope="module")
def finished() -> Cluster:
    return Cluster(timed_flow(), side_by_side(timed_flow()), REPLICAS).settle()


def test_no_unit_gets_most_of_the_rows_of_a_timed_source(monkeypatch: pytest.MonkeyPatch):
    rows: Counter[UnitId] = Counter()
    send = Host._send

    def counting(self: Host, epoch: int, message: Any) -> None:
        if isinstance(message, Delivery) and message.jumbo is not None:
            producer, consumer = message.link.producer, message.link.consumer
            for unit in (producer, consumer):
                if (unit == producer) == (unit.region == "rows"):
                    rows[unit] += len(message.jumbo)
        send(self, epoch, message)

    monkeypatch.setattr(Host, "_send", counting)
    flow = timed_flow()
    cluster = Cluster(flow, side_by_side(flow), REPLICAS).settle()
    assert agrees(cluster)
    for region in ("rows", CLOCK, "counted"):
        shares = [rows[UnitId(region, replica)] / ROWS for replica in range(REPLICAS)]
        assert sum(shares) > 0.75  # late rows leave at the clock
        assert max(shares) <= 0.4


def test_rows_stay_on_the_host_of_their_reader(finished: Cluster):
    into_clocks = [m for m in finished.sent(Delivery) if m.link.consumer.region == CLOCK]
    assert not [message for message in into_clocks if message.jumbo is not None]


def test_what_goes_between_replicas_has_no_rows(finished: Cluster):
    sent = finished.sent(ClockMessage)
    assert sent
    entries = [m.content for m in sent if isinstance(m.content, EntryState)]
    steady = [entry for entry in entries if not entry.whole]
    assert len(steady) > len(entries) / 2
    assert all(set(entry.facts) <= {"passed", "joined"} for entry in steady)


def test_every_replica_learns_how_far_the_clock_has_come(finished: Cluster):
    passed = [m for m in finished.sent(ClockMessage) if isinstance(m.content, Passed)]
    ended = {m.link.consumer.replica for m in passed if is_end(m.content.frontier)}
    assert ended == set(range(1, REPLICAS))  # replica 0 is the sequencer's


def test_one_replica_needs_no_messages():
    flow = timed_flow(400)
    cluster = Cluster(flow, side_by_side(flow, 1), 1).settle()
    assert agrees(cluster)
    assert not cluster.sent(ClockMessage)


def test_the_memory_of_a_clock_is_saved_by_one_replica():
    flow = timed_flow(400)
    cluster = Cluster(flow, side_by_side(flow), REPLICAS).steps(300)
    cluster.coordinator.save()
    cluster.settle()
    assert agrees(cluster)
    saved = {unit.replica: state for _, unit, state, _ in cluster.saved if unit.region == CLOCK}
    sizes = [len(saved[replica][CLOCK][0]) for replica in range(REPLICAS)]
    assert sizes[0] > sizes[1] == sizes[2] == sizes[3]


@pytest.mark.parametrize("counts", [(1, 4), (4, 1), (1, 3, 1), (2, 4, 3)])
@pytest.mark.parametrize("steps", [30, 90, 150])
def test_what_a_clock_holds_and_what_waits_for_it_move_with_its_replicas(
    counts: tuple[int, ...], steps: int
):
    flow = timed_flow(400)
    first, *others = (side_by_side(flow, count, batch_rows=10) for count in counts)
    cluster = Cluster(flow, first.with_source("rows", in_flight_limit=1), 3)
    for plan in others:
        cluster.steps(steps)
        cluster.coordinator.request(plan.with_source("rows", in_flight_limit=1))
    assert agrees(cluster.settle())
    assert len(cluster.passages) >= len(others)
