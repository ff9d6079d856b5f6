"""Streaming DataFrames beside other sources: which orders there are, and which can be merged."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructType

import anabranch as ab
from anabranch.engines.spark.dataframes import require_one_order
from anabranch.engines.spark.task_inputs import Program
from anabranch.errors import BuildError
from anabranch.flow import Flow

Streams = dict[str, Any]


def frame(*columns: str) -> Any:
    """As much of a streaming DataFrame of whole numbers as can be had without Spark."""
    schema = StructType()
    for name in columns:
        schema = schema.add(name, LongType())
    return SimpleNamespace(isStreaming=True, schema=schema)


def streams(time: str | None) -> tuple[Flow, Streams]:
    """Two DataFrames and two sources that are read row by row."""
    flow = Flow("orders", buckets=8)
    sources = {
        "frame": ab.dataframe(frame("t", "k"), order="t"),
        "other frame": ab.dataframe(frame("t", "k"), order="t"),
        "rows": ab.memory([{"t": 1, "k": 1}]),
        "other rows": ab.memory([{"t": 1, "k": 1}]),
    }
    return flow, {name: flow.source(name, each, time=time) for name, each in sources.items()}


def united(one: str, other: str) -> Callable[[Streams], Any]:
    return lambda found: found[one].union("both", found[other])


MIXED = {
    "a union": united("frame", "rows"),
    "a union the other way round": united("rows", "frame"),
    "a union far behind": lambda found: (
        found["frame"]
        .map("shaped", lambda batch: {}, keeps="*")
        .union("both", found["other rows"].filter("some", lambda batch: [True]))
    ),
    "a union of a union": lambda found: (
        found["rows"].union("first", found["other rows"]).union("both", found["frame"])
    ),
}


@pytest.mark.parametrize("how", MIXED)
def test_what_is_numbered_in_two_ways_cannot_be_merged_by_number(how: str) -> None:
    flow, found = streams(time=None)
    MIXED[how](found).sink("out", ab.collect())
    told = r"streams that have one order, got .*; order both by event time"
    with pytest.raises(BuildError, match=told) as caught:
        require_one_order(Program(flow, "", ""))
    assert caught.value.step == "both"


@pytest.mark.parametrize("how", MIXED)
def test_event_time_is_one_order_for_all(how: str) -> None:
    flow, found = streams(time="t")
    MIXED[how](found).sink("out", ab.collect())
    require_one_order(Program(flow, "", ""))


@pytest.mark.parametrize("pair", [("frame", "other frame"), ("rows", "other rows")])
def test_sources_of_one_kind_have_one_order(pair: tuple[str, str]) -> None:
    flow, found = streams(time=None)
    united(*pair)(found).sink("out", ab.collect())
    require_one_order(Program(flow, "", ""))


def test_sources_that_never_meet_need_no_common_order() -> None:
    flow, found = streams(time=None)
    found["frame"].sink("out", ab.collect())
    found["rows"].sink("other out", ab.collect())
    require_one_order(Program(flow, "", ""))
