from __future__ import annotations

import pytest

from anabranch.errors import BuildError, SchemaError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.row_wise.map_filter_expand import flat_map
from anabranch.operators.row_wise.union import Union
from tests.operators.small_flows import agreed, outcome, values


def named(name: str, *times: int) -> list[dict]:
    return [{"ts": t, "name": f"{name}{i}"} for i, t in enumerate(times)]


def test_streams_without_time_are_merged_by_number_then_source():
    result = outcome(Union(2), named("a", 0, 0), named("b", 0, 0, 0))
    assert values(result, "name") == ["a0", "b0", "a1", "b1", "b2"]


def test_timed_streams_are_merged_by_time_then_source_then_number():
    result = outcome(Union(2), named("a", 1, 5, 5), named("b", 0, 5, 9), time="ts")
    assert values(result, "name") == ["b0", "a0", "a1", "a2", "b1", "b2"]


def test_three_streams_are_one():
    result = outcome(Union(3), named("a", 3), named("b", 1), named("c", 2), time="ts")
    assert values(result, "name") == ["b0", "c0", "a0"]


def test_a_stream_and_what_was_made_of_it_stand_event_by_event_in_the_order_of_ports():
    flow = Flow("f")
    source = flow.source("s", memory(named("a", 0, 0)))
    copies = flat_map(
        lambda row: [{**row, "name": row["name"] + end} for end in "xy"],
        out="ts: int64, name: string",
    )
    source.apply("copies", copies).union("u", source).sink("out", collect())
    assert values(agreed(flow), "name") == ["a0x", "a0y", "a0", "a1x", "a1y", "a1"]


def test_a_stream_with_itself_gives_everything_twice():
    flow = Flow("f")
    source = flow.source("s", memory(named("a", 0, 0)))
    source.union("u", source).sink("out", collect())
    assert values(agreed(flow), "name") == ["a0", "a0", "a1", "a1"]


def test_other_columns_are_refused():
    flow = Flow("f")
    a, b = flow.source("a", memory([{"x": 1}])), flow.source("b", memory([{"x": "1"}]))
    with pytest.raises(
        SchemaError, match=r"step 'u': expected the columns x: int64 .* got x: string on port 1"
    ):
        a.union("u", b)


def test_streams_by_time_and_by_number_are_not_merged():
    flow = Flow("f")
    a = flow.source("a", memory(named("a", 1)), time="ts")
    with pytest.raises(BuildError, match="step 'u': expected inputs ordered alike"):
        a.union("u", flow.source("b", memory(named("b", 1))))
