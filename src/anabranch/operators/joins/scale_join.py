"""ScaleJoin: pairs of tuples of two streams on any predicate, at most so far apart in time.

STRETCH §4.3, after ScaleJoin: every replica gets every tuple, compares it with the tuples that its
buckets hold, and stores it in at most one of them. Tuples are numbered in the merged order of both
streams; number modulo buckets is the bucket that stores a tuple (Algorithm 4). The counter is a
replicated part of the state: each bucket has its own, and all are equal.

Deviations:
- The paper purges and compares bucket by bucket and tuple by tuple. Here the new tuples of a step
  are compared with the rows of all owned buckets at once, and only the order of results is by
  bucket: (position of the later tuple, bucket of the earlier one, order of storing).
- What is stored lies in segments that span buckets, so that there are few of them. A bucket is
  given up by reference: rows stay where they are, the index is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.columns.times import duration
from anabranch.errors import BuildError, Subject
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs, whole_of
from anabranch.operators.joins.conditions import Condition, Conditions, New, PairFinder, check_band
from anabranch.operators.joins.join import joined_schema, suffixes_of
from anabranch.state.positions import FIRST, LAST, Ints, Jumbo, Positions, Root, emission_index
from anabranch.state.tables.row_segment import Segment
from anabranch.state.tables.row_store import RowStore
from anabranch.state.tables.store import ObjectStore

DEFAULT_BUCKETS = 64
JOIN_WHERE = Subject("operator", "join_where")
LEFT, RIGHT = 0, 1
_SEEN = "seen"


class ScaleJoin(Operator):
    """Windowed join of two streams ordered by event time, on any predicate."""

    state = StateKind.SHARED
    in_ports = 2
    needs_time = True

    def __init__(
        self,
        within: int | timedelta,
        where: Condition | Sequence[Condition],
        buckets: int = DEFAULT_BUCKETS,
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> None:
        """Describe; nothing runs."""
        self.__name__ = "join_where"
        if within is None:
            raise BuildError(
                JOIN_WHERE,
                "how far apart the times of a pair may be",
                "None",
                "give within=…, a number or a timedelta",
            )
        self.within, self.suffixes = within, suffixes_of(JOIN_WHERE, suffixes)
        self.conditions = Conditions.of(where)
        self.own_buckets = whole_of(JOIN_WHERE, "buckets", buckets)

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The left side's columns, then the right side's."""
        left, right = (given.schema for given in inputs)
        for band in self.conditions.bands:
            check_band(step, band, left, right)
        duration("within", self.within, inputs[0].time, step)
        schema = joined_schema(step, [], (left, right), self.suffixes)
        return (StreamType(schema, inputs[0].time),)

    def levels(self, depth: int) -> int:
        """Three more: the port, the bucket of the earlier tuple, which of its matches."""
        return depth + 3

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return ScaleJoinKernel(context, self)


class DealtRows(RowStore):
    """Rows of one side, dealt out to buckets by their numbers."""

    def __init__(self, schema: pa.Schema, buckets: int) -> None:
        """An empty store; without a key, rows are indexed by time alone."""
        super().__init__(schema, key=(), routing=(), buckets=buckets)

    def _bucket(self, segment: Segment, places: Ints) -> Ints:
        bucket: Ints = segment.serials.take(places) % self.buckets
        return bucket


class _Arrivals(NamedTuple):
    """The new tuples of both sides, and their common order."""

    sides: tuple[New, New]
    ordered: Positions


class _Matches(NamedTuple):
    """Pairs that come out, and for each the numbers of the later and of the earlier tuple."""

    batch: pa.RecordBatch
    later: Ints
    earlier: Ints


class ScaleJoinKernel(Kernel):
    """Compares new tuples with what the buckets of this replica hold, and stores its share."""

    def __init__(self, context: KernelContext, operator: ScaleJoin) -> None:
        """A running copy without state."""
        super().__init__(context)
        within = duration("within", operator.within, context.inputs[0].time, context.step) or 0
        self._within = min(within, LAST)
        self._buckets = operator.own_buckets or 1
        left, right = (DealtRows(given.schema, self._buckets) for given in context.inputs)
        self._sides = (left, right)
        self._seen = ObjectStore()
        self.stores = (left, right, self._seen)
        schemas = (left.schema, right.schema)
        self.finder = PairFinder(context.step, operator.conditions, self._within, schemas)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Match, store, forget."""
        if not self.context.owned:
            return [None]
        new = self._arrivals(inputs)
        made: list[_Matches] = []
        if new is not None:
            mine = [self._share(side) for side in new.sides]
            for side in new.sides:
                other = 1 - side.port
                for segment in self._sides[other].segments:
                    self._match(side, segment, made)
                self._match(side, mine[other], made, fresh=True)
            for store, segment in zip(self._sides, mine, strict=True):
                if len(segment):
                    store.add(segment)
            self._count(len(new.ordered))
        for store in self._sides:
            store.expire(max(frontier.time - self._within, FIRST))
        return [self._to_jumbo(new.ordered, made) if new is not None and made else None]

    def _arrivals(self, inputs: Sequence[Jumbo | None]) -> _Arrivals | None:
        """Number the new tuples in the merged order of both ports."""
        jumbos = [
            Jumbo.empty(store.schema, self.context.depth) if jumbo is None else jumbo
            for jumbo, store in zip(inputs, self._sides, strict=True)
        ]
        merged = Positions.concat(
            [j.positions.under_port(port, self.context.depth) for port, j in enumerate(jumbos)]
        )
        if not len(merged):
            return None
        order = merged.order()
        serials = np.empty(len(order), np.int64)
        serials[order] = self._already_seen() + np.arange(len(order))
        left, right = (
            New(jumbo.batch, jumbo.positions.columns[0], numbers, port)
            for port, (jumbo, numbers) in enumerate(
                zip(jumbos, np.split(serials, [len(jumbos[LEFT])]), strict=True)
            )
        )
        return _Arrivals((left, right), merged.take(order))

    def _already_seen(self) -> int:
        """How many tuples came before: every bucket knows."""
        return int(self._seen.bucket(self.context.owned[0]).get(_SEEN, 0))

    def _count(self, tuples: int) -> None:
        seen = self._already_seen() + tuples
        for bucket in self.context.owned:
            self._seen.bucket(bucket)[_SEEN] = seen
            self._seen.touch(bucket, _SEEN)

    def _share(self, side: New) -> Segment:
        """The new tuples that buckets of this replica store."""
        rows = np.flatnonzero(np.isin(side.serials % self._buckets, self.context.owned))
        batch = side.batch
        if len(rows) < batch.num_rows:
            batch = batch.take(pa.array(rows))
        store = self._sides[side.port]
        return store.segment(batch, side.serials.take(rows), side.times.take(rows))

    def _match(
        self, new: New, stored: Segment, made: list[_Matches], *, fresh: bool = False
    ) -> None:
        """Pairs of new tuples of one side with stored ones of the other."""
        if not new.batch.num_rows or not len(stored):
            return
        rows, places = self.finder.find(new, stored, fresh=fresh)
        if not len(rows):
            return
        sides = [new.batch.take(pa.array(rows)), stored.take(places)]
        left, right = sides if new.port == LEFT else sides[::-1]
        schema = self.context.outputs[0].schema
        batch = pa.RecordBatch.from_arrays([*left.columns, *right.columns], schema=schema)
        made.append(_Matches(batch, new.serials.take(rows), stored.serials.take(places)))

    def _to_jumbo(self, ordered: Positions, made: list[_Matches]) -> Jumbo:
        later = np.concatenate([matches.later for matches in made])
        earlier = np.concatenate([matches.earlier for matches in made])
        order = np.lexsort((earlier, earlier % self._buckets, later))
        causes = later.take(order) - (self._already_seen() - len(ordered))
        buckets = earlier.take(order) % self._buckets
        index = emission_index(causes * self._buckets + buckets)
        positions = ordered.take(causes).extend(buckets).extend(index)
        batch = pa.concat_batches([matches.batch for matches in made]).take(pa.array(order))
        return Jumbo(batch, positions)


def scale_join(
    within: int | timedelta,
    where: Condition | Sequence[Condition],
    buckets: int = DEFAULT_BUCKETS,
    suffixes: tuple[str, str] = ("", "_right"),
) -> ScaleJoin:
    """Pair the tuples of two streams that are near in time and fulfil every condition.

    Args:
        within: How far apart the two event times may be, in their unit or as a timedelta.
        where: `band(…)`, a function from (left, right) to a mask, or several of those. The function
            gets candidate pairs: `left["x"]` and `right["a"]` are Arrow arrays of equal length.
        buckets: Into how many parts the stored tuples are dealt, which bounds the replicas.
        suffixes: What is added to the names of columns that both sides have.

    Example:
        >>> from anabranch.operators.joins.conditions import band
        >>> scale_join(within=60, where=band("x", "a", 10)).own_buckets
        64
    """
    return ScaleJoin(within, where, buckets, suffixes)
