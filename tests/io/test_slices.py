"""Whatever the budgets, readers and parts: every row is read once, in contiguous stretches."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.io import files, generate, memory
from anabranch.io.offsets import Cursor, SourceOffsets
from anabranch.io.source import Chunk, Extent, Source
from anabranch.io.splits import Slice, SliceReader, take
from anabranch.state.positions import is_end
from tests.io.reading import LINES, NUMBERS

SCHEMA = pa.schema([("part", pa.int64()), ("row", pa.int64())])
Place = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """How many rows there are, and what the source says about that."""

    rows: int
    extent: Extent


@dataclass
class Parts(Source):
    """A source that knows its parts well, badly or not at all."""

    all: list[Part]
    schema: pa.Schema = field(default=SCHEMA)
    bounded: bool = True
    order: str = "part and row"

    def parts(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(len(self.all)))

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        number = int(part)
        stop = min(start + rows, self.all[number].rows)
        if start >= stop:
            return None
        columns = {"part": [number] * (stop - start), "row": list(range(start, stop))}
        return Chunk(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))

    def extent(self, part: str) -> Extent:
        return self.all[int(part)].extent

    def places(self) -> list[Place]:
        return [(number, row) for number, part in enumerate(self.all) for row in range(part.rows)]


@st.composite
def parts(draw: st.DrawFn) -> Part:
    rows = draw(st.integers(0, 12))
    known = draw(st.sampled_from(["exact", "guess", "unknown"]))
    seekable = draw(st.booleans())
    if known == "exact":
        return Part(rows, Extent(rows, exact=True, seekable=seekable))
    guess = None if known == "unknown" else draw(st.integers(0, 20))
    return Part(rows, Extent(guess, exact=False, seekable=seekable))


sources = st.lists(parts(), min_size=1, max_size=4).map(Parts)


def read_share(source: Parts, slices: list[Slice], rows: int) -> tuple[list[Place], list[Cursor]]:
    reader = SliceReader(source, 0, slices)
    batches = [jumbo.batch for jumbo, _ in reader.read(rows)]
    read = [(row["part"], row["row"]) for batch in batches for row in batch.to_pylist()]
    return read, [stop.cursor for stop in reader.stops]


@st.composite
def begun(draw):
    """A source of which readers have read several parts at once, and how far."""
    source = draw(sources)
    unopened = draw(st.integers(0, len(source.all)))
    opened = {p: draw(st.integers(0, source.all[p].rows)) for p in range(unopened)}
    done = draw(st.sets(st.sampled_from(range(unopened)))) if unopened else set()
    return source, SourceOffsets({p: r for p, r in opened.items() if p not in done}, unopened)


@given(
    begun=begun(),
    turns=st.lists(st.tuples(st.integers(1, 15), st.integers(1, 4)), min_size=1, max_size=4),
    chunk=st.integers(1, 5),
)
def test_consecutive_batches_read_every_row_once_and_leave_no_gap(begun, turns, chunk):
    source, offsets = begun
    starts = [offsets.start(part) for part in range(len(source.all))]
    unread = [(p, r) for p, r in source.places() if starts[p] is not None and r >= starts[p]]
    read = []
    for turn in range(200):
        if offsets.cursor.part >= len(source.all):
            break
        budget, readers = turns[turn % len(turns)]
        shares = take(source, offsets, budget, readers)
        assert len(shares) == readers
        parts = [read_share(source, share, chunk) for share in shares]
        rows = [place for share, _ in parts for place in share]
        assert rows == sorted(rows)  # readers stand one behind the other
        read += rows
        for stop in (stop for _, stops in parts for stop in stops):
            offsets = offsets.read_to(stop)
    assert offsets.cursor == Cursor(len(source.all), 0)
    assert read == unread


@given(source=sources, budget=st.integers(1, 15), readers=st.integers(1, 4))
def test_a_batch_is_as_large_as_its_budget_where_sizes_are_known(source, budget, readers):
    exact = Parts([Part(p.rows, Extent(p.rows, exact=True, seekable=True)) for p in source.all])
    shares = take(exact, SourceOffsets(), budget, readers)
    read = sum(len(read_share(exact, share, 100)[0]) for share in shares)
    # A part without rows costs one row of the budget, so that there is always an end.
    empty = sum(part.rows == 0 for part in exact.all)
    total = sum(part.rows for part in exact.all)
    assert min(budget, total) - empty <= read <= budget


@given(rows=st.integers(1, 100), budget=st.integers(1, 100), readers=st.integers(1, 5))
def test_readers_of_a_seekable_part_get_about_the_same(rows, budget, readers):
    source = memory([{"x": x} for x in range(rows)])
    shares = take(source, SourceOffsets(), budget, readers)
    counts = []
    for share in shares:
        reader = SliceReader(source, 0, share)
        counts.append(sum(len(jumbo) for jumbo, _ in reader.read(1000)))
    assert sum(counts) == min(rows, budget)
    assert max(counts) <= -(-sum(counts) // readers)


def test_a_part_that_cannot_be_entered_in_the_middle_has_one_reader():
    source = Parts([Part(10, Extent(10, exact=True, seekable=False))])
    assert take(source, SourceOffsets(), 10, 3) == [[Slice(0, 0, None)], [], []]


def test_a_part_a_little_larger_than_the_budget_is_taken_whole_where_its_size_is_a_guess():
    source = Parts([Part(12, Extent(12))])
    assert take(source, SourceOffsets(), 10, 1) == [[Slice(0, 0, None)]]


def test_a_batch_does_not_end_in_the_middle_of_a_part_that_is_hard_to_enter():
    source = Parts([Part(4, Extent(4)), Part(10, Extent(10))])
    assert take(source, SourceOffsets(), 8, 1) == [[Slice(0, 0, None)]]


def test_parts_without_rows_use_up_the_budget_too():
    source = Parts([Part(0, Extent(0, exact=True))] * 9)
    assert take(source, SourceOffsets(), 3, 1) == [[Slice(part, 0, None) for part in range(3)]]


def test_nothing_is_left_to_take_at_the_end():
    assert take(memory([{"x": 1}]), SourceOffsets(unopened=1), 5, 2) == [[], []]


def test_an_endless_source_is_shared_out_too():
    endless = generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]))
    assert take(endless, SourceOffsets({0: 4}, 1), 6, 2) == [[Slice(0, 4, 3)], [Slice(0, 7, 3)]]


def test_the_end_is_told_with_a_last_word_behind_the_last_part_only():
    reader = SliceReader(memory([{"x": 1}]), 3, [Slice(0, 0, None)])
    nothing, there = reader.end(Cursor(0, 1))
    last, behind = reader.end(Cursor(1, 0))
    assert (nothing, there.rank, there.seq) == (None, 3, 1)
    assert is_end(behind)
    assert len(last.marks) == 1


def test_reading_stops_where_an_endless_source_has_no_more_for_now():
    class Dry(Parts):
        def read(self, part: str, start: int, rows: int) -> Chunk | None:
            return super().read(part, start, rows) or Chunk(pa.RecordBatch.from_pylist([], SCHEMA))

    reader = SliceReader(Dry([Part(2, Extent())]), 0, [Slice(0, 0, 10)])
    assert [len(jumbo) for jumbo, _ in reader.read(5)] == [2, 0]
    assert [stop.cursor for stop in reader.stops] == [Cursor(0, 2)]


def test_slices_of_every_format_are_its_rows(example_files):
    for suffix in ("parquet", "csv", "jsonl", "txt"):
        source = files(example_files / f"*.{suffix}")
        reader = SliceReader(source, 0, [Slice(0, 600, None), Slice(1, 0, 5)])
        batches = [jumbo.batch for jumbo, _ in reader.read(7)]
        rows = pa.Table.from_batches(batches).to_pylist()
        expected = NUMBERS.to_pylist() if suffix != "txt" else [{"line": line} for line in LINES]
        assert rows == expected[600:618], suffix
