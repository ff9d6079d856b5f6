"""One operator between sources and sinks, run tuple by tuple and in many other ways.

`outcome` gives the sequential run, once it has seen that other batchings, plans, changes and
crashes agree with it: so each hand-computed expectation holds for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa

from anabranch.flow import Flow, Stream
from anabranch.io import collect, memory
from anabranch.operators.base import Operator
from anabranch.testing.compare import difference
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.random_plans import random_plan
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential

RUNS = 6


def flow_of(
    operator: Operator,
    *inputs: Sequence[dict[str, Any]],
    time: str | None = None,
    lateness: int = 0,
    schema: pa.Schema | None = None,
) -> Flow:
    """Sources `in0`, `in1`… into step `step`; every output port ends in a sink of its name."""
    flow = Flow("small", buckets=4)
    streams = [
        flow.source(f"in{number}", memory(rows, schema), time=time, lateness=lateness)
        for number, rows in enumerate(inputs)
    ]
    made: Stream = streams[0].apply("step", operator, *streams[1:])
    for port in operator.out_ports:
        made.out(port).sink(port, collect())
    return flow


def outcome(operator: Operator, *inputs: Sequence[dict[str, Any]], **properties: Any) -> RunResult:
    """The sequential run of one operator, with which all others agree."""
    return agreed(flow_of(operator, *inputs, **properties))


def agreed(flow: Flow) -> RunResult:
    """The sequential run, with which all others agree."""
    expected = run_sequential(flow)
    for seed in range(RUNS):
        rng = Random(seed)
        plan = random_plan(flow, rng)
        changes = [random_plan(flow, rng) for _ in range(seed % 3)]
        got = run_interleaved(flow, plan, seed, changes=changes, crashes=seed % 2, max_batch=5)
        found = difference(flow, expected, got)
        assert found is None, f"seed {seed}\n{found}"
        assert expected.counters == got.counters
    return expected


def values(result: RunResult, column: str, sink: str = "out") -> list[Any]:
    """One column of a sink."""
    return [row[column] for row in result.rows(sink)]
