"""The quick replay: tuples through a tuple-style operator at the cost of the author's own code.

It applies where an operator reads one port, fails on errors, and its schedule leaves nothing
waiting behind an event: `at_least(1)`, `exactly(1)` or `same()`. Timers and a time to live are the
general kernel's: it is asked before each event of an operator that declares them.

It gives what the general replay gives. Keys come in the order of their first tuples, the events of
a key in order, each event's tuples at once or one by one, so the author's code sees the same calls
in the same order with the same state. An emission stands at the row it stems from, numbered among
those of that row; so the order of rows, which is that of positions, and the order of emissions
within a row give positions and sequence for all of them at once, where the general replay makes a
tuple for each and sorts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from anabranch.columns.grouped_rows import Runs
from anabranch.columns.python_values import exact_array
from anabranch.columns.rows import UNREADABLE, python_values, row_class
from anabranch.errors import OperatorError
from anabranch.graph import StateKind
from anabranch.operators.aggregates.combine import group_rows
from anabranch.operators.base import KernelContext, OnError, failure
from anabranch.operators.tuple_style.arrivals import KeyLocations, refuse_unreadable
from anabranch.operators.tuple_style.invocation import (
    Emission,
    Followed,
    Kept,
    KeyState,
    Outs,
    quick_class,
)
from anabranch.operators.tuple_style.schedule import Take
from anabranch.state.positions import ROOT_WIDTH, Ints, Jumbo, Positions, emission_index
from anabranch.state.tables.store import ObjectStore

if TYPE_CHECKING:
    from anabranch.operators.tuple_style.tuples import TupleOperator


Firing = tuple[int, tuple[Any]]
"""The place that emissions stand at, and the tuple."""


@dataclass(frozen=True)
class TimerSupport:
    """What the general kernel does for operators with timers or a time to live.

    Attributes:
        catch_up: Given key, entry and time, before an event: fires due timers, drops what is old.
        settle: Given bucket, key and entry, after a key: notes when it must be looked at.
        ttl: The time to live.
    """

    catch_up: Callable[[Any, KeyState, int], None]
    settle: Callable[[int, Any, KeyState], None]
    ttl: int | None


def applies_to(context: KernelContext, operator: TupleOperator) -> bool:
    """Whether an operator can be replayed quickly."""
    given, schedule = context.inputs[0].schema, operator.schedule
    types = [given.field(name).type for name in operator.key]
    return (
        operator.in_ports == 1
        and operator.policy is OnError.FAIL
        and (schedule.take is Take.SAME or schedule.counts == (1,))
        and operator.max_buffer >= 0
        and len(given) > 0
        and all(is_exact(t) or pa.types.is_floating(t) for t in types)
    )


class QuickReplay:
    """The quick replay of one kernel.

    Args:
        context: Where the kernel stands.
        operator: What it runs.
        outs: Outputs that the author may emit to.
        store: What is remembered, by bucket and key.
        places: Where keys are remembered.
        timed: For operators with timers or a time to live.
    """

    def __init__(
        self,
        context: KernelContext,
        operator: TupleOperator,
        outs: Outs,
        store: ObjectStore,
        places: KeyLocations,
        timed: TimerSupport | None,
    ) -> None:
        """Nothing was replayed."""
        self._context, self._operator, self._store = context, operator, store
        self._places, self._timed, self._invoke = places, timed, _author_code(operator)
        given = context.inputs[0].schema
        self._row_class = row_class(tuple(given.names))
        self._exact = [name for name in operator.key if is_exact(given.field(name).type)]
        kept = Kept(
            tuple(
                column.name in self._exact and column.type == given.field(column.name).type
                for column in schema
            )
            for schema in operator.out_schemas.values()
        )
        self._stateless = operator.state is StateKind.STATELESS
        made = quick_class(outs, kept, operator.key, self._stateless)
        self._ctx: Any = made(
            context.step, outs, kept, operator.key, operator.timers, self._stateless
        )
        self._one_by_one = operator.schedule.take is Take.EXACTLY
        self._follow = operator.schedule.take is Take.AT_LEAST
        self._shown = places.shown if places.careful else None
        self._arranged: Arranged | None = None

    def run(self, jumbo: Jumbo) -> None:
        """Replay a batch, whose rows stand in order; what comes out is asked for afterwards."""
        positions = jumbo.positions.pad(self._context.depth)
        if self._stateless:
            arranged = Arranged.apart(jumbo.batch, positions)
        else:
            arranged = Arranged.by_key(jumbo.batch, positions, self._operator.key)
        self._arranged, times = arranged, arranged.times()
        self._ctx.start(times)
        firsts = jumbo.batch.take(pa.array(arranged.firsts))
        try:
            buckets, keys = self._places.of(firsts)
            known = self._key_values(keys)
            firings = zip(arranged.bases, arranged.rows(self._row_class, known), strict=True)
        except UNREADABLE:
            refuse_unreadable(self._context.step, jumbo.batch)
            raise
        try:
            if self._stateless:
                self._fire_each(firings)
                return
            entries = self._remembered(firsts, buckets, keys)
            if self._timed is None:
                alike = arranged.alike(self._row_class, known)
                self._replay_keys(buckets, keys, entries, alike, firings, times)
            else:
                self._replay_timed(self._timed, buckets, keys, entries, firings, times.tolist())
        except OperatorError:
            raise
        except Exception as error:
            ctx = self._ctx
            seen = f"key {ctx.key!r}, {ctx.reason.value}: {list(ctx._waiting[:3])}"
            raise failure(self._context.step, error, seen) from error

    def _key_values(self, keys: list[Any]) -> dict[str, list[Any]]:
        """The values of the exact key columns, key by key."""
        names = self._operator.key
        if len(names) == 1:
            return dict.fromkeys(self._exact, keys)
        return {n: [key[p] for key in keys] for p, n in enumerate(names) if n in self._exact}

    def _remembered(
        self, firsts: pa.RecordBatch, buckets: list[int], keys: list[Any]
    ) -> Iterable[KeyState]:
        """What is remembered of each key; one that is new gets its entry in its turn."""
        tables = {bucket: self._store.bucket(bucket) for bucket in dict.fromkeys(buckets)}
        entries: list[Any] = [tables[b].get(key) for b, key in zip(buckets, keys, strict=True)]
        if all(entries):
            return entries
        held = map(tables.__getitem__, buckets)
        return map(_entry, entries, held, keys, self._places.orders(firsts))

    def _fire_each(self, firings: Iterator[Firing]) -> None:
        ctx, invoke = self._ctx, self._invoke
        for ctx._row, ctx._waiting in firings:
            invoke(ctx)

    def _replay_keys(
        self,
        buckets: list[int],
        keys: list[Any],
        entries: Iterable[KeyState],
        alike: Iterable[tuple[Any] | None],
        firings: Iterator[Firing],
        times: Ints,
    ) -> None:
        """One key after another. What stands in this loop is paid per key or even per tuple."""
        assert self._arranged is not None
        ctx, invoke, shown, touch = self._ctx, self._invoke, self._shown, self._store.touch
        stops, bases, several = self._arranged.stops, self._arranged.bases, self._several()
        latest = times.take(np.array(stops) - 1).tolist()
        start = 0
        for bucket, key, entry, stop, time, split, row in zip(
            buckets, keys, entries, stops, latest, several, alike, strict=False
        ):
            entry.touched = time if time > entry.touched else entry.touched
            ctx.key = key if shown is None else shown(key)
            ctx._entry, ctx.state = entry, (state := entry.state)
            if split:
                while start < stop:
                    self._fire_event(firings, start, bases[start], row)
                    start = bases[start] + 1
            elif row is not None:
                ctx._waiting = row
                for ctx._row in bases[start:stop]:
                    invoke(ctx)
                    if ctx.state is not state:
                        break
            else:
                for ctx._row, ctx._waiting in islice(firings, stop - start):
                    invoke(ctx)
                    if ctx.state is not state:
                        break
            if ctx.state is not state:
                raise _read_only()
            start = stop
            touch(bucket, key)
            if not state:
                del self._store.bucket(bucket)[key]

    def _replay_timed(
        self,
        timed: TimerSupport,
        buckets: list[int],
        keys: list[Any],
        entries: Iterable[KeyState],
        firings: Iterator[Firing],
        times: list[int],
    ) -> None:
        """One key after another; before an event the kernel sees to its timers and its age."""
        assert self._arranged is not None
        ctx, bases, ttl = self._ctx, self._arranged.bases, timed.ttl
        start = 0
        for bucket, key, entry, stop in zip(
            buckets, keys, entries, self._arranged.stops, strict=True
        ):
            ctx.key, ctx._entry = self._places.shown(key), entry
            while start < stop:
                base, time = bases[start], times[start]
                if entry.timers or (ttl is not None and time - entry.touched >= ttl):
                    timed.catch_up(key, entry, time)
                entry.touched = max(entry.touched, time)
                ctx.state = entry.state
                self._fire_event(firings, start, base)
                start = base + 1
            timed.settle(bucket, key, entry)

    def _several(self) -> Iterable[bool]:
        """For each key, whether an event of it fires once for several tuples."""
        assert self._arranged is not None
        return repeat(False) if self._one_by_one else self._arranged.several or repeat(False)

    def _fire_event(
        self, firings: Iterator[Firing], start: int, base: int, alike: tuple[Any] | None = None
    ) -> None:
        """The tuples of one event, at once or one by one."""
        ctx, invoke, size = self._ctx, self._invoke, base + 1 - start
        event = [alike] * size if alike else [waiting for _, waiting in islice(firings, size)]
        ctx._row, state = base, ctx.state
        if self._one_by_one or len(event) == 1:
            for ctx._waiting in event:
                invoke(ctx)
                if ctx.state is not state:
                    raise _read_only()
        else:
            rows = [row for (row,) in event]
            ctx._waiting = Followed(ctx, start, rows) if self._follow else rows
            invoke(ctx)
            if ctx.state is not state:
                raise _read_only()

    def forget(self) -> None:
        """Let go of the last batch and of what came out."""
        self._arranged = None
        self._ctx.start(np.zeros(0, np.int64))

    def jumbos(self) -> list[Jumbo | None] | None:
        """What came out of the last batch, per output; None when it has to be converted one by one.

        That is where a value does not fit its column, so that the error names the first in order.
        """
        if self._ctx.replaced:
            return None
        made = self._ordered()
        try:
            return [self._jumbo(port, *chosen) for port, chosen in enumerate(made)]
        except Exception:
            return None

    def emissions(self) -> list[list[Emission]]:
        """The same, tuple by tuple."""
        ctx, made = self._ctx, []
        for port, (numbers, rows, positions, overall) in enumerate(self._ordered()):
            columns = [
                self._kept(port, place, rows).to_pylist()
                if values is None
                else [values[n] for n in numbers.tolist()]
                for place, values in enumerate(ctx.columns[port])
            ]
            emitted = [list(values) for values in zip(*columns, strict=True)]
            for values, number in zip(emitted, overall.tolist(), strict=True):
                for place in range(len(columns)):
                    values[place] = ctx.replaced.get((number, place), values[place])
            places = positions.rows()
            made.append([Emission(p, tuple(v)) for p, v in zip(places, emitted, strict=True)])
        return made

    def _ordered(self) -> list[tuple[Ints, Ints, Positions, Ints]]:
        """Per output, in order: number in its columns, row, position, number among all."""
        ctx, arranged = self._ctx, self._arranged
        assert arranged is not None
        parents = arranged.order.take(np.array(ctx.parents, np.int64))
        narrow = parents.astype(np.uint16) if len(arranged.order) <= 1 << 16 else parents
        overall = np.argsort(narrow, kind="stable")
        rows = parents.take(overall)
        # Outputs share the numbering of a row's emissions, as they share its place.
        positions = arranged.positions
        if self._is_one_each(rows):
            positions = positions.extend(np.broadcast_to(np.int64(0), len(rows)))
        else:
            positions = positions.take(rows).extend(emission_index(rows))
        if ctx.ports is None:
            return [(overall, rows, positions, overall)]
        ports = np.array(ctx.ports, np.int64)
        made = []
        for port in range(len(ctx.columns)):
            own = np.cumsum(ports == port) - 1
            chosen = np.flatnonzero(ports.take(overall) == port)
            numbers = overall.take(chosen)
            made.append((own.take(numbers), rows.take(chosen), positions.take(chosen), numbers))
        return made

    def _jumbo(
        self, port: int, numbers: Ints, rows: Ints, positions: Positions, _: Ints
    ) -> Jumbo | None:
        if not len(numbers):
            return None
        wanted = self._context.outputs[port].schema
        arrays = []
        for place, (column, values) in enumerate(zip(wanted, self._ctx.columns[port], strict=True)):
            if values is None:
                arrays.append(self._kept(port, place, rows))
            else:
                made = exact_array(self._context.step, column, values)
                arrays.append(made.take(pa.array(numbers)))
        return Jumbo(pa.RecordBatch.from_arrays(arrays, schema=wanted), positions)

    def _kept(self, port: int, place: int, rows: Ints) -> pa.Array:
        assert self._arranged is not None
        column = self._arranged.batch.column(self._context.outputs[port].schema.names[place])
        return column if self._is_one_each(rows) else column.take(pa.array(rows))

    def _is_one_each(self, rows: Ints) -> bool:
        """Whether sorted rows are all there are, each once: a common case, and the cheapest."""
        assert self._arranged is not None
        return len(rows) == len(self._arranged.order) and bool((rows[1:] != rows[:-1]).all())


def _entry(
    entry: KeyState | None, held: dict[Any, Any], key: Any, order: tuple[int, int]
) -> KeyState:
    if entry is None:
        entry = held[key] = KeyState(order, buffers=[deque()])
    return entry


def _author_code(operator: TupleOperator) -> Callable[[Any], None]:
    """The author's function itself where `invoke` does nothing but call it."""
    from anabranch.operators.tuple_style.tuples import FunctionOperator  # which imports the kernels

    return operator.function if type(operator) is FunctionOperator else operator.invoke


def _read_only() -> AttributeError:
    """What assigning to `ctx.state` says elsewhere at once; here the attribute can be assigned."""
    return AttributeError("property 'state' of 'Invocation' object has no setter")


# A batch arranged key by key for the quick replay, with its columns as Python values.


def is_exact(key_type: pa.DataType) -> bool:
    """Whether equal keys of a type are the same Python value, so that one stands for all of them.

    Example:
        >>> is_exact(pa.string()), is_exact(pa.float64())  # 0.0 equals -0.0
        (True, False)
    """
    if pt.is_timestamp(key_type):
        # Python knows no nanoseconds, and takes the two hours of a clock set back for one.
        return key_type.tz is None and key_type.unit != "ns"
    return bool(
        pt.is_string(key_type)
        or pt.is_large_string(key_type)
        or pt.is_binary(key_type)
        or pt.is_large_binary(key_type)
        or pt.is_integer(key_type)
        or pt.is_boolean(key_type)
        or pt.is_date32(key_type)
    )


@dataclass(frozen=True)
class Arranged:
    """A batch whose rows stand key by key, keys in order of occurrence, rows of a key in theirs.

    Attributes:
        batch: The batch as it came.
        positions: Its positions, as they came.
        order: For each place, the row of the batch that stands there.
        firsts: For each key, the row of the batch where it occurs first.
        stops: For each key, the place behind its last row.
        bases: For each place, the last place of its event: of the tuples of its key and root.
        several: For each key, whether an event of it has several tuples; None when none has.
    """

    batch: pa.RecordBatch
    positions: Positions
    order: Ints
    firsts: Ints
    stops: list[int]
    bases: Sequence[int]
    several: list[bool] | None

    @staticmethod
    def by_key(batch: pa.RecordBatch, positions: Positions, key: tuple[str, ...]) -> Arranged:
        """Arrange by key columns; without any, all rows are of one key. Rows come in order."""
        rows = batch.num_rows
        if key:
            runs = Runs(*group_rows([batch.column(name) for name in key], rows))
            order, starts = runs.order, runs.starts
        else:
            order, starts = np.arange(rows), np.zeros(1, np.int64)
        stops = np.append(starts[1:], rows)
        lasts = _event_lasts(positions, order, starts)
        if lasts is None:
            return Arranged(
                batch, positions, order, order[starts], stops.tolist(), range(rows), None
            )
        counts = np.add.reduceat(lasts, starts)
        several = counts < stops - starts
        ends = np.flatnonzero(lasts)
        bases = np.repeat(ends, np.diff(ends, prepend=-1))
        return Arranged(
            batch, positions, order, order[starts], stops.tolist(), bases.tolist(), several.tolist()
        )

    @staticmethod
    def apart(batch: pa.RecordBatch, positions: Positions) -> Arranged:
        """Every row an event of its own, and one key for all: nothing is remembered."""
        rows = batch.num_rows
        return Arranged(
            batch, positions, np.arange(rows), np.zeros(1, np.int64), [rows], range(rows), None
        )

    def times(self) -> Ints:
        """The time of each place."""
        return self.positions.columns[0].take(self.order)

    def rows(self, row_class: type, keys: dict[str, list[Any]]) -> Iterator[tuple[Any]]:
        """The rows as they stand, each alone in a tuple.

        Args:
            row_class: What a row becomes.
            keys: Columns whose value is known key by key.
        """
        counts = np.diff(self.stops, prepend=0).tolist()
        order = None if len(counts) == 1 else pa.array(self.order)
        columns: list[Any] = []
        for name, column in zip(self.batch.schema.names, self.batch.columns, strict=True):
            if name in keys:
                columns.append(chain.from_iterable(map(repeat, keys[name], counts)))
            else:
                columns.append(python_values(column if order is None else column.take(order)))
        return zip(map(row_class, zip(*columns, strict=True)))

    def alike(self, row_class: type, keys: dict[str, list[Any]]) -> Iterable[tuple[Any] | None]:
        """Per key, the row that stands for all of its rows; None where they may differ."""
        names = self.batch.schema.names
        if not all(name in keys for name in names):
            return repeat(None)
        return zip(map(row_class, zip(*(keys[name] for name in names), strict=True)))


def _event_lasts(positions: Positions, order: Ints, starts: Ints) -> Ints | None:
    """Which places are the last of their event; None when every one is an event of its own."""
    fresh = np.zeros(len(positions), np.bool_)
    fresh[:1] = True
    for column in positions.columns[:ROOT_WIDTH]:
        if column.strides != (0,):
            fresh[1:] |= column[1:] != column[:-1]
    if fresh.all():
        return None
    # Rows of one root stand together, so the number of roots so far tells them apart.
    roots = np.cumsum(fresh)[order]
    lasts = np.ones(len(roots), np.int64)
    lasts[:-1] = roots[1:] != roots[:-1]
    lasts[starts[1:] - 1] = 1
    return lasts
