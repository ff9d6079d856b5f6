"""Join: pairs of tuples of two streams with the same key, at most so far apart in time.

A pair comes out once, when the later of its two tuples is processed, so results follow from the
merged order alone. Rows wait on their side until no tuple to come can be near enough any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.schemas import check_key_types
from anabranch.columns.times import duration
from anabranch.errors import About, BuildError, SchemaError, Subject
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs, required_key
from anabranch.state.positions import FIRST, LAST, Ints, Jumbo, Positions, Root, emission_index
from anabranch.state.tables.row_segment import Segment, same_keys
from anabranch.state.tables.row_store import RowStore

LEFT, RIGHT = 0, 1
JOIN = Subject("operator", "join")


class Join(Operator):
    """Windowed equi-join of two streams ordered by event time; null never equals null."""

    state = StateKind.PARTITIONED
    in_ports = 2
    needs_time = True

    def __init__(
        self,
        key: str | Sequence[str],
        within: int | timedelta,
        how: str = "inner",
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> None:
        """Describe; nothing runs."""
        self.__name__ = "join"
        self.key = required_key(JOIN, key)
        if how != "inner":
            raise BuildError(
                JOIN,
                "how='inner'",
                repr(how),
                "join inner; for one-sided results keep the streams apart",
            )
        if within is None:
            raise BuildError(
                JOIN,
                "how far apart the times of a pair may be",
                "None",
                "give within=…, a number or a timedelta",
            )
        self.within, self.how, self.suffixes = within, how, suffixes_of(JOIN, suffixes)

    def types(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """A key missing on one side gets its own advice: rename."""
        for side, given in zip(("left", "right"), inputs, strict=True):
            missing = [name for name in self.key if name not in given.schema.names]
            if missing:
                raise SchemaError(
                    step,
                    f"the key {list(self.key)} on both sides",
                    f"{given.schema.names} on the {side} side",
                    f"rename the column of the {side} side to {missing[0]!r} first",
                )
        return super().types(step, inputs)

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Key, the left side's other columns, the right side's."""
        left, right = (given.schema for given in inputs)
        for name in self.key:
            if left.field(name).type != right.field(name).type:
                raise SchemaError(
                    step,
                    f"key {name!r} of one type",
                    f"{left.field(name).type} and {right.field(name).type}",
                    "cast one side",
                )
        check_key_types(step, self.key, left)
        duration("within", self.within, inputs[0].time, step)
        return (StreamType(self._schema(step, left, right), inputs[0].time),)

    def _schema(self, step: str, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        shared = [left.field(name) for name in self.key]
        others = [[f for f in side if f.name not in self.key] for side in (left, right)]
        return joined_schema(step, shared, others, self.suffixes)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The key."""
        return frozenset(self.key)

    def levels(self, depth: int) -> int:
        """Two more: the port, and which of the matches of a tuple."""
        return depth + 2

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return JoinKernel(context, self)


def suffixes_of(about: About, suffixes: object) -> tuple[str, ...]:
    """Return what is added to the names that both sides have, if it is two texts."""
    found = tuple(suffixes) if isinstance(suffixes, tuple | list) else ()
    if len(found) != 2 or not all(isinstance(suffix, str) for suffix in found):
        raise BuildError(
            about,
            "two texts in suffixes=, for the left and the right side",
            repr(suffixes),
            "write suffixes=('', '_right')",
        )
    return found


def joined_schema(
    step: str,
    shared: list[pa.Field],
    sides: Sequence[Iterable[pa.Field]],
    suffixes: Sequence[str],
) -> pa.Schema:
    """Shared columns, then those of both sides; names that both have get their side's suffix."""
    left, right = ([*side] for side in sides)
    clashing = {f.name for f in left} & {f.name for f in right}
    fields = list(shared)
    for side, suffix in zip((left, right), suffixes, strict=True):
        fields += [f.with_name(f.name + suffix) if f.name in clashing else f for f in side]
    names = [f.name for f in fields]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise SchemaError(
            step,
            "each output column named once",
            f"{doubled} twice",
            "choose other suffixes=, or rename before the join",
        )
    return pa.schema(fields)


class _Arrivals(NamedTuple):
    """The new tuples of both sides that have a key, and their common order."""

    segments: tuple[Segment, Segment]
    ranks: tuple[Ints, Ints]  # by row of a side: its number in the common order
    ordered: Positions


class _Matches(NamedTuple):
    """Pairs that come out, and for each the number of its later tuple in the common order."""

    batch: pa.RecordBatch
    causes: Ints


class JoinKernel(Kernel):
    """Looks new tuples of each side up among the other side's, old and new."""

    def __init__(self, context: KernelContext, operator: Join) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._key = operator.key
        within = duration("within", operator.within, context.inputs[0].time, context.step) or 0
        self._within = min(within, LAST)
        routing = context.routing or operator.key
        left, right = (
            RowStore(given.schema, operator.key, routing, context.buckets)
            for given in context.inputs
        )
        self._sides = (left, right)
        self.stores = (left, right)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Match, keep, forget."""
        new = self._arrivals(inputs)
        made: list[_Matches] = []
        if new is not None:
            left, right = new.segments
            for old in self._sides[RIGHT].segments:
                self._match(new, left, old, made)
            for old in self._sides[LEFT].segments:
                self._match(new, old, right, made)
            self._match(new, left, right, made)
            for store, segment in zip(self._sides, new.segments, strict=True):
                store.add(segment)
        for store in self._sides:
            store.expire(max(frontier.time - self._within, FIRST))
        return [self._to_jumbo(new.ordered, made) if new is not None and made else None]

    def _arrivals(self, inputs: Sequence[Jumbo | None]) -> _Arrivals | None:
        segments, positions = [], []
        for port, (jumbo, store) in enumerate(zip(inputs, self._sides, strict=True)):
            if jumbo is None:
                jumbo = Jumbo.empty(store.schema, self.context.depth)
            jumbo = jumbo.where(self._has_key(jumbo.batch))
            serials, times = store.number(len(jumbo)), jumbo.positions.columns[0]
            segments.append(store.segment(jumbo.batch, serials, times))
            positions.append(jumbo.positions.under_port(port, self.context.depth))
        merged = Positions.concat(positions)
        if not len(merged):
            return None
        order = merged.order()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        lefts = len(positions[LEFT])
        return _Arrivals(
            (segments[LEFT], segments[RIGHT]), (ranks[:lefts], ranks[lefts:]), merged.take(order)
        )

    def _has_key(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        complete = np.ones(batch.num_rows, np.bool_)
        for name in self._key:
            column = batch.column(name)
            if column.null_count:
                complete &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        return complete

    def _match(self, new: _Arrivals, left: Segment, right: Segment, made: list[_Matches]) -> None:
        """Pairs of two segments, of which one at least is new."""
        if not len(left) or not len(right):
            return
        if left is new.segments[LEFT]:
            lefts, rights = left.candidates(right, self._within)
        else:  # search with the smaller side: the old one may hold a whole window
            rights, lefts = right.candidates(left, self._within)
        if not len(lefts):
            return
        keys = left.columns(self._key, lefts)
        same = same_keys(keys, right.columns(self._key, rights))
        if same is not None:
            lefts, rights = lefts[same], rights[same]
            keys = [column.filter(pa.array(same)) for column in keys]
            if not len(lefts):
                return
        others = [
            column
            for side, places in ((left, lefts), (right, rights))
            for column in side.columns(self._others(side.batch.schema), places)
        ]
        schema = self.context.outputs[0].schema
        batch = pa.RecordBatch.from_arrays([*keys, *others], schema=schema)
        made.append(_Matches(batch, _causes(new, left, lefts, right, rights)))

    def _others(self, schema: pa.Schema) -> list[str]:
        return [name for name in schema.names if name not in self._key]

    def _to_jumbo(self, ordered: Positions, made: list[_Matches]) -> Jumbo:
        causes = np.concatenate([m.causes for m in made])
        # Stable: a tuple's matches were found segment by segment, which is oldest first, and in the
        # order of their index, which is that of arrival for rows of one key.
        order = np.argsort(causes, kind="stable")
        causes = causes.take(order)
        positions = ordered.take(causes).extend(emission_index(causes))
        batch = pa.concat_batches([m.batch for m in made]).take(pa.array(order))
        return Jumbo(batch, positions)


def _causes(new: _Arrivals, left: Segment, lefts: Ints, right: Segment, rights: Ints) -> Ints:
    """For each pair the later tuple's number in the common order; old tuples come before new."""
    ranks = [
        new.ranks[port].take(segment.rows.take(places))
        for port, (segment, places) in enumerate(((left, lefts), (right, rights)))
        if segment is new.segments[port]
    ]
    return np.maximum(*ranks) if len(ranks) > 1 else ranks[0]


def join(
    key: str | Sequence[str],
    within: int | timedelta,
    how: str = "inner",
    suffixes: tuple[str, str] = ("", "_right"),
) -> Join:
    """Pair the tuples of two streams that have the same key and are near in time.

    Args:
        key: Columns that must be equal; they have the same names on both sides.
        within: How far apart the two event times may be, in their unit or as a timedelta.
        how: Only "inner".
        suffixes: What is added to the names of columns that both sides have.

    Example:
        >>> join("user", within=60).key
        ('user',)
    """
    return Join(key, within, how, suffixes)
