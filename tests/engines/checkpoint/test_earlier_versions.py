"""A run goes on from a checkpoint that an earlier version of the library wrote."""

import pickle
from pathlib import Path
from shutil import unpack_archive

import pytest

import anabranch as ab
from anabranch.errors import StateError
from anabranch.state.tables.store import ObjectStore
from anabranch.testing import run_sequential
from tests.engines.checkpoint.earlier_flow import build

WRITTEN = Path(__file__).with_name("written_by_0_1")
ROWS_WRITTEN = 10_640
"""How many rows had been delivered to the sink when the checkpoints were made."""


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(tmp_path, engine):
    unpack_archive(WRITTEN / f"{engine}.zip", tmp_path)
    expected = run_sequential(build()).rows("out")
    flow = build()
    ab.run(flow, engine=engine, checkpoint=tmp_path)
    (sink,) = flow.sinks().values()
    assert sink.table().to_pylist() == [dict(row) for row in expected[ROWS_WRITTEN:]]
    assert len(expected) > ROWS_WRITTEN


class Gone:
    pass


def test_state_of_a_class_that_is_gone_is_refused_by_its_name(monkeypatch):
    saved = pickle.dumps({0: {"key": Gone()}})
    monkeypatch.delattr(f"{__name__}.Gone")
    with pytest.raises(StateError, match=r"Gone.*put the class back") as refused:
        ObjectStore().restore(saved, [0])
    assert isinstance(refused.value.__cause__, AttributeError)
