from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import StateError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.keyed.shared import shared
from anabranch.operators.tuple_style.tuples import partitioned, stateful
from anabranch.planning.plan import Plan
from anabranch.planning.regions import regions
from anabranch.runtime.channel import Channel, owned_buckets
from anabranch.runtime.routing import Router
from anabranch.state.positions import Jumbo, Positions, Root

ROWS = [{"k": i % 7, "v": i} for i in range(21)]
BUCKETS = 8


def hand_over(old: Sequence[Channel], new: Sequence[Channel]) -> None:
    """Move every bucket from the channel that held it to the one that will, by reference."""
    for giver in old:
        for taker in new:
            common = set(giver.buckets) & set(taker.buckets)
            if common:
                taker.absorb(giver.release(sorted(common)))


@partitioned(key="k", out="k: int64, n: int64")
def counted(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


@stateful(out="n: int64")
def numbered(ctx):
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


@shared(out="bucket: int64", buckets=3)
def seen(batch, bucket):
    return {"bucket": [bucket.index] * batch.num_rows}, list(range(batch.num_rows))


def flow_of(operator) -> Flow:
    flow = Flow("f", buckets=BUCKETS)
    stream = flow.source("s", memory(ROWS)).filter("all", lambda b: [True] * b.num_rows)
    stream.apply("step", operator).sink("out", collect())
    return flow


def jumbo(rows: list[dict], start: int = 0) -> Jumbo:
    batch = pa.RecordBatch.from_pylist(rows)
    return Jumbo(batch, Positions.of_source(0, np.arange(start, start + len(rows))))


class Replicas:
    """The replicas of region `step` under a plan, driven by hand."""

    def __init__(self, flow: Flow, plan: Plan) -> None:
        self.region = next(r for r in regions(flow) if r.name == "step")
        self.plan = plan.region("step")
        contexts = flow.contexts()
        self.channels = [
            Channel(flow, contexts, self.region, self.plan, replica)
            for replica in range(self.plan.replicas)
        ]

    def run(self, rows: list[dict], start: int = 0) -> list[dict]:
        frontier = Root(start + len(rows), 0, start + len(rows), 0)
        shares = Router(self.region, self.plan).route(jumbo(rows, start), turn=0)
        made = []
        for channel, current in zip(self.channels, shares, strict=True):
            inputs = [current]
            for pipeline in range(len(self.plan.pipelines)):
                outputs, reached = channel.run(pipeline, inputs, frontier)
                inputs = outputs[:1]
                assert reached == [frontier]
            made += [] if outputs[0] is None else outputs[0].batch.to_pylist()
        return made


def counts_after(*parts: list[dict]) -> list[int]:
    seen_before: dict[int, int] = {}
    for rows in parts:
        made = []
        for row in rows:
            seen_before[row["k"]] = seen_before.get(row["k"], 0) + 1
            made.append(seen_before[row["k"]])
    return sorted(made)


def test_fused_and_cut_pipelines_give_the_same():
    flow = flow_of(counted)
    plan = Plan.sequential(flow)
    fused, cut = Replicas(flow, plan), Replicas(flow, plan.with_pipelines("step", 1, 1))
    assert fused.run(ROWS) == cut.run(ROWS)


def test_each_replica_owns_the_buckets_of_its_map():
    flow = flow_of(counted)
    plan = Plan.sequential(flow).with_bucket_map("step", (0,) * BUCKETS).with_replicas("step", 2)
    held = [set(channel.buckets) for channel in Replicas(flow, plan).channels]
    assert (held[0] & held[1], held[0] | held[1]) == (set(), set(range(BUCKETS)))


def test_global_state_is_bucket_zero():
    flow = flow_of(numbered)
    region = next(r for r in regions(flow) if r.name == "step")
    assert owned_buckets(region, Plan.sequential(flow).region("step"), 0) == (0,)


def test_shared_kernels_run_the_buckets_of_their_replica():
    flow = flow_of(seen)
    plan = Plan.sequential(flow).with_replicas("step", 2).with_bucket_map("step", (1, 0, 1))
    replicas = Replicas(flow, plan)
    made = [channel.run(0, [jumbo(ROWS[:1])], Root(1, 0, 1, 0))[0] for channel in replicas.channels]
    assert [out[0].batch.column("bucket").to_pylist() for out in made] == [[1], [0, 2]]


def test_state_follows_its_buckets_when_replicas_come_and_go():
    flow = flow_of(counted)
    plan = Plan.sequential(flow)
    replicas, made = Replicas(flow, plan), []
    for number, count in enumerate((3, 2, 4)):
        replicas.run(ROWS, number * len(ROWS))
        following = Replicas(flow, plan.with_replicas("step", count))
        hand_over(replicas.channels, following.channels)
        replicas = following
    made = replicas.run(ROWS, 3 * len(ROWS))
    assert sorted(row["n"] for row in made) == counts_after(ROWS, ROWS, ROWS, ROWS)


def test_global_state_is_handed_over():
    flow = flow_of(numbered)
    old, new = (Replicas(flow, Plan.sequential(flow)) for _ in range(2))
    old.run(ROWS)
    hand_over(old.channels, new.channels)
    assert new.run(ROWS[:1], len(ROWS)) == [{"n": len(ROWS) + 1}]


def test_what_was_handed_over_is_gone_here():
    flow = flow_of(counted)
    old, new = (Replicas(flow, Plan.sequential(flow)) for _ in range(2))
    old.run(ROWS)
    hand_over(old.channels, new.channels)
    assert sorted(r["n"] for r in old.run(ROWS, len(ROWS))) == counts_after(ROWS)


def test_snapshots_of_all_replicas_restore_any_other_number_of_them():
    flow = flow_of(counted)
    plan = Plan.sequential(flow)
    old, new = (Replicas(flow, plan.with_replicas("step", n)) for n in (3, 2))
    old.run(ROWS)
    for channel in new.channels:
        for each in old.channels:
            channel.restore(each.snapshot())
    made = new.run(ROWS, len(ROWS))
    assert sorted(row["n"] for row in made) == counts_after(ROWS, ROWS)


def test_changes_of_all_replicas_bring_any_other_number_of_them_up_to_date():
    flow = flow_of(counted)
    plan = Plan.sequential(flow)
    old, new = (Replicas(flow, plan.with_replicas("step", n)) for n in (3, 2))
    old.run(ROWS)
    snapshots = [channel.snapshot() for channel in old.channels]
    written = []
    for channel in old.channels:
        channel.track()
    for number in (1, 2):
        old.run(ROWS[:5], number * len(ROWS))
        written += [channel.changes() for channel in old.channels]
        for channel in old.channels:
            channel.saved()
    for channel in new.channels:
        for snapshot in snapshots:
            channel.restore(snapshot)
        for changes in written:
            channel.replay(changes)
        channel.track()
        assert channel.changes() == {"all": [], "step": [None]}
    made = new.run(ROWS, 3 * len(ROWS))
    assert sorted(row["n"] for row in made) == counts_after(ROWS, ROWS[:5], ROWS[:5], ROWS)


@partitioned(key="k", out="k: int64, n: int64")
def hoarding(ctx):
    for _ in ctx.tuples():
        ctx.state["function"] = lambda: None


@pytest.mark.parametrize("way", ["snapshot", "changes"])
def test_state_that_cannot_be_written_is_blamed_on_its_step(way):
    flow = flow_of(hoarding)
    replicas = Replicas(flow, Plan.sequential(flow))
    (channel,) = replicas.channels
    channel.track()
    replicas.run(ROWS)
    with pytest.raises(StateError, match=r"step.*local functions"):
        getattr(channel, way)()


def test_a_tap_sees_every_step_with_what_went_in_and_came_out():
    flow = flow_of(counted)
    seen_steps = []
    channel = Replicas(flow, Plan.sequential(flow)).channels[0]
    channel.run(
        0,
        [jumbo(ROWS[:2])],
        Root(2, 0, 2, 0),
        lambda step, inputs, outputs: seen_steps.append((step, len(inputs[0]), len(outputs[0]))),
    )
    assert seen_steps == [("all", 2, 2), ("step", 2, 2)]


def test_every_channel_counts_for_itself():
    flow = flow_of(counted)
    channels = Replicas(flow, Plan.sequential(flow).with_replicas("step", 2)).channels
    counters = [channel.kernels["step"].context.counters for channel in channels]
    assert counters[0] is not counters[1]
