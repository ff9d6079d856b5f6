"""Random flows: any graph of operators of all state kinds over one to three sources.

Everything is drawn from hypothesis, so that a failing flow shrinks to a small one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from anabranch.flow import Flow, Stream
from anabranch.graph import StateKind
from anabranch.io import collect, memory
from anabranch.io.source import Extent, Source
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.planning.plan import Plan
from anabranch.testing.random_plans import random_plan
from tests.law import operators as ops
from tests.law.arriving import Arriving
from tests.law.builtins import (
    ONE_PORT_BUILTINS,
    PAIR_BUILTINS,
    TIMED_BUILTINS,
    TIMED_PAIR_BUILTINS,
)

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("s", pa.string()), ("v", pa.int64())])

Step = Any  # (name, stream) -> stream

ONE_PORT: dict[str, Step] = {
    "scaled": lambda n, s: s.apply(n, ops.scaled),
    "rekeyed": lambda n, s: s.apply(n, ops.rekeyed),
    "odd": lambda n, s: s.filter(n, ops.odd),
    "spread": lambda n, s: s.apply(n, ops.spread),
    "doubled": lambda n, s: s.apply(n, ops.rows_doubled),
    "one-by-one": lambda n, s: s.apply(n, ops.one_by_one),
    "running": lambda n, s: s.apply(n, ops.running("k")),
    "running-two": lambda n, s: s.apply(n, ops.running(["k", "s"])),
    "pairs": lambda n, s: s.apply(n, ops.grouped(Schedule.exactly(2))),
    "at-least-two": lambda n, s: s.apply(n, ops.grouped(Schedule.at_least(2))),
    "columnar": lambda n, s: s.apply(n, ops.columnar),
    "numbered": lambda n, s: s.apply(n, ops.numbered),
    "dealt": lambda n, s: s.apply(n, ops.dealt),
    "concerned": lambda n, s: s.apply(n, ops.concerned),
    "skipping": lambda n, s: s.apply(n, ops.fragile("skip")),
    **ONE_PORT_BUILTINS,
}
TIMED: dict[str, Step] = {
    "ticking": lambda n, s: s.apply(n, ops.ticking),
    "mortal": lambda n, s: s.apply(n, ops.mortal),
    "delayed": lambda n, s: s.apply(n, ops.delayed),
    "forgetful": lambda n, s: s.apply(n, ops.forgetful),
    **TIMED_BUILTINS,
}
PAIRS: dict[str, Any] = {
    **PAIR_BUILTINS,
    "union": lambda n, a, b: a.union(n, b),
    "both": lambda n, a, b: a.apply(
        n, ops.two_ports(Schedule.exactly(1), StateKind.PARTITIONED), b
    ),
    "same": lambda n, a, b: a.apply(n, ops.two_ports(Schedule.same(), StateKind.STATEFUL), b),
    "either": lambda n, a, b: a.apply(
        n, ops.two_ports(Schedule.at_least(2, ports="any"), StateKind.PARTITIONED), b
    ),
}
TIMED_PAIRS: dict[str, Any] = {**PAIRS, **TIMED_PAIR_BUILTINS}


class Parted(Source):
    """Rows in several parts, so that several readers can share them."""

    schema, bounded, order = SCHEMA, True, "part and row"

    def __init__(self, rows: list[dict[str, Any]], part_rows: int) -> None:
        cuts = range(0, len(rows), part_rows)
        self._parts = {f"part{i:02}": memory(rows[i : i + part_rows], SCHEMA) for i in cuts}

    def parts(self) -> tuple[str, ...]:
        return tuple(self._parts)

    def read(self, part: str, start: int, rows: int) -> Any:
        return self._parts[part].read("memory", start, rows)

    def extent(self, part: str) -> Extent:
        return self._parts[part].extent("memory")


@dataclass
class Case:
    """A flow with data, and one way of running it."""

    flow: Flow
    recipe: list[str]
    plan: Plan
    changes: list[Plan]
    crashes: int
    seed: int

    def __repr__(self) -> str:
        return (
            f"Case(recipe={self.recipe}, changes={len(self.changes)}, crashes={self.crashes}, "
            f"seed={self.seed})\n{self.plan!r}"
        )


IDLE_AFTER = [None, timedelta(seconds=3), timedelta(seconds=30)]
"""Where a run counts its steps or batches as seconds."""
SOON_IDLE_AFTER = [None, timedelta(milliseconds=2), timedelta(milliseconds=20)]


class Arrivals(Enum):
    """Whether sources are drawn whose parts come while they are read."""

    NONE = "none"
    SOME = "some"
    UNANNOUNCED = "some that do not say when all of their rows have come"


@st.composite
def cases(draw: st.DrawFn, timed: bool | None = None, arrivals: Arrivals = Arrivals.NONE) -> Case:
    flow, recipe = draw(flows(timed, arrivals))
    rng = Random(draw(st.integers(0, 2**32)))
    plan = random_plan(flow, rng)
    changes = [random_plan(flow, rng) for _ in range(draw(st.integers(0, 3)))]
    return Case(flow, recipe, plan, changes, draw(st.integers(0, 2)), rng.randrange(2**32))


@st.composite
def flows(draw: st.DrawFn, timed: bool | None, arrivals: Arrivals) -> tuple[Flow, list[str]]:
    timed = draw(st.booleans()) if timed is None else timed
    order = draw(st.sampled_from(["total", "total", "total", "key"]))
    flow = Flow("law", buckets=draw(st.sampled_from([1, 4, 16])), order=order)
    recipe: list[str] = [order]
    one_clock = timed and draw(st.booleans())
    raw = [
        _source(draw, flow, f"source{number}", timed, recipe, arrivals)
        for number in range(draw(st.sampled_from([1, 2, 2, 3])))
    ]
    if one_clock:
        streams = [_clocked(draw, "clock", _early_steps(draw, raw, recipe), recipe)]
    elif timed:
        streams = [_clocked(draw, s.output.step, s, recipe) for s in raw]
    else:
        streams = [_narrow(s.output.step, s) for s in raw]
    if len(streams) > 1 and draw(st.booleans()):
        recipe.append("merged: all sources")
        streams = [streams[0].union("merged", *streams[1:])]
    for number in range(draw(st.integers(0, 7))):
        streams = _grow(draw, streams, number, timed, recipe)
    for number, stream in enumerate(streams):
        stream.sink(f"sink{number}", collect())
    return flow, recipe


def _source(
    draw: st.DrawFn, flow: Flow, name: str, timed: bool, recipe: list[str], arrivals: Arrivals
) -> Stream:
    size = draw(st.integers(0, 24))
    rows = draw(st.lists(_row(), min_size=size, max_size=size))
    time, leap = 0, draw(st.sampled_from([0, 0, 0, 15])) if timed else 0
    for number, row in enumerate(rows):
        time += row.pop("gap") + (leap if number == size // 2 else 0)
        row["ts"] = time + row.pop("jitter")
    beats = None
    if timed and rows and draw(st.booleans()):
        beats = {draw(st.integers(1, len(rows))): draw(st.integers(0, time + 20))}
    source: Any = memory(rows, SCHEMA, heartbeats=beats)
    if beats is None and draw(st.booleans()):
        source = Parted(rows, draw(st.integers(1, 9)))
    parts, idle_after = 0, None
    if beats is None and arrivals is not Arrivals.NONE:
        parts = draw(st.sampled_from([0, 1, 2, 3]))
    if parts:
        shares = {f"part{number}": rows[number::parts] for number in range(parts)}
        source = Arriving(shares, SCHEMA, announced=arrivals is Arrivals.SOME)
        times = IDLE_AFTER if arrivals is Arrivals.SOME else SOON_IDLE_AFTER
        idle_after = draw(st.sampled_from(times))
    recipe.append(f"{name}: {len(rows)} rows, heartbeats {beats}, {parts} parts, {idle_after}")
    return flow.source(name, source, idle_after=idle_after)


def _early_steps(draw: st.DrawFn, sources: list[Stream], recipe: list[str]) -> Stream:
    """All sources as one stream that knows no time yet, behind steps of several kinds."""
    stream = sources[0].union("merged", *sources[1:]) if len(sources) > 1 else sources[0]
    for number in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(["first", "other-times", "copies"]))
        step = f"early{number}-{name}"
        recipe.append(step)
        if name == "first":
            stream = stream.deduplicate(step, key=["k", "s", "v", "ts"])
        elif name == "copies":
            stream = stream.apply(step, ops.copies)
        else:
            stream = stream.filter(step, lambda b: pc.not_equal(b["ts"], 3))
    return stream


def _clocked(draw: st.DrawFn, name: str, stream: Stream, recipe: list[str]) -> Stream:
    """Event time from here on; a step with state may stand right behind the clock."""
    lateness = draw(st.sampled_from([0, 0, 1, 3, 6]))
    ahead = draw(st.sampled_from([None] * 3 + [4, 9]))
    recipe.append(f"{name}.time: lateness {lateness}, ahead {ahead}")
    timed = stream.timed(f"{name}.time", "ts", lateness=lateness, ahead=ahead)
    if draw(st.booleans()):
        timed.late.sink(f"{name}.late", collect())
    if draw(st.integers(0, 3)) == 0:
        return timed.apply(f"{name}.numbered", ops.numbered)
    return _narrow(name, timed)


def _narrow(name: str, stream: Stream) -> Stream:
    return stream.map(f"{name}.narrow", lambda batch: {}, keeps=["k", "s", "v"])


def _row() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "gap": st.sampled_from([0, 0, 1, 2]),
            "jitter": st.sampled_from([0, 0, 0, 0, 0, -1, -2, -5, 2]),
            "k": st.integers(0, 4),
            "s": st.sampled_from(["", "a", "bb", "a long enough string", "a long enough story"]),
            "v": st.integers(0, 50),
        }
    )


def _grow(
    draw: st.DrawFn, streams: list[Stream], number: int, timed: bool, recipe: list[str]
) -> list[Stream]:
    """Append one step to a stream (or two), sometimes keeping what it came from as well."""
    at = draw(st.integers(0, len(streams) - 1))
    stream = streams[at]
    timed = stream.type.time is not None
    if len(streams) > 1 and draw(st.integers(0, 2)) == 0:
        other = draw(st.sampled_from(streams))
        if (other.type.time is not None) == timed:
            choices = TIMED_PAIRS if timed else PAIRS
            name = draw(st.sampled_from(sorted(choices)))
            step = f"{number}-{name}"
            recipe.append(f"{step}({stream.output.step}, {other.output.step})")
            made = choices[name](step, stream, other)
            kept = [s for s in streams if s.output not in (stream.output, other.output)]
            return [*kept, made]
    choices = TIMED if timed and draw(st.booleans()) else ONE_PORT
    name = draw(st.sampled_from([*sorted(choices), "side", "picky"]))
    step = f"{number}-{name}"
    recipe.append(f"{step}({stream.output.step})")
    if name in ("side", "picky"):
        made = stream.apply(step, ops.picky if name == "picky" else ops.fragile("side"))
        if draw(st.booleans()):
            made.errors.sink(f"{step}.errors", collect())
    else:
        made = choices[name](step, stream)
    tee = draw(st.integers(0, 3)) == 0
    return [*streams[:at], made, *streams[at + 1 :], *([stream] if tee else [])]
