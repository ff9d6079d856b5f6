"""`check` on real Spark: an honest flow passes, a liar is found and named."""

from __future__ import annotations

import tempfile

import pytest

from anabranch.apps import word_count
from anabranch.errors import UnknownNameError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.testing import on_engine
from anabranch.testing.checking import check
from tests.engines.spark.conftest import spark
from tests.sampling import thorough

__all__ = ["spark"]  # a fixture: one session for all tests of a worker


@thorough
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_word_count_on_spark_agrees_with_the_sequential_run(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    changes = []
    whole = on_engine.start

    def start(*arguments, **options):
        handle = whole(*arguments, **options)
        reconfigure = handle.reconfigure
        handle.reconfigure = lambda plan: (changes.append(plan), reconfigure(plan))[1]
        return handle

    monkeypatch.setattr(on_engine, "start", start)
    report = check(word_count.build(), engine="spark", cases=3, rows=40, processes=0)
    assert (report.ok, report.rows, report.runs) == (True, 40, 4)
    assert changes, "no plan change between batches"
    assert list(tmp_path.glob("anabranch-*")) == [], "checkpoints that nobody asked for stay"
    assert str(report) == (
        "word-count: 4 random plans, batchings and plan changes on spark over 40 rows "
        "agree with the sequential run"
    )


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_an_operator_that_depends_on_batching_is_found_on_spark():
    flow = Flow("lying")
    flow.source("s", memory([{"x": i} for i in range(20)])).map(
        "liar", lambda b: {"n": list(range(b.num_rows))}, out="n: int64"
    ).sink("out", collect())
    report = check(flow, engine="spark", cases=2, processes=0)
    assert not report.ok
    assert (report.finding.question, report.finding.step) == ("depends on batching", "liar")
    assert report.finding.how.startswith("spark with 65536 → ")
    assert report.finding.input.size <= 3


def test_an_unknown_engine_is_refused():
    with pytest.raises(UnknownNameError, match="an engine among"):
        check(word_count.build(text="a"), engine="sprak")
