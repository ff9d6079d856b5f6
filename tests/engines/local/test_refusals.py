"""What the local engine cannot do is refused by name, before anything runs."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BuildError, EngineError
from anabranch.io import collect, memory
from anabranch.io.source import Chunk, Extent, Source


class Pushed:
    """A source whose rows somebody else brings."""

    def __init__(self) -> None:
        self._rows = memory([{"x": 1}])
        self.pushed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def __repr__(self) -> str:
        return "a streaming DataFrame"


def flow_of(source: Any) -> ab.Flow:
    flow = ab.Flow("refused")
    flow.source("rows", source).sink("out", collect())
    return flow


class Streams(Source):
    """Endless, with so many parts."""

    schema, bounded, order = pa.schema([("x", pa.int64())]), False, "row"

    def __init__(self, parts: int) -> None:
        self._parts = tuple(map(str, range(parts)))

    def parts(self) -> tuple[str, ...]:
        return self._parts

    def extent(self, part: str) -> Extent:
        return Extent(0, growing=True)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        return Chunk(pa.record_batch({"x": []}, self.schema), dry=True)


@pytest.mark.parametrize("parts", [0, 2])
def test_an_endless_source_with_several_parts_must_be_interleaved(parts: int):
    with pytest.raises(BuildError, match=f"got {parts} parts.*interleaved = True") as refusal:
        ab.run(flow_of(Streams(parts)), engine="local", seconds=5)
    assert refusal.value.step == "rows"


@pytest.mark.parametrize(
    ("option", "value"),
    [("master", "local[2]"), ("session", object()), ("conf", {"spark.x": "1"})],
)
def test_options_of_spark_are_refused(option: str, value: Any):
    with pytest.raises(EngineError, match=option) as refusal:
        ab.run(flow_of(memory([{"x": 1}])), engine="local", **{option: value})
    assert str(refusal.value.subject) == "engine 'local'"
    assert "spark" in refusal.value.remedy


def test_a_source_that_is_pushed_is_refused_by_its_name():
    before = threading.active_count()
    with pytest.raises(EngineError, match=r"a streaming DataFrame.*engine='spark'") as refusal:
        ab.run(flow_of(Pushed()), engine="local")
    assert refusal.value.step == "rows"
    assert threading.active_count() == before
