"""The report of a task: typed, whole, and refused where another version wrote it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engines.spark.task_report import (
    FORMAT,
    ReplicaWork,
    SourceRead,
    StateSaved,
    StateWritten,
    StepWork,
    TaskReport,
    Work,
)
from anabranch.errors import EngineError
from anabranch.io.offsets import Cursor
from anabranch.io.sink import PositionRange, Receipt
from anabranch.operators.base import Counters, SkippedAt
from anabranch.operators.far_times import Doubted
from anabranch.operators.timed import Digest, Judged
from anabranch.runtime.bucket_loads import Loads, OftenKey
from anabranch.runtime.early_verdicts import Verdicts

names = st.text(max_size=5)
counts = st.integers(0, 2**63 - 1)
seconds = st.floats(0, 1e9)


def by_name(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.dictionaries(names, values, max_size=2)


cursors = st.builds(Cursor, counts, counts)
loads = st.builds(
    Loads,
    st.lists(counts, max_size=3).map(tuple),
    seconds,
    st.lists(st.builds(OftenKey, st.integers(0, 2**64 - 1), names, counts, seconds)).map(tuple),
)
skipped = st.builds(SkippedAt, counts, counts, names, names)
lost = st.builds(Counters, *[counts] * 5, st.none() | skipped)
files = st.builds(StateWritten, st.booleans(), counts, counts)
positions = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6).map(tuple)
ranges = st.builds(PositionRange, positions, positions)
receipts = st.builds(Receipt, names, counts, st.booleans(), st.none() | ranges)
times = st.integers(-(2**62), 2**62)
doubted = st.none() | st.builds(Doubted, times, times, counts)
digests = st.builds(Digest, st.none() | times, counts, times, times, times, times, doubted)
judged = st.lists(st.builds(Judged, digests, times), max_size=2).map(tuple)
memories = st.none() | st.binary(max_size=5)
verdicts = st.builds(Verdicts, judged, memories, st.none() | times, st.booleans())
reports = st.builds(
    TaskReport,
    counts,
    counts,
    counts,
    seconds,
    st.dictionaries(st.sampled_from(Work), seconds),
    counts,
    by_name(st.builds(SourceRead, counts, st.none() | cursors, st.none() | seconds)),
    by_name(st.builds(StepWork, counts, counts, seconds)),
    by_name(st.builds(ReplicaWork, counts, seconds)),
    by_name(st.lists(loads, max_size=2).map(tuple)),
    by_name(counts),
    by_name(st.none() | st.integers(-(2**63), 2**63 - 1)),
    by_name(lost),
    st.lists(
        st.builds(
            StateSaved,
            names,
            counts,
            names,
            st.lists(counts, max_size=3).map(tuple),
            st.none() | files,
        ),
        max_size=2,
    ).map(tuple),
    by_name(st.lists(receipts, max_size=2).map(tuple)),
    by_name(verdicts),
)


def in_full(report: TaskReport) -> dict[str, object]:
    """With the rows that `Counters` leaves out of comparisons."""
    return dataclasses.asdict(report)


@given(reports)
def test_a_report_arrives_as_it_was_sent(report):
    assert in_full(TaskReport.from_bytes(report.to_bytes())) == in_full(report)


def test_a_report_of_another_format_is_refused():
    data = (FORMAT + 1).to_bytes(2) + TaskReport(0, 0).to_bytes()[2:]
    with pytest.raises(EngineError, match=f"in format {FORMAT}, got format {FORMAT + 1}"):
        TaskReport.from_bytes(data)


def test_a_value_of_another_type_is_named():
    wrong = msgspec.to_builtins(TaskReport(0, 0)) | {
        "sinks": {"out": [{"name": "file", "rows": "many"}]}
    }
    data = FORMAT.to_bytes(2) + msgspec.msgpack.encode(wrong)
    with pytest.raises(
        EngineError, match=r"\$\.sinks\[\.\.\.\]\[0\]\.rows.*same version of anabranch"
    ):
        TaskReport.from_bytes(data)
