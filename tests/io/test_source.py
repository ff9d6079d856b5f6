"""The protocol of sources: what a class must define, what it inherits, what a wrapper passes on."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BuildError
from anabranch.io import memory, stamped
from anabranch.io.source import DEFAULTS, MEMBERS, Chunk, Extent, Source, WrappedSource

SCHEMA = pa.schema([("x", pa.int64())])
ROWS = 10


class SixMembers:
    """A source that was written for the protocol before it had defaults, and inherits nothing."""

    schema, bounded, order = SCHEMA, True, "index"

    def parts(self) -> tuple[str, ...]:
        return ("numbers",)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        numbers = list(range(start, min(start + rows, ROWS)))
        return Chunk(pa.record_batch({"x": numbers}, SCHEMA)) if numbers else None

    def due_rows(self, elapsed_s: float) -> int | None:
        return None


class Numbers(SixMembers, Source):
    """The same, which inherits the rest."""


class Strange(Numbers):
    """No member has its default."""

    schema, bounded, order = pa.schema([("y", pa.string())]), False, None
    pushed, one_reader, arrivals = True, True, SimpleNamespace(latest=object())
    interleaved, idle_after_s = True, 5.0

    def parts(self) -> tuple[str, ...]:
        return ("strange",)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        return Chunk(pa.record_batch({"y": [f"{part} {start} {rows}"]}))

    def due_rows(self, elapsed_s: float) -> int | None:
        return int(elapsed_s)

    def extent(self, part: str) -> Extent:
        return Extent(len(part), growing=True)


ARGUMENTS = {"read": ("p", 3, 4), "due_rows": (7.0,), "extent": ("part",)}


def answers(source: Source) -> dict[str, object]:
    """What a source gives for each member."""
    found = {name: getattr(source, name) for name in MEMBERS}
    return {
        name: member(*ARGUMENTS.get(name, ())) if callable(member) else member
        for name, member in found.items()
    }


def summed(source: Source) -> list[dict[str, int]]:
    flow = ab.Flow("sums")
    out = ab.collect()
    flow.source("numbers", source).aggregate("sum", key="x", n=ab.count(), emit="final").sink(
        "out", out
    )
    ab.run(flow, engine="local")
    return out.table().to_pylist()


def test_a_source_that_inherits_need_not_define_what_has_a_default():
    assert len(summed(Numbers())) == ROWS


def test_one_that_lacks_members_is_refused_with_their_names_and_what_to_inherit():
    with pytest.raises(BuildError) as refusal:
        ab.Flow("sums").source("numbers", SixMembers())
    assert refusal.value.got == (
        "SixMembers without pushed, interleaved, idle_after_s, one_reader, arrivals, extent"
    )
    assert "inherit from anabranch.io.Source" in refusal.value.remedy
    assert all(name in refusal.value.remedy for name in DEFAULTS)


def test_what_is_no_source_at_all_is_refused_before_anything_is_asked_of_it():
    with pytest.raises(BuildError, match="list without schema, bounded, order, parts, read"):
        ab.Flow("sums").source("numbers", [1, 2, 3])


def test_a_class_without_what_every_source_must_define_cannot_be_made():
    class Unread(Source):
        schema, bounded, order = SCHEMA, True, "index"

        def parts(self) -> tuple[str, ...]:
            return ("numbers",)

    with pytest.raises(TypeError, match="read"):
        Unread()


def test_the_case_for_wrappers_differs_from_every_default():
    usual, strange = answers(Numbers()), answers(Strange())
    assert all(strange[name] != usual[name] for name in MEMBERS)


def test_a_wrapper_passes_every_member_on():
    wrapped, bare = answers(WrappedSource(Strange())), answers(Strange())
    assert wrapped.pop("arrivals").latest is bare.pop("arrivals").latest
    assert wrapped == bare


def test_a_stamped_source_is_pushed_where_the_wrapped_one_is():
    assert ab.stamped(Strange(), lambda: 0).pushed
    assert not ab.stamped(Numbers(), lambda: 0).pushed


class Doubled(WrappedSource):
    def read(self, part, start, rows):
        chunk = super().read(part, start, rows)
        values = [2 * x for x in chunk.batch["x"].to_pylist()]
        return Chunk(chunk.batch.set_column(0, "x", pa.array(values)))


def test_a_wrapper_stays_around_a_source_whose_stamps_are_recalled():
    source = Doubled(stamped(memory([{"x": 1}, {"x": 2}]), clock=lambda: 5))
    record = source.arrivals.stamp("memory", 0, 2, None)
    recalled = source.arrivals.recalling(record).read("memory", 0, 2).batch
    assert recalled["x"].to_pylist() == [2, 4]
    assert recalled.schema.names == source.schema.names
