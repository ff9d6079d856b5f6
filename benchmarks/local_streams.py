"""Streams for the benchmarks of the local engine: endless sources, sinks that drop, word counts.

Processor time and memory are those of this process and its workers together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import anabranch as ab
from anabranch.apps.word_count import split
from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.events import Event
from anabranch.flow import Flow
from anabranch.io.sink import Guarantee, Traits
from anabranch.io.source import Chunk, Extent, Source
from anabranch.io.staged import StagedSink
from anabranch.planning.plan import Plan
from papers.processor_time import processes_below

WORDS_A_LINE = 10


class Endless(Source):
    """The rows of a batch again and again, at a set rate or as fast as they are read."""

    bounded, order = False, "index"

    def __init__(self, batch: pa.RecordBatch, rate_per_s: float | None = None) -> None:
        self._batch, self._rate = batch, rate_per_s

    @property
    def schema(self) -> pa.Schema:
        return self._batch.schema

    def parts(self) -> tuple[str, ...]:
        return ("endless",)

    def read(self, part: str, start: int, rows: int) -> Chunk:
        return Chunk(self._batch.slice(start % self._batch.num_rows, rows))

    def due_rows(self, elapsed_s: float) -> int | None:
        return None if self._rate is None else int(self._rate * elapsed_s)

    def extent(self, part: str) -> Extent:
        return Extent(None, seekable=True)


class Drop(StagedSink):
    """A sink that counts rows, and sleeps over each of them if told to."""

    traits = Traits(Guarantee.AT_LEAST_ONCE)

    def __init__(self, sleep_s_a_row: float = 0.0) -> None:
        self.rows, self._sleep_s = 0, sleep_s_a_row

    def begin(self, schema: pa.Schema, version: int) -> None:
        self.rows = 0

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        for batch in rows:
            self.rows += batch.num_rows
            if self._sleep_s:
                time.sleep(self._sleep_s * batch.num_rows)


def zipf_words(words: int, distinct: int, seed: int = 0) -> pa.Array:
    """Words whose frequencies follow Zipf's law."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1.0 / np.arange(1, distinct + 1))
    ranks = np.searchsorted(shares / shares[-1], rng.random(words)).astype(np.int32)
    return pa.array([f"w{rank}" for rank in range(distinct)]).take(pa.array(ranks))


def zipf_lines(lines: int, distinct: int = 10_000) -> pa.RecordBatch:
    """Lines of ten such words."""
    words = zipf_words(lines * WORDS_A_LINE, distinct)
    offsets = pa.array(np.arange(0, len(words) + 1, WORDS_A_LINE, dtype=np.int32))
    return pa.record_batch({"line": pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")})


def word_count(source: Any, sink: Any) -> Flow:
    """Count words, telling changes."""
    flow = Flow("word-count")
    (
        flow.source("lines", source)
        .apply("split", split)
        .aggregate("count", key="word", n=ab.count(), emit="changes")
        .sink("out", sink)
    )
    return flow


def word_count_plan(flow: Flow, batch_rows: int) -> Plan:
    """Two replicas split and combine; the other regions have little to do."""
    plan = Plan.sequential(flow).with_replicas("split", 2)
    return plan.with_source("lines", batch_rows=batch_rows)


def start(
    flow: Flow,
    plan: Plan,
    *,
    rows: int | None = None,
    profile: bool = True,
    listener: Callable[[Event], None] = lambda event: None,
) -> LocalEngine:
    """A run that has begun, which reads so many rows at most."""
    engine = LocalEngine(flow, plan, Options(rows=rows), profile=profile)
    engine.start(listener)
    return engine


def processor_s() -> float:
    """Processor seconds so far; workers stay from one run to the next, so that none are lost."""
    clocks = map(_processor_clock, processes_below(os.getpid()))
    return time.process_time() + sum(map(time.clock_gettime, clocks))


def _processor_clock(pid: int) -> int:
    """What clock_getcpuclockid(3) returns for another process."""
    return (~pid << 3) | 2


def memory_mb() -> float:
    """Memory in use now; of pages that several processes share, each counts a part."""
    pids = [os.getpid(), *processes_below(os.getpid())]
    return sum(_proportional_kb(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids) / 1e3


def _proportional_kb(sizes: Path) -> int:
    line = next(each for each in sizes.read_text().splitlines() if each.startswith("Pss:"))
    return int(line.split()[1])
