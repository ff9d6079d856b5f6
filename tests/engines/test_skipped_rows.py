"""Where a row that was set aside stands in its source."""

from __future__ import annotations

import anabranch as ab
from anabranch.engines.skipped_rows import skipped_row
from anabranch.events import SkippedRow
from anabranch.io.reader import PART_SHIFT
from anabranch.io.source import WrappedSource
from anabranch.operators.base import SkippedAt

ROWS = ab.memory([{"x": 1}, {"x": 2}])


class Brought(WrappedSource):
    """A source whose rows an engine brings."""

    pushed = True


def row_at(seq: int, source: ab.io.Source) -> SkippedRow | None:
    flow = ab.Flow("skipping")
    flow.source("rows", source).sink("out", ab.collect())
    return skipped_row(flow, SkippedAt(0, seq, "why", "text"))


def test_rows_are_counted_from_one():
    assert row_at(1, ROWS) == SkippedRow("rows", "memory", 2, "why", "text")


def test_a_part_that_is_not_there_has_no_name():
    assert row_at(5 << PART_SHIFT, ROWS) == SkippedRow("rows", "", 0, "why", "text")


def test_rows_that_an_engine_brings_have_no_number():
    assert row_at(1, Brought(ROWS)) == SkippedRow("rows", "", 0, "why", "text")
