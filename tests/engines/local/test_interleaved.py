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
from anabranch.planning.plan import Plan
from anabranch.testing.sequential import run_sequential
from tests.law.arriving import Arriving, let_come

SCHEMA = pa.schema([("part", pa.string()), ("row", pa.int64())])


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
    source = Arriving(rows, SCHEMA)
    flow = flow_of(source, tmp_path / "out")
    plan = Plan.sequential(flow).with_source("s", batch_rows=2)
    ab.run(flow, engine="local", plan=plan, workers=1, checkpoint=tmp_path / "checkpoint")
    let_come(source, runs)
    expected = run_sequential(flow, interleavings={"s": runs})
    assert read_back(tmp_path / "out").to_pylist() == expected.rows("out")
    assert sum(run.rows for run in runs) == 3 * 150
