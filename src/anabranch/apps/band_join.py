"""Band join: pairs of two streams whose numbers are near each other, within five minutes.

The benchmark of STRETCH (§9.3), of ScaleJoin before it and of the handshake join: R(ts, x, y) and
S(ts, a, b, c, d) belong together where |x - a| ≤ 10 and |y - b| ≤ 10. With numbers from 1 to 10,000
one comparison in about 250,000 finds a pair. No key could route such tuples: the join is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.apps.kit.arguments import a_count, a_duration, a_number, require
from anabranch.apps.kit.inputs import FAR, Input, paths_of, read_rows
from anabranch.apps.kit.summary import AppSummary, Condensed, first
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.joins.conditions import band
from anabranch.operators.joins.scale_join import DEFAULT_BUCKETS

SHOWN = 5
NEAR = 10
LARGEST = 10_000
_MICROSECONDS = 1_000_000

TIME = pa.field("ts", pa.timestamp("us"), nullable=False)
R = pa.schema([TIME, ("x", pa.int32()), ("y", pa.float32())])
S = pa.schema(
    [
        TIME,
        ("a", pa.int32()),
        ("b", pa.float32()),
        ("c", pa.float64()),
        ("d", pa.bool_()),
    ]
)


def build(
    *,
    input: Input | None = None,
    rows: int | None = 50_000,
    rate_per_s: float = 1_000.0,
    window: timedelta = timedelta(minutes=5),
    lateness: timedelta = timedelta(),
    largest: int = LARGEST,
    paced: bool = False,
    buckets: int = DEFAULT_BUCKETS,
    seed: int = 0,
) -> Flow:
    """Join two streams, of files or generated.

    Args:
        input: Files of R, with the columns ts, x and y, and of S, with ts, a, b, c and d, by those
            names: {"r": "r.csv", "s": "s.csv"}.
        rows: How many tuples each generated stream has; None for endless streams.
        rate_per_s: How many tuples of each stream fall into a second of event time.
        window: How far apart in time a pair may be.
        lateness: How far out of order a tuple may come.
        largest: The numbers are drawn from 1 to this.
        paced: Whether tuples become due at that rate, too, instead of all at once.
        buckets: Into how many parts stored tuples are dealt, which bounds the replicas.
        seed: Decides the numbers.

    Example:
        >>> build()
        Flow 'band-join': r → s → r.time → s.time → join → out → r.late → s.late
    """
    require(
        "band-join",
        rate_per_s=a_number(rate_per_s, above=0),
        window=a_duration(window),
        lateness=a_duration(lateness),
        largest=a_count(largest, 1, 2**31 - 2),
        buckets=a_count(buckets, 1),
    )
    flow = Flow("band-join")
    if input is not None:
        left, right = (
            read_rows(flow, name, paths_of(input, name, ["r", "s"]), columns)
            for name, columns in (("r", R), ("s", S))
        )
    else:
        due, times = rate_per_s if paced else None, _times(rate_per_s)
        of_r = generate(r_rows(times, largest), R, rows=rows, rate_per_s=due, seed=2 * seed)
        of_s = generate(s_rows(times, largest), S, rows=rows, rate_per_s=due, seed=2 * seed + 1)
        left, right = flow.source("r", of_r), flow.source("s", of_s)
    left = left.timed("r.time", "ts", lateness=lateness, ahead=FAR)
    right = right.timed("s.time", "ts", lateness=lateness, ahead=FAR)
    near = (band("x", "a", NEAR), band("y", "b", NEAR))
    left.join_where("join", right, within=window, where=near, buckets=buckets).sink(
        "out", collect()
    )
    left.late.sink("r.late", collect())
    right.late.sink("s.late", collect())
    return flow


class Summary(AppSummary):
    """How many pairs there are, and the first of them.

    Example:
        >>> pairs = pa.table({"x": [7], "y": [1.5], "a": [9], "b": [2.0]})
        >>> print(Summary.of({"out": pairs}))
        1 pairs:
          x 7 beside a 9, y 1.5 beside b 2.0
    """

    def __init__(self) -> None:
        self._pairs, self._first = 0, Condensed(first(SHOWN))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._pairs += rows.num_rows
            self._first.add(rows.select(["x", "a", "y", "b"]))

    def __str__(self) -> str:
        lines = [
            f"  x {row['x']} beside a {row['a']}, y {row['y']:.1f} beside b {row['b']:.1f}"
            for row in self._first.rows()
        ]
        return "\n".join([f"{self._pairs:,} pairs:", *lines])


Times = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""The time of a row follows from its number alone, so that the data are the same in every run."""


def _times(rate_per_s: float) -> Times:
    return lambda index: (index * (_MICROSECONDS / rate_per_s)).astype("datetime64[us]")


def r_rows(times: Times, largest: int = LARGEST) -> Any:
    """What makes the rows of R, for `generate`."""

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {
            "ts": times(index),
            "x": rng.integers(1, largest, len(index), dtype=np.int32, endpoint=True),
            "y": rng.uniform(1, largest, len(index)).astype(np.float32),
        }

    return make


def s_rows(times: Times, largest: int = LARGEST) -> Any:
    """What makes the rows of S, for `generate`."""

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {
            "ts": times(index),
            "a": rng.integers(1, largest, len(index), dtype=np.int32, endpoint=True),
            "b": rng.uniform(1, largest, len(index)).astype(np.float32),
            "c": rng.uniform(1, largest, len(index)),
            "d": rng.random(len(index)) < 0.5,
        }

    return make
