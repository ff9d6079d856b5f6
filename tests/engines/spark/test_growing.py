"""Parts that grow: a batch takes rows that have come and no others, so that a replay finds them."""

from __future__ import annotations

import pyarrow as pa

import anabranch as ab
from anabranch.errors import SourceError
from anabranch.io.offsets import SourceOffsets
from anabranch.io.source import Chunk, Extent, Source
from anabranch.io.splits import Slice, take
from tests.engines.spark.test_intake import Driver
from tests.io.test_slices import SCHEMA


class Growing(Source):
    """One part that has so many rows so far."""

    schema, bounded, order, one_reader = SCHEMA, False, "row", True

    def __init__(self, rows: int = 0) -> None:
        self.rows, self.ended = rows, False

    def parts(self) -> tuple[str, ...]:
        return ("stream",)

    def extent(self, part: str) -> Extent:
        return Extent(self.rows, exact=self.ended, growing=not self.ended)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        stop = min(start + rows, self.rows)
        if start >= self.rows and self.ended:
            return None
        columns = {"part": [0] * (stop - start), "row": list(range(start, stop))}
        return Chunk(pa.RecordBatch.from_pydict(columns, SCHEMA), dry=stop == self.rows)


def test_a_slice_ends_at_the_last_row_that_has_come():
    assert take(Growing(10), SourceOffsets({0: 4}, 1), budget=100, readers=1) == [[Slice(0, 4, 6)]]
    assert take(Growing(10), SourceOffsets({0: 4}, 1), budget=3, readers=1) == [[Slice(0, 4, 3)]]
    assert take(Growing(10), SourceOffsets({0: 10}, 1), budget=3, readers=1) == [[]]


def test_there_is_no_batch_while_nothing_has_come():
    source = Growing()
    driver = Driver(source)
    assert not driver.batch(5)
    source.rows = 7
    assert [driver.batch(5), driver.batch(5), driver.batch(5)] == [True, True, False]
    assert driver.read["s0"] == [(0, row) for row in range(7)]
    assert not driver.intake.over


def test_what_has_come_and_was_not_read_is_the_backlog():
    source = Growing(7)
    driver = Driver(source)
    driver.batch(5)
    assert (driver.intake.backlog("s0", 0.0), driver.intake.behind(0.0)) == (2, True)
    driver.batch(5)
    assert (driver.intake.backlog("s0", 0.0), driver.intake.behind(0.0)) == (0, False)


def test_the_end_is_found_when_it_has_come():
    source = Growing(3)
    driver = Driver(source)
    driver.batch(5)
    source.rows, source.ended = 4, True
    assert driver.batch(5)
    assert driver.intake.over
    assert driver.read["s0"] == [(0, row) for row in range(4)]


def test_a_limit_that_was_reached_before_ends_it_though_nothing_has_come_since():
    for limit in (3, 5):
        driver = Driver(Growing(5), rows=limit)
        driver.intake.restore({"s0": SourceOffsets({0: 5}, 1, rows=5)})
        assert driver.batch(10)
        assert driver.intake.over
        assert driver.read["s0"] == []


def test_a_source_that_cannot_say_what_waits_does_not_fail_for_that():
    class Silent(Growing):
        def extent(self, part: str) -> Extent:
            raise SourceError(part, "a server that answers", "silence", "wake it up")

    driver = Driver(Silent(5))
    assert driver.intake.backlog("s0", 0.0) is None
    assert driver.intake.behind(0.0)


def test_rows_that_come_are_stamped_when_they_have_come():
    source = Growing(2)
    ticks = iter([10, 20])
    driver = Driver(ab.stamped(source, lambda: next(ticks)))
    assert [driver.batch(5), driver.batch(5)] == [True, False]
    source.rows = 3
    assert driver.batch(5)
    assert [stamp.microsecond for _, _, stamp in driver.read["s0"]] == [10, 10, 20]


def test_a_limit_waits_for_rows_that_have_not_come():
    source = Growing(3)
    driver = Driver(source, rows=5)
    assert driver.batch(10)
    assert not driver.intake.over
    source.rows = 9
    assert driver.batch(10)
    assert driver.intake.over
    assert driver.read["s0"] == [(0, row) for row in range(5)]
