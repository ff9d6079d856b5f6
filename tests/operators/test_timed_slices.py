"""A clock whose slices are judged elsewhere gives what one kernel gives that gets all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.graph import StreamType
from anabranch.operators.base import Counters, KernelContext
from anabranch.operators.timed import Timed, TimedKernel
from anabranch.state.positions import (
    FIRST,
    IDLE,
    JOINED,
    LAST,
    Jumbo,
    Mark,
    Positions,
    Root,
    end,
)

SCHEMA = pa.schema([("ts", pa.int64())])
PARTS = 3
RANK = 0

Item = tuple[int, int, bool]
"""A part, a time, and whether that is what a mark says that the part has passed."""

Tuples = list[tuple[tuple[int, ...], int]]
"""Position and time of each tuple, in order."""


def kernel(lateness: int, ahead: int | None) -> TimedKernel:
    stream, operator = StreamType(SCHEMA), Timed("ts", lateness, ahead)
    outputs = operator.types("clock", (stream,))
    context = KernelContext("clock", 1, (stream,), outputs, depth=0, buckets=1, sources=(RANK,))
    made = operator.kernel(context)
    assert isinstance(made, TimedKernel)
    return made


def run_of(items: Sequence[Item], first: int) -> Jumbo:
    """Items as a jumbo tuple; each has a number, from `first` on."""
    rows, times, marks = [], [], []
    for number, (part, time, is_mark) in enumerate(items, start=first):
        if is_mark:
            marks.append(Mark(Root(number, RANK, number, -1), time, part))
        else:
            rows.append((number, RANK, number, part))
            times.append(time)
    batch = pa.record_batch({"ts": pa.array(times, pa.int64())})
    return Jumbo(batch, Positions.of_rows(rows, 4), tuple(marks))


def tuples(jumbos: Sequence[Jumbo | None]) -> Tuples:
    """All tuples in sequential order."""
    there = [jumbo for jumbo in jumbos if jumbo is not None]
    rows = [(j.positions.rows(), j.batch["ts"].to_pylist()) for j in there]
    return sorted(pair for positions, times in rows for pair in zip(positions, times, strict=True))


def remembered(clock: TimedKernel) -> dict[str, Any]:
    """The memory of a clock without what it holds, as far as there is any."""
    known = {name: found for name, found in clock.facts().items() if isinstance(name, str)}
    for name in ("waiting", "aside"):
        known[name] = {part: tuples([jumbo]) for part, jumbo in known.get(name, {}).items()}
    return {name: found for name, found in known.items() if found}


class Sequential:
    """One kernel that gets everything."""

    def __init__(self, lateness: int, ahead: int | None) -> None:
        self.clock = kernel(lateness, ahead)
        self.counters = self.clock.context.counters
        self.outputs: list[list[Jumbo | None]] = [[], []]

    def take(self, items: Sequence[Item], first: int) -> Root:
        frontier = Root(first + len(items), RANK, 0, 0)
        self._add(self.clock.step([run_of(items, first)], frontier))
        return self.clock.frontier(frontier)

    def end(self) -> None:
        self._add(self.clock.step([None], end(FIRST)))

    def _add(self, outputs: Sequence[Jumbo | None]) -> None:
        for port, jumbo in enumerate(outputs):
            self.outputs[port].append(jumbo)


class InSlices(Sequential):
    """A memory in one place; each slice is digested and judged by a kernel of its own."""

    def __init__(self, lateness: int, ahead: int | None) -> None:
        super().__init__(lateness, ahead)
        self._make = lambda: kernel(lateness, ahead)
        self.counters = Counters()
        self.whole = 0

    def take(self, items: Sequence[Item], first: int) -> Root:
        jumbo, elsewhere = run_of(items, first), self._make()
        facts = self.clock.facts_for(elsewhere.digest(jumbo))
        whole = facts is None
        outputs, memory = elsewhere.judge(jumbo, self.clock.facts() if facts is None else facts)
        if whole:
            self.whole += 1
            self.clock.resume(memory)
        self.counters.add(elsewhere.context.counters)
        self._add(outputs)
        return self.clock.frontier(Root(first + len(items), RANK, 0, 0))

    def end(self) -> None:
        self._add(self.clock.close())
        self.counters.add(self.clock.context.counters)


def times() -> st.SearchStrategy[int]:
    near = st.integers(0, 40)
    return st.one_of(near, near, near, st.integers(900, 920), st.just(LAST - 1))


def one_source() -> st.SearchStrategy[list[Item]]:
    """Rows of one part, and what it says that it has passed."""
    row = times().map(lambda time: (0, time, False))
    mark = st.integers(0, 60).map(lambda time: (0, time, True))
    return st.lists(st.one_of(row, row, row, row, mark), max_size=40)


@st.composite
def several_parts(draw: st.DrawFn) -> list[Item]:
    """Rows of parts that join, become idle, come back and end."""
    items: list[Item] = [(0, JOINED, True)]
    joined, ended = {0}, set[int]()
    for _ in range(draw(st.integers(0, 40))):
        part = draw(st.integers(0, PARTS - 1))
        if part in ended:
            continue
        if part not in joined:
            joined.add(part)
            items.append((part, JOINED, True))
        elif (what := draw(st.integers(0, 11))) == 0:
            items.append((part, IDLE, True))
        elif what == 1:
            ended.add(part)
            items.append((part, LAST, True))
        else:
            run = draw(st.lists(times(), min_size=1, max_size=4))
            items += [(part, time, False) for time in run]
    return items


def check(items: list[Item], lateness: int, ahead: int | None, cuts: Sequence[int]) -> InSlices:
    """One kernel gets the items one by one, the others get what lies between cuts."""
    alone, parted = Sequential(lateness, ahead), InSlices(lateness, ahead)
    ready = [alone.take([item], number) for number, item in enumerate(items)]
    stops = sorted({min(cut, len(items)) for cut in cuts} | {len(items)})
    start = 0
    for stop in stops:
        if stop > start:
            assert parted.take(items[start:stop], start) == ready[stop - 1]
        start = stop
    assert remembered(parted.clock) == remembered(alone.clock)
    alone.end()
    parted.end()
    for port in (0, 1):
        assert tuples(parted.outputs[port]) == tuples(alone.outputs[port])
    assert parted.counters == alone.counters
    return parted


@given(
    st.one_of(one_source(), several_parts()),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([None, 3, 30]),
    st.lists(st.integers(0, 60), max_size=12),
)
@example([(0, 0, False)] * 2 + [(0, 900, False)] * 17 + [(0, 901, False)], 0, 3, [2, 9, 18])
def test_slices_judged_elsewhere_are_judged_as_in_one_place(
    items: list[Item], lateness: int, ahead: int | None, cuts: list[int]
) -> None:
    check(items, lateness, ahead, cuts)


def test_only_the_first_slice_of_a_source_needs_the_whole_memory() -> None:
    items = [(0, time + jitter, False) for time in range(40) for jitter in (0, -1, 3)]
    assert check(items, lateness=2, ahead=5, cuts=range(0, 120, 10)).whole == 1
    assert check(items, lateness=2, ahead=None, cuts=range(0, 120, 10)).whole == 0


def test_a_slice_after_a_long_gap_needs_the_whole_memory() -> None:
    items = [(0, time, False) for time in [*range(10), *range(900, 940)]]
    assert check(items, lateness=0, ahead=5, cuts=range(5, 50, 5)).whole > 1
    assert check(items, lateness=0, ahead=5, cuts=range(5, 50, 5)).counters.ahead > 0
