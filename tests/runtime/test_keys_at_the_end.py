"""How many keys a step holds is told of the end, too, although the end makes it forget them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.events import Observed
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.regions import regions
from anabranch.runtime.channel import Channel
from anabranch.state.positions import Jumbo, Positions, end

ROWS = [{"k": number % 7, "v": number} for number in range(100)]


@ab.partitioned(key="k", out="k: int64, total: int64")
def total(ctx: Any) -> None:
    for each in ctx.tuples():
        ctx.state["total"] = ctx.state.get("total", 0) + each.v
        ctx.emit(total=ctx.state["total"])


STEPS = {
    "tuples": (lambda rows: rows.apply("by", total), 7),
    "final": (
        lambda rows: rows.aggregate("by", key="k", n=ab.count(), emit="final", combine=False),
        7,
    ),
    "every": (lambda rows: rows.aggregate("by", key="k", n=ab.count(), emit="every"), 7),
    # Keeps rows, and drops those that cannot win once they are many.
    "top": (lambda rows: rows.top_n("by", n=1, by="v", key="k"), 100),
}


def flow_of(kind: str) -> Flow:
    flow = Flow("keys", buckets=16)
    rows = flow.source("s", ab.memory(ROWS))
    STEPS[kind][0](rows).sink("out", ab.collect())
    return flow


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("batch_rows", [10, 1000])
def test_the_last_observation_tells_keys_as_they_were_before_the_end(
    kind: str, replicas: int, batch_rows: int
) -> None:
    flow = flow_of(kind)
    seen = []
    plan = Plan.sequential(flow).with_source("s", batch_rows=batch_rows)
    ab.run(flow, engine="local", plan=plan.with_replicas("by", replicas), listener=seen.append)
    last = [event.observation for event in seen if isinstance(event, Observed)][-1]
    assert last.step("by").keys == STEPS[kind][1]


@pytest.mark.parametrize("kind", STEPS)
def test_rows_that_come_together_with_the_end_are_counted_and_the_end_may_be_told_again(
    kind: str,
) -> None:
    """As on Spark, where one batch may be all there is."""
    flow = flow_of(kind)
    (region,) = (each for each in regions(flow) if each.name == "by")
    plan = Plan.sequential(flow).region("by")
    channel = Channel(flow, flow.contexts(), region, plan, replica=0)
    rows = pa.RecordBatch.from_pylist(ROWS)
    jumbo = Jumbo(rows, Positions.of_source(0, np.arange(len(ROWS))))
    channel.run(0, [jumbo], end(0))
    assert channel.keys()["by"] == STEPS[kind][1]
    channel.run(0, [None], end(0))
    assert channel.keys()["by"] == STEPS[kind][1]
