"""A run goes on from a checkpoint that an earlier version of the library wrote."""

import pickle
from functools import cache
from pathlib import Path
from shutil import unpack_archive

import pytest

import anabranch as ab
from anabranch.errors import StateError
from anabranch.state.tables.store import ObjectStore
from anabranch.testing import run_sequential
from tests.engines.checkpoint.earlier_flow import build
from tests.engines.spark.conftest import spark

__all__ = ["spark"]  # a fixture: one session for all tests of a worker

WRITTEN = Path(__file__).with_name("written_by_0_1")
ROWS_WRITTEN = 10_640
"""How many rows had been delivered to the sink when the checkpoints were made."""


def gone_on(tmp_path, engine, session=None):
    unpack_archive(WRITTEN / f"{engine}.zip", tmp_path)
    flow = build()
    ab.run(flow, engine=engine, checkpoint=tmp_path, session=session)
    (sink,) = flow.sinks().values()
    return sink.table().to_pylist()


@cache
def rows_to_come():
    rows = run_sequential(build()).rows("out")
    assert len(rows) > ROWS_WRITTEN
    return [dict(row) for row in rows[ROWS_WRITTEN:]]


def test_a_local_checkpoint_of_an_earlier_version_is_gone_on_from(tmp_path):
    assert gone_on(tmp_path, "local") == rows_to_come()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_checkpoint_of_spark_of_an_earlier_version_is_gone_on_from(tmp_path, spark):
    assert gone_on(tmp_path, "spark", spark) == rows_to_come()


class Gone:
    pass


def test_state_of_a_class_that_is_gone_is_refused_by_its_name(monkeypatch):
    saved = pickle.dumps({0: {"key": Gone()}})
    monkeypatch.delattr(f"{__name__}.Gone")
    with pytest.raises(StateError, match=r"Gone.*put the class back") as refused:
        ObjectStore().restore(saved, [0])
    assert isinstance(refused.value.__cause__, AttributeError)
