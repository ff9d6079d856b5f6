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

from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.scale_join import DEFAULT_BUCKETS
from anabranch.operators.scale_join_bands import band

NEAR = 10
LARGEST = 10_000
_MICROSECONDS = 1_000_000

R = pa.schema([("ts", pa.timestamp("us")), ("x", pa.int32()), ("y", pa.float32())])
S = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("a", pa.int32()),
        ("b", pa.float32()),
        ("c", pa.float64()),
        ("d", pa.bool_()),
    ]
)


def build(
    *,
    sink: Any = None,
    rows: int | None = 50_000,
    rate_per_s: float = 1_000.0,
    window: timedelta = timedelta(minutes=5),
    paced: bool = False,
    buckets: int = DEFAULT_BUCKETS,
    seed: int = 0,
) -> Flow:
    """Join two generated streams.

    Args:
        sink: Where the pairs go; in memory when left out.
        rows: How many tuples each stream has; None for endless streams.
        rate_per_s: How many tuples of each stream fall into a second of event time.
        window: How far apart in time a pair may be.
        paced: Whether tuples become due at that rate, too, instead of all at once.
        buckets: Into how many parts stored tuples are dealt, which bounds the replicas.
        seed: Decides the numbers.

    Example:
        >>> build()
        Flow 'band-join': r → r.time → s → s.time → join → out
    """
    due = rate_per_s if paced else None
    flow = Flow("band-join")
    left = generate(r_rows(_times(rate_per_s)), R, rows=rows, rate_per_s=due, seed=2 * seed)
    right = generate(s_rows(_times(rate_per_s)), S, rows=rows, rate_per_s=due, seed=2 * seed + 1)
    (
        flow.source("r", left, time="ts")
        .join_where(
            "join",
            flow.source("s", right, time="ts"),
            within=window,
            where=(band("x", "a", NEAR), band("y", "b", NEAR)),
            buckets=buckets,
        )
        .sink("out", sink if sink is not None else collect())
    )
    return flow


def summary(table: pa.Table) -> str:
    """How many pairs there are, and the first of them.

    Example:
        >>> pairs = pa.table({"x": [7], "y": [1.5], "a": [9], "b": [2.0]})
        >>> print(summary(pairs))
        1 pairs:
          x 7 beside a 9, y 1.5 beside b 2.0
    """
    shown = table.select(["x", "a", "y", "b"]).slice(0, 5).to_pylist()
    lines = [
        f"  x {row['x']} beside a {row['a']}, y {row['y']:.1f} beside b {row['b']:.1f}"
        for row in shown
    ]
    return "\n".join([f"{table.num_rows:,} pairs:", *lines])


Times = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
"""The time of a row follows from its number alone, so that the data are the same in every run."""


def _times(rate_per_s: float) -> Times:
    return lambda index: (index * (_MICROSECONDS / rate_per_s)).astype("datetime64[us]")


def r_rows(times: Times) -> Any:
    """What makes the rows of R, for `generate`."""

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {
            "ts": times(index),
            "x": rng.integers(1, LARGEST, len(index), dtype=np.int32, endpoint=True),
            "y": rng.uniform(1, LARGEST, len(index)).astype(np.float32),
        }

    return make


def s_rows(times: Times) -> Any:
    """What makes the rows of S, for `generate`."""

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {
            "ts": times(index),
            "a": rng.integers(1, LARGEST, len(index), dtype=np.int32, endpoint=True),
            "b": rng.uniform(1, LARGEST, len(index)).astype(np.float32),
            "c": rng.uniform(1, LARGEST, len(index)),
            "d": rng.random(len(index)) < 0.5,
        }

    return make
