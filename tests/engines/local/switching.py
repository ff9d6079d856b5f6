"""A flow with regions of every kind behind clocks, run while its plan changes all the time."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.errors import AnabranchError
from anabranch.events import Event, Reconfiguration
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect, memory
from anabranch.operators.keyed.shared import shared
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.tuples import partitioned, stateful
from anabranch.planning.plan import Plan
from anabranch.testing.compare import difference
from anabranch.testing.random_plans import random_plan
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential
from tests.engines.local.recorded import Recorder, violations

COLUMNS = "k: int64, v: int64"
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
BIG = 1_000_003
BATCH_ROWS = 5
DEADLINE_S = 30.0
POLL_S = 0.05


@shared(out=COLUMNS, buckets=8)
def weighed(batch: pa.RecordBatch, bucket: Any) -> Any:
    """Every bucket sees every tuple, and answers those that are its own by a running sum."""
    total, keys, values, parents = bucket.state.get("total", 0), [], [], []
    for row, (k, v) in enumerate(zip(*(batch[c].to_pylist() for c in ("k", "v")), strict=True)):
        total = (total * 31 + v) % BIG
        if v % bucket.count == bucket.index:
            keys.append(k)
            values.append(total)
            parents.append(row)
    bucket.state["total"] = total
    if bucket.index % 3 == 1:
        time.sleep(0)  # let another thread come first
    return {"k": keys, "v": values}, parents


@partitioned(key="k", out=COLUMNS)
def chained(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["hash"] = (ctx.state.get("hash", 7) * 31 + row.v) % BIG
        ctx.emit(k=row.k, v=ctx.state["hash"])


@partitioned(key="k", out=COLUMNS)
def counted(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(k=row.k, v=(row.v + ctx.state["n"]) % BIG)


@stateful(out=COLUMNS)
def numbered(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(k=row.k, v=(row.v * ctx.state["n"]) % BIG)


def switching_flow(rows: int, seed: int) -> Flow:
    """Two sources with several tuples a timestamp; regions of all kinds behind their clocks."""
    rng = Random(seed)
    flow = Flow("switching", buckets=16)
    streams = []
    for name in ("left", "right"):
        drawn = [
            {
                "ts": i // 6 - rng.choice((0, 0, 0, 1)),
                "k": rng.randrange(12),
                "v": rng.randrange(99),
            }
            for i in range(rows)
        ]
        streams.append(flow.source(name, memory(drawn, SCHEMA), time="ts", lateness=2))
    merged = streams[0].union("merged", streams[1])
    scaled = merged.map("scaled", lambda b: {}, keeps=["k", "v"])
    scaled.apply("numbered", numbered).sink("numbers", collect())
    weights = scaled.apply("weighed", weighed)
    chain = weights.apply("chained", chained).apply("counted", counted)
    chain.sink("chain", collect())
    return flow


class Throttled:
    """A source that does not run away from the changes of plan: there are enough of them."""

    def __init__(self, source: Any, ready: Any) -> None:
        self._source, self._ready = source, ready

    def __copy__(self) -> Throttled:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def read(self, part: str, start: int, rows: int) -> Any:
        self._ready(start)
        return self._source.read(part, start, rows)


class Switching:
    """One run with so many changes of plan; what broke it, by property.

    Args:
        patch: Undoes what the recorder does to the engine.
        seed: Draws data and plans.
        changes: How many plans are applied, each as soon as the one before is in force.
        rows: Of each source.
    """

    def __init__(self, patch: pytest.MonkeyPatch, seed: int, changes: int, rows: int = 600) -> None:
        self.flow = switching_flow(rows, seed)
        self.recorder = Recorder(patch)
        self._rng, self._rows, self._changes = Random(seed), rows, changes
        self._applied = 0
        self._news = threading.Condition()
        self._over = False
        self.plans: list[Plan] = []
        self.plans.append(self._plan())

    def run(self) -> list[str]:
        """All that was wrong with the run: results, errors, and P1 to P6."""
        expected = run_sequential(self.flow)
        sinks = {name: collect() for name in self.flow.names(Role.SINK)}
        sources = {
            name: Throttled(self.flow.graph.steps[name].body.source, self._wait_for_changes)
            for name in self.flow.names(Role.SOURCE)
        }
        flow = self.flow.reading(sources).writing(sinks)
        self.engine = LocalEngine(flow, self.plans[0], Options())
        self.engine.start(self._hear)
        self._wish()
        wrong = self._end()
        applied = [self.plans[0], *(Plan.from_json(c.after) for c in self._told())]
        wrong += violations(self.recorder.stories, applied)
        got = RunResult({n: s.table() for n, s in sinks.items()}, expected.counters)
        found = difference(self.flow, expected, got)
        return wrong if found is None else [*wrong, f"results: {found}"]

    def _told(self) -> list[Reconfiguration]:
        return self.engine.reconfigurations()

    def _end(self) -> list[str]:
        try:
            if self.engine.wait(DEADLINE_S):
                return []
            self._let_go()
            self.engine.stop()
            return ["error: the run did not end by itself"]
        except Exception as error:
            name = "error" if isinstance(error, AnabranchError) else "crash"
            return [f"{name}: {error!r}"]
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self._news:
            self._over = True
            self._news.notify_all()

    def _hear(self, event: Event) -> None:
        if isinstance(event, Reconfiguration):
            with self._news:
                self._applied += 1
                self._news.notify_all()
            self._wish()

    def _wish(self) -> None:
        """The next plan, as soon as the one before is in force."""
        if self._applied < self._changes:
            plan = self._plan()
            while plan == self.plans[-1]:  # nothing would be told of it
                plan = self._plan()
            self.plans.append(plan)
            self.engine.reconfigure(plan)

    def _plan(self) -> Plan:
        return self._small(random_plan(self.flow, self._rng))

    def _small(self, plan: Plan) -> Plan:
        for source in plan.sources:
            plan = plan.with_source(source.source, batch_rows=BATCH_ROWS)
        return plan

    def _wait_for_changes(self, row: int) -> None:
        """Rows are spread over the changes, with some slack, so that these meet tuples."""
        due = self._changes * row // self._rows - 3
        with self._news:
            while not (self._over or self.engine._error or self._applied >= due):
                self._news.wait(POLL_S)  # nobody tells of an error before all threads have ended
