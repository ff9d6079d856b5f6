"""Micro-benchmarks: graphs of operators that multiply, parse or wait, in the papers' shapes.

Joker's (§5.1, 5.5) have operators that multiply for every tuple, most of them counting by a key:
`single-region` (figures 4 to 6), `two-regions` (7c, 7d and 9), `tree` (7a), `reverse-tree` (7b),
`selectivity` (10) and `joker-chain` (21). The stepwise profiling paper's (§6.1.1, figure 9) have
operators that compute, parse JSON or wait for a service: `linear`, `diamond` and `star`.

Deviations: a hash decides what is passed on, where both papers draw a random number. The stepwise
paper computes by drawing 10,000 random numbers for a tuple; here it is 10,000 multiplications. Of
Joker's chain the text gives one operator; the others are those with which we reproduce its figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import (
    Usual,
    a_count,
    a_number,
    or_usual,
    require,
    unless,
)
from anabranch.apps.kit.columns import required
from anabranch.apps.kit.inputs import Input, paths_of, read_rows
from anabranch.apps.kit.summary import AppSummary
from anabranch.apps.micro.operators import (
    VALUE,
    CountAll,
    count_and_multiply,
    multiply,
    parse,
    wait,
)
from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.flow import Flow, Stream
from anabranch.io import collect, generate

SHAPE = "single-region"
WAIT_MS = 5.0
KEYS = ("key1", "key2", "key3")


NUMBERS = required(**{name: pa.int64() for name in (*KEYS, "value")})
PAYLOADS = required(payload=pa.string(), value=pa.int64())


@dataclass(frozen=True)
class OperatorWork:
    """What the operators of a shape do.

    Attributes:
        operators: How many there are in a line of them.
        multiplications: How many each does for a tuple.
        selectivity: What the selectivity of each is multiplied with.
        costlier: How many times as much the first of two regions does.
        wait_ms: How long a waiting one waits for a tuple.
    """

    operators: int = 1
    multiplications: int = 256
    selectivity: float = 1.0
    costlier: int = 1
    wait_ms: float = WAIT_MS

    def multiply(
        self, at: Stream, name: str, times: int | None = None, passes: float = 1
    ) -> Stream:
        """A stateless operator that multiplies."""
        cost = self.multiplications if times is None else times
        return at.apply(name, multiply(cost, passes * self.selectivity, salt(name)))

    def count(
        self, at: Stream, name: str, key: str, times: int | None = None, passes: float = 1
    ) -> Stream:
        """One that counts the tuples of each key, too."""
        cost = self.multiplications if times is None else times
        made = count_and_multiply(key, cost, passes * self.selectivity, salt(name))
        return at.apply(name, made)

    def region(self, at: Stream, name: str, key: str) -> Stream:
        """Operators in a row, of which the first counts."""
        at = self.count(at, f"{name}1", key)
        for number in range(2, self.operators + 1):
            at = self.multiply(at, f"{name}{number}")
        return at

    def parse(self, at: Stream, name: str) -> Stream:
        """An operator that parses; where the selectivity is not 1, another step passes on."""
        return self._passed(at.apply(name, parse()), name)

    def wait(self, at: Stream, name: str) -> Stream:
        """An operator that waits."""
        return self._passed(at.apply(name, wait(self.wait_ms, VALUE)), name)

    def _passed(self, at: Stream, name: str) -> Stream:
        return at if self.selectivity == 1 else self.multiply(at, f"{name}.pass", 0)


def salt(name: str) -> int:
    """What makes an operator's choice of tuples its own."""
    return crc32(name.encode())


# --- shapes: from the streams of the sources to those of the sinks -----------------------------

Streams = Mapping[str, Stream]


def single_region(given: Streams, work: OperatorWork) -> Streams:
    """One region with partitioned state, of four operators."""
    return {"out": work.region(given["source"], "m", "key1")}


def two_regions(given: Streams, work: OperatorWork) -> Streams:
    """Two regions with different keys, of one operator each."""
    costly = replace(work, multiplications=work.multiplications * work.costlier)
    return {"out": work.region(costly.region(given["source"], "a", "key1"), "b", "key2")}


def tree(given: Streams, work: OperatorWork) -> Streams:
    """A region that hands every tuple to two others."""
    root = work.count(given["source"], "a", "key1")
    return {"out": work.count(root, "b", "key2"), "c.out": work.count(root, "c", "key3")}


def reverse_tree(given: Streams, work: OperatorWork) -> Streams:
    """Two regions, each with its source, whose tuples meet in a third."""
    left, right = work.count(given["left"], "a", "key1"), work.count(given["right"], "b", "key2")
    return {"out": work.count(left.union("both", right), "c", "key3")}


def selectivity(given: Streams, work: OperatorWork) -> Streams:
    """Four operators of equal work per tuple of the source: others in between make it so."""
    at = work.count(given["source"], "m1", "key1", 1024)
    for number, (passes, times) in enumerate([(4, 256), (0.25, 1024), (0.5, 2048)], start=1):
        at = work.multiply(work.multiply(at, f"s{number}", 0, passes), f"m{number + 1}", times)
    return {"out": at}


def joker_chain(given: Streams, work: OperatorWork) -> Streams:
    """Seven operators in three regions, the middle one with one state for all."""
    passes = 0.9
    at = work.count(given["source"], "mult1", "key1", 400, passes)
    at = work.multiply(at, "mult2", 240, passes)
    at = work.multiply(at, "mult3", 20, passes)
    at = at.apply("mult4", CountAll(200, passes * work.selectivity, salt("mult4")))
    at = work.count(at, "mult5", "key2", 1600, passes)
    at = work.multiply(at, "mult6", 800, passes)
    return {"out": work.multiply(at, "mult7", 400, passes)}


def linear(given: Streams, work: OperatorWork) -> Streams:
    """A line of operators that compute."""
    at = given["op1"]
    for number in range(2, work.operators + 2):
        at = work.multiply(at, f"op{number}")
    return {"out": at}


def diamond(given: Streams, work: OperatorWork) -> Streams:
    """One source for four operators of all kinds, and one behind them that takes all in."""
    at = given["op1"]
    computing = work.multiply(at, "op2")
    others = work.parse(at, "op3"), work.wait(at, "op4"), work.wait(at, "op5")
    return {"out": computing.union("op6", *others)}


def star(given: Streams, work: OperatorWork) -> Streams:
    """Two sources, one operator for both, and two behind it; all parse."""
    centre = work.parse(given["op1"].union("both", given["op2"]), "op3")
    return {"out": work.parse(centre, "op4"), "op5.out": work.parse(centre, "op5")}


@dataclass(frozen=True)
class GraphShape:
    """A graph, with what the paper has it do, and how much of it there usually is."""

    wire: Callable[[Streams, OperatorWork], Streams]
    rows: int
    work: OperatorWork = OperatorWork()
    sources: tuple[str, ...] = ("source",)
    columns: pa.Schema = NUMBERS
    rate_per_s: float | None = None


SHAPES = {
    "single-region": GraphShape(single_region, 5_000_000, OperatorWork(operators=4)),
    "two-regions": GraphShape(two_regions, 4_000_000),
    "tree": GraphShape(tree, 3_000_000),
    "reverse-tree": GraphShape(reverse_tree, 2_000_000, sources=("left", "right")),
    "selectivity": GraphShape(selectivity, 3_000_000),
    "joker-chain": GraphShape(joker_chain, 3_000_000),
    "linear": GraphShape(linear, 800_000, OperatorWork(3, 10_000), ("op1",), PAYLOADS),
    "diamond": GraphShape(diamond, 2_000, OperatorWork(1, 10_000), ("op1",), PAYLOADS, 300.0),
    "star": GraphShape(star, 200_000, OperatorWork(), ("op1", "op2"), PAYLOADS),
}


def variant(shape: str) -> Callable[[Streams, OperatorWork], Streams]:
    """The function that wires a shape.

    Example:
        >>> variant("tree").__doc__
        'A region that hands every tuple to two others.'
    """
    return SHAPES[shape].wire


def usual(shape: str = SHAPE) -> dict[str, Any]:
    """What a shape has unless something else is asked for, by the argument of `build`.

    Example:
        >>> usual("diamond")["rate_per_s"]
        300.0
    """
    chosen = SHAPES[shape]
    return {
        "rows": chosen.rows,
        "operators": chosen.work.operators,
        "multiplications": chosen.work.multiplications,
        "rate_per_s": chosen.rate_per_s,
    }


def build(
    *,
    shape: str = SHAPE,
    input: Input | None = None,
    rows: int | Usual | None = Usual.USUAL,
    operators: int | Usual = Usual.USUAL,
    multiplications: int | Usual = Usual.USUAL,
    selectivity: float = 1.0,
    costlier: int = 1,
    wait_ms: float = WAIT_MS,
    rate_per_s: float | Usual | None = Usual.USUAL,
    keys: int = 1_000,
    payload_bytes: int = 500,
    seed: int = 0,
) -> Flow:
    """A micro-benchmark on files or on generated tuples, with as much as its shape usually has.

    Args:
        shape: What the graph looks like.
        input: Files for the source, or for each source by name; with the columns key1, key2, key3
            and value for Joker's shapes, value and payload (JSON with a value) for the others.
        rows: How many tuples each source has; None for endless streams. Usually as many as take
            some seconds on two cores.
        operators: How many a region has (single-region: 4, two-regions: 1), or the line (3).
        multiplications: How many an operator does for a tuple, where the paper varies it.
        selectivity: What the selectivity of every operator is multiplied with.
        costlier: How many times as much the first of two regions does (figure 9: 8).
        wait_ms: How long a waiting operator keeps a tuple, in milliseconds.
        rate_per_s: How many tuples of each source become due in a second; None for all at once,
            which is usual. In the diamond it is 300: a batch of everything would wait for long.
        keys: How many different values each key has.
        payload_bytes: About how long a payload is.
        seed: Decides the generated tuples.

    Example:
        >>> build(shape="diamond")
        Flow 'micro-diamond': op1 → op2 → op3 → op4 → op5 → op6 → out.values → out
    """
    if shape not in SHAPES:
        raise UnknownNameError(
            Subject("argument", "shape"),
            f"one of {list(SHAPES)}",
            repr(shape),
            nearest(shape, SHAPES),
        )
    chosen = SHAPES[shape]
    work = OperatorWork(
        or_usual(operators, chosen.work.operators),
        or_usual(multiplications, chosen.work.multiplications),
        selectivity,
        costlier,
        wait_ms,
    )
    many, due = or_usual(rows, chosen.rows), or_usual(rate_per_s, chosen.rate_per_s)
    require(
        f"micro-{shape}",
        rows=unless(None, a_count(many, 0)),
        operators=a_count(work.operators, 1),
        multiplications=a_count(work.multiplications, 0),
        selectivity=a_number(selectivity, 0),
        costlier=a_count(costlier, 1),
        wait_ms=a_number(wait_ms, 0),
        rate_per_s=unless(None, a_number(due, above=0)),
        keys=a_count(keys, 1),
        payload_bytes=a_count(payload_bytes, 0),
    )
    flow = Flow(f"micro-{shape}")
    data = partial(numbers, keys) if chosen.columns is NUMBERS else partial(tweets, payload_bytes)
    streams: dict[str, Stream] = {}
    for number, name in enumerate(chosen.sources):
        if input is not None:
            files = paths_of(input, name, chosen.sources)
            streams[name] = read_rows(flow, name, files, chosen.columns)
        else:
            own_seed = len(chosen.sources) * seed + number
            source = generate(data, chosen.columns, rows=many, rate_per_s=due, seed=own_seed)
            streams[name] = flow.source(name, source)
    for name, stream in chosen.wire(streams, work).items():
        if "payload" in stream.schema.names:  # nobody wants to read it
            stream = stream.map(f"{name}.values", lambda batch: {}, keeps="value")
        stream.sink(name, collect())
    return flow


class Summary(AppSummary):
    """How many tuples reached each sink, and a number that all of them make up.

    Example:
        >>> print(Summary.of({"out": pa.table({"value": [3, 4]})}))
        out: 2 tuples, all values together 7
    """

    def __init__(self) -> None:
        self._tuples: Counter[str] = Counter()
        self._mixed: dict[str, int] = {}

    def add(self, sink: str, rows: pa.Table) -> None:
        if "value" in rows.schema.names and not sink.endswith(".bad"):
            self._tuples[sink] += rows.num_rows
            mixed = int(np.bitwise_xor.reduce(rows["value"].to_numpy())) if rows.num_rows else 0
            self._mixed[sink] = self._mixed.get(sink, 0) ^ mixed

    def __str__(self) -> str:
        return "\n".join(
            f"{sink}: {self._tuples[sink]:,} tuples, all values together {mixed:,}"
            for sink, mixed in self._mixed.items()
        )


def numbers(keys: int, rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Tuples with keys that come equally often, and any number as their value."""
    drawn = {name: rng.integers(0, keys, len(index)) for name in KEYS}
    return {**drawn, "value": rng.integers(0, 2**63, len(index), dtype=np.int64)}


def tweets(
    payload_bytes: int, rng: np.random.Generator, index: np.ndarray[Any, Any]
) -> dict[str, Any]:
    """Tuples with a number, and with a JSON object that holds another one and much else."""
    values, others = rng.integers(0, 2**63, (2, len(index)), dtype=np.int64)
    texts = pa.array(others).cast(pa.string())
    filler = "lorem ipsum dolor sit amet " * (payload_bytes // 27 + 1)
    user = pa.array(index % 1000).cast(pa.string())
    parts = '{"user": "u', user, '", "text": "', filler[:payload_bytes], '", "value": ', texts, "}"
    return {"value": values, "payload": pc.binary_join_element_wise(*parts, "")}
