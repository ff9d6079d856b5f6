"""Interleaved sources on the local engine: what its checkpoints record of the order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.local import engine
from anabranch.flow import Flow
from anabranch.io import read_back
from anabranch.io.offsets import Run
from anabranch.io.source import Chunk, Extent, Source
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.law.arriving import Listed, let_come

SCHEMA = pa.schema([("part", pa.string()), ("row", pa.int64())])


class Silent(Source):
    """Parts of which two rows have come, and no more come.

    Args:
        parts: How many there are.
    """

    schema, bounded, order, interleaved = SCHEMA, False, "arrival", True

    def __init__(self, parts: int) -> None:
        self._parts = tuple(map(str, range(parts)))

    def parts(self) -> tuple[str, ...]:
        return self._parts

    def extent(self, part: str) -> Extent:
        return Extent(2, growing=True)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        numbers = list(range(start, min(2, start + rows)))
        columns = {"part": [part] * len(numbers), "row": numbers}
        return Chunk(pa.record_batch(columns, self.schema), dry=True)


def flow_of(source: Any, folder: Path) -> Flow:
    flow = Flow("record")
    flow.source("s", source).sink("out", ab.parquet(folder))
    return flow


def test_the_versions_record_the_order_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SAVE_S", 0.05)
    runs: list[Run] = []
    publish = Checkpoint.publish

    def noting(self: Checkpoint, manifest: Manifest) -> None:
        runs.extend(manifest.offsets["s"].runs)
        publish(self, manifest)

    monkeypatch.setattr(Checkpoint, "publish", noting)
    rows = {name: [{"part": name, "row": row} for row in range(150)] for name in "abc"}
    source = Listed(rows, SCHEMA)
    flow = flow_of(source, tmp_path / "out")
    plan = Plan.sequential(flow).with_source("s", batch_rows=2)
    ab.run(flow, engine="local", plan=plan, workers=1, checkpoint=tmp_path / "checkpoint")
    let_come(source, runs)
    expected = run_sequential(flow, interleavings={"s": runs})
    assert read_back(tmp_path / "out").to_pylist() == expected.rows("out")
    assert sum(run.rows for run in runs) == 3 * 150


def test_all_is_processed_though_many_parts_are_silent(tmp_path: Path) -> None:
    flow = flow_of(Silent(200), tmp_path / "out")
    with ab.start(flow, engine="local", workers=1) as run:
        assert run.process_all_available(60)
        assert run.engine.rows == (400, 400)
