from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.io import memory
from anabranch.io.reader import DONE, PART_SHIFT, SourceReader
from anabranch.io.source import Chunk, Source
from anabranch.state.positions import FIRST, LAST, Root, end, is_end

NEXT_PART = 1 << PART_SHIFT


class Parts(Source):
    """A source of several parts; each row says where it stands."""

    schema = pa.schema([("part", pa.int64()), ("row", pa.int64())])
    bounded, order = True, "part and row"

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def parts(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.lengths))))

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        stop = min(start + rows, self.lengths[int(part)])
        if start >= stop:
            return None
        rows_of = {"part": [int(part)] * (stop - start), "row": list(range(start, stop))}
        return Chunk(pa.record_batch(rows_of, schema=self.schema))


def everything(reader: SourceReader, sizes: list[int]) -> list[tuple[tuple[int, ...], dict]]:
    """All (position, row) until the end, checking that each stands before the frontier."""
    made = []
    for number in range(10_000):
        jumbo, frontier = reader.read(sizes[number % len(sizes)])
        if jumbo is not None:
            assert jumbo.positions.before(frontier).all()
            made += zip(jumbo.positions.rows(), jumbo.batch.to_pylist(), strict=True)
        if reader.ended:
            return made
    raise AssertionError("the reader does not end")


lengths = st.lists(st.integers(0, 7), max_size=4)
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def test_a_tuple_is_numbered_by_part_and_row():
    rows = everything(SourceReader(Parts(2, 1), rank=3), [9])
    assert [position for position, _ in rows] == [
        (0, 3, 0, 0),
        (1, 3, 1, 0),
        (NEXT_PART, 3, NEXT_PART, 0),
    ]


@given(lengths, sizes)
def test_positions_do_not_depend_on_how_much_is_read_at_a_time(parts, chosen):
    source = Parts(*parts)
    assert everything(SourceReader(source, 0), chosen) == everything(SourceReader(source, 0), [1])


def test_offsets_name_the_next_row_of_each_part():
    reader = SourceReader(Parts(3, 2), 0)
    reader.read(2)
    assert reader.offsets == {0: 2, 1: 0}


def test_a_part_that_was_read_is_done():
    reader = SourceReader(Parts(1, 2), 0)
    reader.read(5)
    reader.read(5)
    assert reader.offsets == {0: DONE, 1: 0}


def test_the_frontier_is_the_next_tuple():
    reader = SourceReader(Parts(3), rank=4)
    _, frontier = reader.read(2)
    assert frontier == Root(2, 4, 2, 0)


def test_the_end_of_a_part_moves_the_frontier_to_the_next():
    reader = SourceReader(Parts(1, 2), 0)
    reader.read(1)
    jumbo, frontier = reader.read(1)
    assert (jumbo, frontier) == (None, Root(NEXT_PART, 0, NEXT_PART, 0))


def test_the_end_is_told_with_a_mark_so_that_clocks_stop_waiting():
    reader = SourceReader(Parts(1), 2)
    reader.read(1)
    jumbo, frontier = reader.read(1)
    assert (len(jumbo), [m.passed for m in jumbo.marks], frontier, reader.ended) == (
        0,
        [LAST],
        end(FIRST),
        True,
    )


def test_the_mark_of_the_end_stands_behind_every_tuple_of_the_source():
    reader = SourceReader(Parts(3), 0)
    reader.read(3)
    reader.read(1)
    jumbo, _ = reader.read(1)
    (mark,) = jumbo.marks
    last = everything(SourceReader(Parts(3), 0), [3])[-1][0]
    assert mark.root > last


def test_a_source_without_parts_is_over_at_once():
    reader = SourceReader(Parts(), 0)
    assert is_end(reader.frontier)


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_heartbeat_stands_between_the_same_tuples_however_it_is_read(rows):
    source = memory([{"t": t} for t in (1, 2, 9)], heartbeats={2: 8})
    reader = SourceReader(source, 0)
    marks = []
    while not reader.ended:
        jumbo, _ = reader.read(rows)
        marks += [] if jumbo is None else jumbo.marks
    assert [(m.root, m.passed) for m in marks[:-1]] == [(Root(2, 0, 2, -1), 8)]


def test_reading_again_behind_the_end_says_the_end_again():
    reader = SourceReader(Parts(1), 0)
    everything(reader, [1])
    _, frontier = reader.read(1)
    assert is_end(frontier)
