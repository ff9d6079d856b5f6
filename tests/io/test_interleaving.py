"""Interleavings as Spark's driver decides them: what has come is taken, and shared out."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.io.interleaving import Silences, take_arrived
from anabranch.io.offsets import SourceOffsets
from anabranch.io.source import Chunk, Extent, Source
from anabranch.state.positions import IDLE


class Come(Source):
    """Parts of which so many rows have come.

    Args:
        rows: The rows of each part.
    """

    schema, bounded, order, interleaved = pa.schema([("x", pa.int64())]), False, "arrival", True

    def __init__(self, *rows: int) -> None:
        self.rows = {f"part{number}": each for number, each in enumerate(rows)}

    def parts(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def extent(self, part: str) -> Extent:
        return Extent(self.rows[part], growing=True)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        raise AssertionError("only the extents are asked for")


@example([4, 5], -6, 1)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(-3, 60), st.integers(1, 4))
def test_a_batch_takes_what_has_come_up_to_its_budget(rows: list[int], budget: int, readers: int):
    arrived = take_arrived(Come(*rows), SourceOffsets(), budget, readers)
    assert arrived.rows == arrived.after.rows == min(sum(rows), max(0, budget))


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 60), st.integers(1, 4))
def test_the_numbers_of_a_reader_come_before_those_of_the_next(
    rows: list[int], budget: int, readers: int
):
    runs = [
        run
        for each in take_arrived(Come(*rows), SourceOffsets(), budget, readers).runs
        for run in each
    ]
    assert runs == sorted(runs)
    numbers = [n for run in runs for n in range(run.first, run.first + max(1, run.rows))]
    assert numbers == list(range(len(numbers)))


def test_a_part_whose_rows_wait_is_not_idle_though_none_of_them_are_taken():
    source, silences = Come(5, 0), Silences(after_s=10.0)
    for now_s, budget in ((0.0, 0), (20.0, 0), (21.0, 9)):
        arrived = take_arrived(source, SourceOffsets(), budget, 1, silences, now_s)
        told = {run.part for run in arrived.after.runs if run.passed == IDLE}
        assert told == ({"part1"} if now_s == 20.0 else set())
