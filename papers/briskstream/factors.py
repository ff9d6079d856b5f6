"""BriskStream, figure 16: what each design choice is worth, on our own local engine.

The paper begins with Storm, makes the code path short, then sends tuples as jumbo tuples, then
plans by RLAS. Here the same word count begins as the most literal streaming program (a call for
every tuple, a crossing from one worker process to another for every line), and gets one thing after
the other: operators that work on columns, jumbo tuples of growing size, operators fused in one
process, replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.word_count import split
from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.flow import Flow
from anabranch.io.memory_source import memory
from anabranch.io.sink import Guarantee, Traits
from anabranch.io.staged import StagedSink
from anabranch.operators.aggregates.functions import count
from anabranch.operators.row_wise.map_filter_expand import filter as keep
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.operators.tuple_style.tuples import partitioned, stateless
from anabranch.planning.plan import Plan
from papers.briskstream.samples import SENTENCE_WORDS, sentences

ONE = Schedule.exactly(1)
CORES = 2
"""Replicas of the last factor: the machine that this was written for has two cores."""


@stateless(out="line: string")
def parse_one(ctx: Invocation) -> None:
    """Drop a line that is missing; one call a line."""
    for one in ctx.tuples():
        if one.line is not None:
            ctx.emit(line=one.line)


@stateless(out="word: string")
def split_one(ctx: Invocation) -> None:
    """One call a line."""
    for one in ctx.tuples():
        for word in one.line.split(" "):
            ctx.emit(word=word)


@partitioned(key="word", out="word: string, n: int64", schedule=ONE)
def count_one(ctx: Invocation) -> None:
    """One call a word."""
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


@keep()
def parse(batch: pa.RecordBatch) -> pa.Array:
    """Drop lines that are missing."""
    return pc.is_valid(batch["line"])


class Counting(StagedSink):
    """A sink that counts, as the paper's does."""

    traits = Traits(Guarantee.AT_LEAST_ONCE)

    def __init__(self) -> None:
        self.rows = 0

    def begin(self, schema: pa.Schema, version: int) -> None:
        self.rows = 0

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        self.rows += sum(batch.num_rows for batch in rows)


@dataclass(frozen=True)
class Factor:
    """A way to run the word count; each one changes one thing of the one before.

    Attributes:
        name: What is new.
        jumbo_rows: Lines in a jumbo tuple.
        columns: Whether operators work on columns, else they are called for each tuple.
        fused: Whether parser and splitter share a worker process.
        replicas: Of parser and splitter, which do most of the work.
    """

    name: str
    jumbo_rows: int
    columns: bool = True
    fused: bool = False
    replicas: int = 1


@dataclass(frozen=True)
class FactorRate:
    """What a factor came to: words counted per second, the median of some runs."""

    factor: Factor
    words_per_s: float


def factors(sizes: Sequence[int] = (16, 256, 4096, 16_384)) -> list[Factor]:
    """From the most literal way to the best, in the order of figure 16.

    Example:
        >>> [factor.name for factor in factors((16, 256))]
        ['one tuple a call', 'columns', 'jumbo 16', 'jumbo 256', 'fused', 'replicated']
    """
    return [
        Factor("one tuple a call", 1, columns=False),
        Factor("columns", 1),
        *(Factor(f"jumbo {size}", size) for size in sizes),
        Factor("fused", sizes[-1], fused=True),
        Factor("replicated", sizes[-1], fused=True, replicas=CORES),
    ]


def measure_factors(ways: Sequence[Factor], seconds: float, repeats: int) -> list[FactorRate]:
    """Each way, measured in turns, so that a slow spell of the machine meets all of them."""
    texts = sentences(1000)
    run_factor(ways[0], pa.record_batch({"line": list(texts[:1])}))  # starts worker processes
    lines = [_lines_for(way, texts, seconds) for way in ways]
    rates: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats):
        for number, way in enumerate(ways):
            rates[number].append(run_factor(way, lines[number]))
    return [FactorRate(way, median(each)) for way, each in zip(ways, rates, strict=True)]


def _lines_for(way: Factor, texts: Sequence[str], seconds: float) -> pa.RecordBatch:
    """So many lines that they take about so long, found by doubling."""
    copies, lines = 1, pa.record_batch({"line": list(texts[:100])})
    while lines.num_rows * SENTENCE_WORDS / run_factor(way, lines) < seconds / 2:
        lines = pa.record_batch({"line": list(texts) * copies})
        copies *= 2
    return lines


def run_factor(way: Factor, lines: pa.RecordBatch) -> float:
    """Words per second of one run."""
    sink = Counting()
    flow = Flow("word-count")
    parsed = flow.source("lines", memory(lines)).apply("parse", parse if way.columns else parse_one)
    if way.columns:
        counts = parsed.apply("split", split).aggregate("count", key="word", n=count())
    else:
        counts = parsed.apply("split", split_one).apply("count", count_one)
    counts.sink("out", sink)
    engine = LocalEngine(flow, plan_for(way, flow), Options())
    engine.start(lambda event: None)
    engine.wait()
    return sink.rows / engine.seconds


def plan_for(way: Factor, flow: Flow) -> Plan:
    """The plan of a way; `parse` names the region of parser and splitter."""
    plan = Plan.sequential(flow).with_source("lines", batch_rows=way.jumbo_rows)
    if not way.fused:
        plan = plan.with_pipelines("parse", 1, 1)
    return plan.with_replicas("parse", way.replicas)
