"""Interleaved sources in Spark's batches, where the driver decides what is read next."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.planning.starting import readers_side_by_side
from anabranch.testing.sequential import run_sequential
from tests.engines.spark.in_process import InProcess
from tests.law.arriving import Arriving, Listed

SCHEMA = pa.schema([("part", pa.string()), ("row", pa.int64())])


def rows_of(sizes: list[int]) -> dict[str, list[dict[str, object]]]:
    """Rows that say where they are from, by part."""
    names = [f"part{number}" for number in range(len(sizes))]
    return {
        name: [{"part": name, "row": row} for row in range(size)]
        for name, size in zip(names, sizes, strict=True)
    }


class Unlisted(Arriving):
    """One part is listed at first, all of them a little later, and then the first one is not."""

    asked = 0

    def parts(self) -> tuple[str, ...]:
        Unlisted.asked += 1
        names = tuple(self._parts)
        return names[:1] if Unlisted.asked < 3 else names if Unlisted.asked < 6 else names[1:]


def odd_rows(batch: pa.RecordBatch) -> list[bool]:
    """Every second row of a part."""
    return [row % 2 == 1 for row in batch["row"].to_pylist()]


@pytest.mark.parametrize("between", [False, True])
@settings(max_examples=20)
@given(
    sizes=st.lists(st.integers(0, 20), min_size=4, max_size=6),
    cores=st.integers(2, 4),
    seed=st.integers(0, 99),
)
def test_sinks_that_write_where_rows_are_read_keep_their_order(
    between: bool, sizes: list[int], cores: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The plan that Spark starts with: as many readers, stateless replicas and sinks as cores."""
    flow = Flow("copy")
    stream = flow.source("s", Listed(rows_of(sizes), SCHEMA))
    if between:
        stream = stream.filter("odd", odd_rows)
    stream.sink("out", ab.collect())
    plan = readers_side_by_side(flow, cores)
    assert plan.region("out").replicas == cores
    directory: Path = tmp_path_factory.mktemp("run") / "checkpoint"
    got = InProcess(flow, directory, seed).run([plan])
    expected = run_sequential(flow, interleavings=got.interleavings)
    assert got.rows("out") == expected.rows("out")


def test_a_part_that_is_not_listed_any_more_is_read_to_its_end(tmp_path: Path) -> None:
    flow = Flow("copy")
    flow.source("s", Unlisted(rows_of([30, 10]), SCHEMA)).sink("out", ab.collect())
    got = InProcess(flow, tmp_path / "checkpoint", seed=1).run([Plan.sequential(flow)])
    expected = [row for rows in rows_of([30, 10]).values() for row in rows]
    assert sorted(got.rows("out"), key=lambda row: (row["part"], row["row"])) == expected


def test_rows_are_stamped_once_though_their_parts_join_and_end(tmp_path: Path) -> None:
    clock = itertools.count(1)
    flow = Flow("stamps")
    source = ab.stamped(Listed(rows_of([9, 6]), SCHEMA), lambda: next(clock))
    flow.source("s", source).sink("out", ab.collect())
    got = InProcess(flow, tmp_path / "checkpoint", seed=1).run([Plan.sequential(flow)])
    stamps = [row["arrival"] for row in got.rows("out")]
    assert len(stamps) == 15
    assert stamps == sorted(stamps)
