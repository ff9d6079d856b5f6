"""Operators for random flows. All of them turn the columns (k, s, v) into (k, s, v), so that any
can follow any; what they do is arbitrary, what matters is that order, keys and state all show."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.graph import StateKind
from anabranch.operators.keyed.keyed import keyed
from anabranch.operators.keyed.shared import buckets_of, shared
from anabranch.operators.row_wise.map_filter_expand import expand, flat_map, map
from anabranch.operators.tuple_style.invocation import Invocation, Reason
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.operators.tuple_style.tuples import (
    FunctionOperator,
    partitioned,
    stateful,
    stateless,
)

COLUMNS = "k: int64, s: string, v: int64"
BIG = 10_007


def _mix(a: int, b: int) -> int:
    return (a * 31 + b * 17 + 7) % BIG


@map(out="v: int64", keeps=["k", "s"])
def scaled(batch: pa.RecordBatch) -> dict[str, Any]:
    v = batch["v"].to_numpy(zero_copy_only=False)
    return {"v": (v * 3 + 1) % BIG}


@map(out=COLUMNS)
def rekeyed(batch: pa.RecordBatch) -> dict[str, Any]:
    k, v = (batch[c].to_numpy(zero_copy_only=False) for c in ("k", "v"))
    return {"k": (k + v) % 5, "s": batch["s"], "v": v}


def odd(batch: pa.RecordBatch) -> Any:
    return pc.equal(pc.bit_wise_and(batch["v"], 1), 1)


@expand(out="v: int64", keeps=["k", "s"])
def spread(batch: pa.RecordBatch) -> tuple[dict[str, Any], Any]:
    """Zero to five tuples for one."""
    v = batch["v"].to_numpy(zero_copy_only=False)
    copies = v % 6
    parents = np.repeat(np.arange(len(v)), copies)
    starts = np.repeat(np.cumsum(copies) - copies, copies)
    return {"v": (v[parents] + np.arange(len(parents)) - starts) % BIG}, parents


@expand(keeps="*")
def copies(batch: pa.RecordBatch) -> tuple[dict[str, Any], Any]:
    """One or two of each, all columns kept."""
    v = batch["v"].to_numpy(zero_copy_only=False)
    return {}, np.repeat(np.arange(len(v)), 1 + v % 2)


rows_doubled = flat_map(
    lambda row: [{**row, "v": (row["v"] + i) % BIG} for i in range(row["v"] % 3)], out=COLUMNS
)


@stateless(out=COLUMNS)
def one_by_one(ctx: Invocation) -> None:
    for row in ctx.tuples():
        for i in range(row.v % 3):
            ctx.emit(k=row.k, s=row.s, v=_mix(row.v, i))


def running(key: Any, **properties: Any) -> FunctionOperator:
    """State that depends on the order of every tuple of the key so far."""

    @partitioned(key=key, out=COLUMNS, **properties)
    def operator(ctx: Invocation) -> None:
        for row in ctx.tuples():
            ctx.state["hash"] = _mix(ctx.state.get("hash", 1), row.v)
            ctx.emit(k=row.k, s=row.s, v=ctx.state["hash"])

    return operator


def grouped(schedule: Schedule) -> FunctionOperator:
    """Fires on groups; leftovers wait, and show at the end."""

    @partitioned(key="k", out=COLUMNS, schedule=schedule, closing=True)
    def operator(ctx: Invocation) -> None:
        rows = list(ctx.tuples())
        value = len(rows) + (100 if ctx.reason is Reason.CLOSED else 0)
        for row in rows:
            value = _mix(value, row.v)
        ctx.emit(k=ctx.key, s=rows[0].s if rows else "", v=value)

    return operator


@partitioned(key="k", out=COLUMNS, timers=True)
def delayed(ctx: Invocation) -> None:
    """Each tuple sets a timer; each timer may set the next, so chains run past the data."""
    if ctx.reason is Reason.TIMER:
        ctx.state["fired"] = ctx.state.get("fired", 0) + 1
        ctx.emit(s=ctx.tag, v=_mix(ctx.time, ctx.state["fired"]))
        if ctx.state["fired"] % 3:
            ctx.set_timer(ctx.time + 4, tag="again")
    for row in ctx.tuples():
        ctx.emit(s=row.s, v=row.v)
        ctx.set_timer(ctx.time + row.v % 7, tag="first")
        if row.v % 11 == 0:
            ctx.cancel_timer(ctx.time + 2, tag="first")


@partitioned(key="s", out=COLUMNS, ttl=6)
def forgetful(ctx: Invocation) -> None:
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(k=row.k, v=ctx.state["n"])


@stateful(out=COLUMNS, timers=True)
def ticking(ctx: Invocation) -> None:
    """One global timer, set by tuples, seeing how many came since."""
    if ctx.reason is Reason.TIMER:
        ctx.emit(k=0, s="tick", v=_mix(ctx.time, ctx.state.pop("n", 0)))
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.set_timer(ctx.time + 3)


@partitioned(key="k", out=COLUMNS, timers=True, closing=True, ttl=5)
def mortal(ctx: Invocation) -> None:
    """State that expires, timers beyond its end, and a last word."""
    if ctx.reason is not Reason.TUPLES:
        ctx.state["last"] = ctx.state.get("last", 0) + 1
        ctx.emit(s=ctx.reason.value, v=ctx.state["last"] + 10 * ctx.state.get("n", 0))
    for row in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if row.v % 3 == 0:
            ctx.set_timer(ctx.time + row.v % 17)


@keyed(key="k", state="total: int64, n: int64", out="v: int64", keeps=["k", "s"])
def columnar(batch: pa.RecordBatch, state: Any) -> dict[str, Any]:
    """Running sum per key, on whole columns."""
    v = batch["v"].to_numpy(zero_copy_only=False)
    order = np.argsort(state.codes, kind="stable")
    codes, sums = state.codes[order], np.cumsum(v[order])
    first = np.r_[True, codes[1:] != codes[:-1]]
    bases = np.repeat((sums - v[order])[first], np.diff(np.r_[np.flatnonzero(first), len(codes)]))
    before = state["total"]
    running_sum = np.empty(len(v), np.int64)
    running_sum[order] = sums - bases + before[codes]
    state["total"] = before + np.bincount(state.codes, v, state.groups).astype(np.int64)
    state["n"] = state["n"] + np.bincount(state.codes, minlength=state.groups)
    return {"v": running_sum % BIG}


@stateful(out=COLUMNS)
def numbered(ctx: Invocation) -> None:
    """One global state: total order shows."""
    recent = ctx.state.setdefault("recent", deque(maxlen=3))
    for row in ctx.tuples():
        recent.append(row.v)
        ctx.emit(k=row.k, s=row.s, v=_mix(len(recent), sum(recent)))


@shared(out=COLUMNS, buckets=5)
def dealt(batch: pa.RecordBatch, bucket: Any) -> tuple[dict[str, Any], list[int]]:
    """Every bucket sees every tuple, keeps some, and remembers how many it saw."""
    first = bucket.state.get("seen", 0)
    bucket.state["seen"] = first + batch.num_rows
    rows = batch.to_pylist()
    kept = [
        i
        for i, row in enumerate(rows)
        if (first + i) % bucket.count == bucket.index or row["v"] % 4 == 0
    ]
    return {
        "k": [rows[i]["k"] for i in kept],
        "s": [rows[i]["s"] for i in kept],
        "v": [_mix(first + i, bucket.index) for i in kept],
    }, kept


def _concerns(batch: pa.RecordBatch, buckets: int) -> tuple[Any, Any]:
    """None, one or two buckets: that of `s` if v is not a multiple of 4, that of v if it is odd."""
    rows = np.arange(batch.num_rows)
    v = batch["v"].to_numpy(zero_copy_only=False)
    by_text, by_value = v % 4 > 0, v % 2 > 0
    texts = buckets_of(batch["s"], buckets)
    return (
        np.r_[rows[by_text], rows[by_value]],
        np.r_[texts[by_text], v[by_value] % buckets],
    )


@shared(out=COLUMNS, buckets=6, filter=_concerns)
def concerned(batch: pa.RecordBatch, bucket: Any) -> tuple[dict[str, Any], list[int]]:
    """A running hash per bucket, of what concerns it; each tuple is told once or twice."""
    made: dict[str, list[Any]] = {"k": [], "s": [], "v": []}
    parents = []
    for number, row in enumerate(batch.to_pylist()):
        bucket.state["hash"] = _mix(bucket.state.get("hash", bucket.index), row["v"])
        for turn in range(1 + row["v"] % 2):
            made["k"].append(row["k"])
            made["s"].append(row["s"])
            made["v"].append(_mix(bucket.state["hash"], turn))
            parents.append(number)
    return made, parents


def fragile(on_error: str) -> FunctionOperator:
    """Raises on some tuples, after it has touched its state: that must leave no trace."""

    @partitioned(key="k", out=COLUMNS, on_error=on_error)
    def operator(ctx: Invocation) -> None:
        for row in ctx.tuples():
            ctx.state.setdefault("seen", []).append(row.v)
            if row.v % 5 == 0:
                raise ValueError(f"cannot take {row.v}")
            ctx.emit(s=row.s, v=_mix(len(ctx.state["seen"]), row.v))

    return operator


@map(out="v: int64", keeps=["k", "s"], on_error="side")
def picky(batch: pa.RecordBatch) -> dict[str, Any]:
    if pc.any(pc.equal(pc.bit_wise_and(batch["v"], 7), 3)).as_py():
        raise ValueError("an eight and a three")
    return {"v": batch["v"]}


def two_ports(schedule: Schedule, kind: StateKind) -> FunctionOperator:
    """Buffers on two ports; what fires together depends on the schedule alone."""
    key = {"key": "k"} if kind is StateKind.PARTITIONED else {}

    def operator(ctx: Invocation) -> None:
        left, right = list(ctx.tuples(0)), list(ctx.tuples(1))
        value = ctx.state.get("h", 0)
        for row in left:
            value = _mix(value, row.v)
        for row in right:
            value = _mix(value + 1, row.v)
        ctx.state["h"] = value
        rows = left or right
        if rows:
            ctx.emit(k=rows[0].k, s=rows[0].s, v=value)

    return FunctionOperator(
        operator, state=kind, in_ports=2, out=COLUMNS, schedule=schedule, closing=True, **key
    )
