"""Built-in operators for random flows, brought back to the columns (k, s, v)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.flow import Stream
from anabranch.io import collect
from anabranch.operators.aggregates.functions import count, first, last, max, mean, min, sum
from anabranch.operators.aggregates.windows import count_window, session, sliding, tumbling
from anabranch.operators.joins.conditions import band
from tests.law.operators import BIG, COLUMNS

Step = Callable[[str, Stream], Stream]

NAMES = pa.table({"k": [0, 1, 1, 3], "name": ["zero", "one", "uno", "three"]})


def _back(name: str, stream: Stream, k: str, s: str, *values: str) -> Stream:
    """Any columns as (k, s, v), so that what was computed goes on to matter."""

    def mix(batch: pa.RecordBatch) -> dict[str, Any]:
        total = np.zeros(batch.num_rows)
        for place, column in enumerate(values, start=1):
            filled = batch[column].fill_null(0).to_numpy(zero_copy_only=False)
            total = total * 3 + place * filled.astype(np.float64)
        texts = batch[s] if s else pa.array([""] * batch.num_rows)
        keys = batch[k] if k else pa.array([0] * batch.num_rows)
        return {"k": keys.fill_null(0), "s": texts, "v": (total % BIG).astype(np.int64)}

    return stream.map(f"{name}.back", mix, out=COLUMNS)


def _every(name: str, stream: Stream) -> Stream:
    made = stream.aggregate(name, key="k", n=count(), low=min("v"), mid=mean("v"), s=last("s"))
    return _back(name, made, "k", "s", "n", "low", "mid")


def _every_two_keys(name: str, stream: Stream) -> Stream:
    made = stream.aggregate(name, key=["k", "s"], total=sum("v"), high=max("v"))
    return _back(name, made, "k", "s", "total", "high")


def _final(combine: bool | None) -> Step:
    def step(name: str, stream: Stream) -> Stream:
        made = stream.aggregate(
            name, key="k", emit="final", combine=combine, total=sum("v"), s=first("s")
        )
        return _back(name, made, "k", "s", "total")

    return step


def _window(kind: Any, combine: bool | None = None) -> Step:
    def step(name: str, stream: Stream) -> Stream:
        made = stream.aggregate(
            name, key="k", window=kind, combine=combine, n=count(), total=sum("v"), s=last("s")
        )
        return _back(name, made, "k", "s", "n", "total", "window_start")

    return step


def _count_window(name: str, stream: Stream) -> Stream:
    made = stream.aggregate(name, key="k", window=count_window(3, partial=True), v=sum("v"))
    return _back(name, made, "k", "", "v")


def _global(name: str, stream: Stream) -> Stream:
    return _back(name, stream.aggregate(name, total=sum("v"), n=count()), "", "", "total", "n")


def _changes(name: str, stream: Stream) -> Stream:
    """Counts as changes into sinks, from replicas too, and into a ranking of the latest ones."""
    counts = stream.aggregate(name, key=["k", "s"], emit="changes", n=count(), total=sum("v"))
    counts.sink(f"{name}.sink", collect())
    told = counts.map(f"{name}.told", lambda b: {"m": b["n"]}, out="m: int64", keeps=["k", "s"])
    told.sink(f"{name}.told.sink", collect())
    ranked = counts.top_n(f"{name}.top", 3, by="n")
    return _back(name, ranked, "k", "s", "n", "total", "rank")


def _top(name: str, stream: Stream) -> Stream:
    return _back(name, stream.top_n(name, 2, by="v", key="k"), "k", "s", "v", "rank")


def _lookup(name: str, stream: Stream) -> Stream:
    return _back(name, stream.lookup(name, NAMES, key="k", how="left"), "k", "name", "v")


def _reduce(emit: str) -> Step:
    def longest(best: Any, row: Any) -> dict[str, Any]:
        return {"s": row.s, "v": (row.v + 2 * (best["v"] if best else 0)) % BIG}

    return lambda name, stream: stream.reduce(name, longest, key="k", out=COLUMNS, emit=emit)


def _join(name: str, left: Stream, right: Stream) -> Stream:
    made = left.join(name, right, key="k", within=3)
    return _back(name, made, "k", "s", "v", "v_right")


def _join_where(where: Any) -> Any:
    def step(name: str, left: Stream, right: Stream) -> Stream:
        made = left.join_where(name, right, within=3, where=where, buckets=6)
        return _back(name, made, "k", "s_right", "v", "v_right", "k_right")

    return step


def _lower_key(left: Any, right: Any) -> Any:
    return pc.less(left["k"], right["k"])


def _barrier(name: str, left: Stream, right: Stream) -> Stream:
    made = left.zip(name, right, key="k")
    return _back(name, made, made.schema.names[0], made.schema.names[1], "v", "v_2")


ONE_PORT_BUILTINS: dict[str, Step] = {
    "every": _every,
    "every-two-keys": _every_two_keys,
    "final": _final(False),
    "final-combined": _final(None),
    "count-window": _count_window,
    "global": _global,
    "changes": _changes,
    "top": _top,
    "lookup": _lookup,
    "reduce": _reduce("every"),
    "reduce-final": _reduce("final"),
    "deduplicate": lambda n, s: s.deduplicate(n, key=["k", "s"]),
}
TIMED_BUILTINS: dict[str, Step] = {
    "tumbling": _window(tumbling(5), combine=False),
    "tumbling-combined": _window(tumbling(5)),
    "sliding": _window(sliding(6, 2)),
    "session": _window(session(3)),
    "deduplicate-within": lambda n, s: s.deduplicate(n, key="k", within=4),
}
PAIR_BUILTINS: dict[str, Any] = {"barrier": _barrier}
TIMED_PAIR_BUILTINS: dict[str, Any] = {
    "join": _join,
    "join-band": _join_where((band("v", "v", 9), band("k", "k", 2))),
    "join-function": _join_where(_lower_key),
}
