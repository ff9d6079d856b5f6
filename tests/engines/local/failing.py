"""Runs that are to fail or to be stopped, and what they leave behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.events import Event, RunEnded
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.planning.plan import Plan
from tests.waiting import wait_until

SCHEMA = pa.schema([("x", pa.int64()), ("k", pa.int64())])
NUMBERS = count()


def numbers(rng: Any, index: Any) -> dict[str, Any]:
    return {"x": index, "k": index % 7}


class Doomed:
    """A flow rows → step → first · second → out, endless unless told otherwise."""

    def __init__(
        self,
        step: Callable[[pa.RecordBatch], object] = lambda batch: None,
        *,
        source: Any = None,
        sink: Any = None,
        rows: int | None = None,
        replicas: int = 1,
        listener: Callable[[Event], None] = lambda event: None,
        placed: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        self._name = f"doomed{next(NUMBERS)}"  # a thread left by one test must not fail another
        self.flow = Flow(self._name, buckets=8)
        self.sink = sink or collect()
        stream = self.flow.source("rows", source or generate(numbers, SCHEMA, rows))

        def passing(batch: pa.RecordBatch) -> dict[str, Any]:
            step(batch)
            return {"x": batch[0], "k": batch[1]}

        stream = stream.map("step", passing, out=SCHEMA)
        stream = stream.deduplicate("first", key="x").map("second", lambda b: {}, keeps="*")
        stream.sink("out", self.sink)
        self.plan = Plan.sequential(self.flow).with_source("rows", batch_rows=10)
        for name, worker in (placed or {}).items():
            self.plan = self.plan.with_workers(name, worker)
        if replicas > 1:
            self.plan = self.wide(replicas)
        self.engine = LocalEngine(self.flow, self.plan, Options(**options))
        self.heard: list[Event] = []
        self._listener = listener

    def start(self) -> Doomed:
        self.engine.start(self._hear)
        return self

    def _hear(self, event: Event) -> None:
        self.heard.append(event)
        self._listener(event)

    @property
    def ends(self) -> list[bool]:
        """What was told of the end."""
        return [event.ended for event in self.heard if isinstance(event, RunEnded)]

    def threads(self) -> list[str]:
        """Threads of the run that are still there."""
        return [t.name for t in threading.enumerate() if t.name.startswith(f"{self._name}-")]

    def assert_gone(self) -> None:
        """Nothing of the run is left; its driver ends right after it has told so."""
        wait_until(lambda: not self.threads())

    def wide(self, replicas: int) -> Plan:
        """A plan with more replicas of everything."""
        return self.plan.with_replicas("step", replicas).with_replicas("first", replicas)

    @property
    def rows(self) -> list[int]:
        """What is visible."""
        return self.sink.table()["x"].to_pylist()
