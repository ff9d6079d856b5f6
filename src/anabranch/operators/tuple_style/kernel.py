"""Runs a tuple-style operator: groups tuples by key, keeps buffers, fires timers in order.

Keys are independent, so a kernel replays one key after another — its tuples and its timers in the
order of positions — and sorts what came out. That makes the result a function of positions alone:
neither batching nor the number of replicas can show.
"""

from __future__ import annotations

import copy
import heapq
from collections import deque
from collections.abc import Collection, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from anabranch.columns.python_values import exact_array
from anabranch.columns.times import duration
from anabranch.errors import BufferLimitError, OperatorError
from anabranch.graph import StateKind
from anabranch.operators.base import Kernel, KernelContext, OnError, Outputs, SkippedAt, failure
from anabranch.operators.tuple_style.arrivals import Arrival, ArrivalReader, KeyLocations
from anabranch.operators.tuple_style.invocation import (
    Emission,
    Invocation,
    KeyState,
    Reason,
    Timer,
    Waiting,
)
from anabranch.operators.tuple_style.quick_replay import QuickReplay, TimerSupport, applies_to
from anabranch.operators.tuple_style.schedule import Take
from anabranch.state.positions import FIRST, LAST, ROOT_WIDTH, Jumbo, Positions, Root, is_end
from anabranch.state.tables.store import ObjectStore

if TYPE_CHECKING:
    from anabranch.operators.tuple_style.tuples import TupleOperator


class TupleKernel(Kernel):
    """One running copy of a tuple-style operator."""

    def __init__(self, context: KernelContext, operator: TupleOperator) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._operator = operator
        self._store = ObjectStore()
        self.stores = (self._store,)
        self._many_ports = operator.in_ports > 1
        self._width = ROOT_WIDTH + operator.levels(context.depth)
        self._outs = tuple((n, tuple(s.names)) for n, s in operator.out_schemas.items())
        self._ttl = duration("ttl", operator.ttl, context.inputs[0].time, context.step)
        self._wakes, self._expiries = Wakes(), Wakes()
        self._store.move_along(self._wakes, self._expiries)
        self._out: list[list[Emission]] = []
        self._places = KeyLocations(
            operator.key, context.routing, context.buckets, context.inputs[0].schema
        )
        self._arrivals = ArrivalReader(context, operator, self._places)
        self._indexed_arrivals = 0
        self._quick = self._quick_replay() if applies_to(context, operator) else None
        self._strange_entries = False  # such as an operator with other properties left behind
        # Only here does an invocation consume nothing but tuples of the current event, so that an
        # emission may stand at the tuple it was made from.
        self._follow = (
            not self._many_ports
            and operator.schedule.take is Take.AT_LEAST
            and (operator.schedule.counts == (1,))
        )

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Replay the keys that have tuples, then those that have only timers."""
        self._refresh_index()
        if is_end(frontier):
            self.last_time = frontier.sub
        out: list[list[Emission]] = [[] for _ in self.context.outputs]
        self._out = out
        quick = self._quick_for(inputs)
        if quick is not None and inputs[0] is not None:
            quick.run(inputs[0])
        else:
            self._replay_keys(inputs, out)
        self._fire_due(frontier, out)
        if is_end(frontier):
            self._close(frontier, out)
        made = None if quick is None else quick.jumbos()
        if quick is not None and made is None:
            for port, emissions in enumerate(quick.emissions()):
                out[port].extend(emissions)
        rest = [
            jumbo_of(emissions, self.context.step, stream.schema, self._width)
            for emissions, stream in zip(out, self.context.outputs, strict=True)
        ]
        self._out = []
        if quick is not None:
            quick.forget()
        return rest if made is None else list(map(merged, made, rest))

    def _quick_replay(self) -> QuickReplay:
        def catch_up(key: Any, entry: KeyState, time: int) -> None:
            self._catch_up(key, entry, time, self._out)

        timed = TimerSupport(catch_up, self._settle, self._ttl)
        needs = self._operator.timers or self._ttl is not None
        return QuickReplay(
            self.context,
            self._operator,
            self._outs,
            self._store,
            self._places,
            timed if needs else None,
        )

    def _quick_for(self, inputs: Sequence[Jumbo | None]) -> QuickReplay | None:
        """The quick replay, if it can take these tuples."""
        if self._quick is None or self._strange_entries:
            return None
        jumbo = inputs[0]
        ready = jumbo is not None and len(jumbo) > 0 and jumbo.positions.is_sorted()
        return self._quick if ready else None

    def _replay_keys(self, inputs: Sequence[Jumbo | None], out: list[list[Emission]]) -> None:
        for (bucket, key), (order, arrivals) in self._arrivals.by_key(inputs, out).items():
            if self._operator.state is StateKind.STATELESS:
                self._run_stateless(arrivals, out)
                continue
            entries = self._store.bucket(bucket)
            entry = entries.get(key)
            if entry is None:
                buffers = [deque[Waiting]() for _ in range(self._operator.in_ports)]
                entry = entries[key] = KeyState(order, buffers=buffers)
            self._replay(key, entry, arrivals, out)
            self._settle(bucket, key, entry)

    def next_timer(self) -> int | None:
        """Earliest timer of any key."""
        self._refresh_index()
        while (wake := self._wakes.first()) is not None:
            entry: KeyState | None = self._store.bucket(wake.bucket).get(wake.key)
            if entry is not None:
                self._end_chains(entry)
                if entry.timers and entry.timers[0].time <= wake.time:
                    return entry.timers[0].time
            self._wakes.pop(wake.time)
            if entry is not None:
                self._note_timer(wake.bucket, wake.key, entry)
        return None

    def _run_stateless(self, arrivals: list[Arrival], out: list[list[Emission]]) -> None:
        for position, port, row in arrivals:
            taken: list[list[Waiting]] = [[] for _ in range(self._operator.in_ports)]
            taken[port] = [Waiting(position, row)]
            self._invoke((), KeyState((0, 0)), taken, Reason.TUPLES, position, out)

    def _replay(
        self, key: Any, entry: KeyState, arrivals: list[Arrival], out: list[list[Emission]]
    ) -> None:
        """One event after another: due timers first, then its tuples, then the schedule."""
        for root, event in groupby(arrivals, key=lambda a: a[0][:ROOT_WIDTH]):
            time = root[0]
            self._catch_up(key, entry, time, out)
            base = root
            for position, port, row in event:
                entry.buffers[port].append(Waiting(position, row))
                base = position
            entry.touched = max(entry.touched, time)
            self._run_schedule(key, entry, base, out)

    def _catch_up(self, key: Any, entry: KeyState, time: int, out: list[list[Emission]]) -> None:
        """Before an event: fire the timers that are due, forget what is too old."""
        self._fire_timers(key, entry, time, out)
        self._expire(entry, time)

    def _fire_timers(self, key: Any, entry: KeyState, upto: int, out: list[list[Emission]]) -> None:
        numbering: dict[tuple[int, ...], int] = {}
        self._end_chains(entry)
        while entry.timers and entry.timers[0].time <= upto:
            self._fire(key, entry, entry.timers[0], out, numbering)
            self._end_chains(entry)

    def _run_schedule(
        self, key: Any, entry: KeyState, base: tuple[int, ...], out: list[list[Emission]]
    ) -> None:
        numbering: dict[tuple[int, ...], int] = {}
        while (
            counts := self._operator.schedule.ready([len(b) for b in entry.buffers])
        ) is not None:
            taken = [
                [b.popleft() for _ in range(c)] for b, c in zip(entry.buffers, counts, strict=True)
            ]
            self._invoke(key, entry, taken, Reason.TUPLES, base, out, numbering=numbering)
        fullest = max(len(b) for b in entry.buffers)
        if fullest > self._operator.max_buffer:
            raise BufferLimitError(
                self.context.step,
                f"at most {self._operator.max_buffer} waiting tuples a key",
                f"{fullest} for key {key!r}",
                "let the ports' rates match, or raise max_buffer",
            )

    def _expire(self, entry: KeyState, time: int) -> None:
        if self._ttl is not None and entry.touched != FIRST and time - entry.touched >= self._ttl:
            entry.state = {}
            for buffer in entry.buffers:
                buffer.clear()

    def _settle(self, bucket: int, key: Any, entry: KeyState) -> None:
        """After a key was replayed: forget it when blank, else note when it must be looked at."""
        self._store.touch(bucket, key)
        if entry.is_blank():
            self._store.bucket(bucket).pop(key, None)
            return
        self._note_timer(bucket, key, entry)
        self._note_expiry(bucket, key, entry)

    def _note_timer(self, bucket: int, key: Any, entry: KeyState) -> None:
        if entry.timers:
            self._wakes.note(entry.timers[0].time, entry.order, bucket, key)

    def _note_expiry(self, bucket: int, key: Any, entry: KeyState) -> None:
        if self._ttl is not None:
            self._expiries.note(entry.touched + self._ttl, entry.order, bucket, key)

    def _refresh_index(self) -> None:
        """Buckets that came from elsewhere bring their timers with them."""
        if self._indexed_arrivals != self._store.arrivals:
            self._indexed_arrivals = self._store.arrivals
            self._wakes.clear()
            self._expiries.clear()
            self._strange_entries = False
            for bucket, key, entry in self._store.items():
                timers = entry.timers and not self._operator.timers
                self._strange_entries |= bool(timers or any(entry.buffers))
                self._note_timer(bucket, key, entry)
                self._note_expiry(bucket, key, entry)
            # Whoever takes strange entries over has to look at them again.
            indexes = () if self._strange_entries else (self._wakes, self._expiries)
            self._store.move_along(*indexes)

    def _fire_due(self, frontier: Root, out: list[list[Emission]]) -> None:
        """Fire every timer the frontier has reached; forget what has outlived its time."""
        while (wake := self._wakes.pop(frontier.time)) is not None:
            entry = self._store.bucket(wake.bucket).get(wake.key)
            if entry is None:
                continue
            self._fire_timers(wake.key, entry, frontier.time, out)
            self._settle(wake.bucket, wake.key, entry)
        # Beyond the stream's last time nothing expires: the end is told to what was there then.
        swept = frontier.time if self.last_time is None else min(frontier.time, self.last_time)
        while (due := self._expiries.pop(swept)) is not None:
            entry = self._store.bucket(due.bucket).get(due.key)
            # Physical clean-up; no tuple before the frontier can come, so nobody could tell.
            if entry is not None and not entry.timers:
                self._store.touch(due.bucket, due.key)
                self._expire(entry, swept)
                if entry.is_blank():
                    self._store.bucket(due.bucket).pop(due.key, None)

    def _end_chains(self, entry: KeyState) -> None:
        """Timers that set each other end with the stream, else they never would."""
        last = self.last_time
        if last is not None:
            entry.timers = [t for t in entry.timers if not t.chained or t.time <= last]

    def _fire(
        self,
        key: Any,
        entry: KeyState,
        timer: Timer,
        out: list[list[Emission]],
        numbering: dict[tuple[int, ...], int],
    ) -> None:
        """Timers of one time go on numbering: each emission has a place of its own."""
        entry.timers.remove(timer)
        self._expire(entry, timer.time)
        entry.touched = max(entry.touched, timer.time)
        base = self._apart(timer.time, -self.context.rank, entry)
        taken: list[list[Waiting]] = [[] for _ in range(self._operator.in_ports)]
        self._invoke(key, entry, taken, Reason.TIMER, base, out, timer.tag, numbering)

    def _close(self, frontier: Root, out: list[list[Emission]]) -> None:
        """The end of a bounded stream, told to every key that is remembered."""
        entries = list(self._store.items())
        self._store.clear()
        if not self._operator.closing:
            return
        for _, key, entry in entries:
            self._expire(entry, frontier.sub)
            if entry.is_blank():
                continue
            taken = [list(buffer) for buffer in entry.buffers]
            for buffer in entry.buffers:
                buffer.clear()
            base = self._apart(LAST, self.context.closing_rank, entry)
            self._invoke(key, entry, taken, Reason.CLOSED, base, out)

    def _apart(self, time: int, rank: int, entry: KeyState) -> tuple[int, ...]:
        """Position of what stems from no tuple: by time, step and key."""
        root = (time, rank, *entry.order)
        return root + (0,) * (self._width - 1 - ROOT_WIDTH)

    def _invoke(
        self,
        key: Any,
        entry: KeyState,
        taken: list[list[Waiting]],
        reason: Reason,
        base: tuple[int, ...],
        out: list[list[Emission]],
        tag: str = "",
        numbering: dict[tuple[int, ...], int] | None = None,
    ) -> None:
        operator = self._operator
        key = self._places.shown(key)
        guarded = operator.policy is not OnError.FAIL
        saved = copy.deepcopy((entry.state, entry.timers)) if guarded else None
        ctx = Invocation(
            self.context.step,
            key,
            entry,
            taken,
            reason,
            base,
            self._outs,
            tag,
            fill=self._fill(key),
            timed=operator.timers,
            stateless=operator.state is StateKind.STATELESS,
        )
        ctx.follow_tuples = self._follow and reason is Reason.TUPLES
        numbering = {} if numbering is None else numbering
        ctx.continue_numbering(numbering)
        try:
            operator.invoke(ctx)
        except OperatorError:
            raise
        except Exception as error:
            rows = [w.row for port in taken for w in port]
            if saved is None:
                seen = f"key {key!r}, {reason.value}: {rows[:3]}"
                raise failure(self.context.step, error, seen) from error
            entry.state, entry.timers = saved
            message = f"{type(error).__name__}: {error}"
            self._reject(key, reason, taken, base, message, out, numbering)
            return
        for port, made in enumerate(ctx.emitted):
            out[port].extend(made)

    def _fill(self, key: Any) -> dict[str, Any]:
        names = self._operator.key
        return dict(zip(names, key if len(names) > 1 else (key,), strict=True)) if names else {}

    def _reject(
        self,
        key: Any,
        reason: Reason,
        taken: list[list[Waiting]],
        base: tuple[int, ...],
        message: str,
        out: list[list[Emission]],
        numbering: dict[tuple[int, ...], int],
    ) -> None:
        rows: list[tuple[int | None, str]] = [
            (port, repr(w.row)) for port, waiting in enumerate(taken) for w in waiting
        ]
        rows = rows or [(None, f"{reason.value} of key {key!r}")]
        self.context.counters.skipped += len(rows)
        position = next((w.position for waiting in taken for w in waiting), base)
        self.context.counters.note(SkippedAt(position[1], position[2], message, rows[0][1][:300]))
        if self._operator.policy is OnError.SIDE:
            for port, row in rows:
                number = numbering.get(base, 0)
                numbering[base] = number + 1
                out[-1].append(Emission((*base, number), (port, row, message)))


# When which key must be looked at: heaps of times, with entries that may be out of date.
#
# Each bucket has a heap of its own, so that it moves to another replica by reference; a small heap
# over the buckets says which of them is next.


class Wake(NamedTuple):
    """A key to be looked at; keys of one order may be of any type, so they are never compared."""

    time: int
    order: tuple[int, int]
    ticket: int
    bucket: int
    key: Any


_tickets = count()  # of all replicas, since entries of one bucket may be of several


class Wakes:
    """Keys by the time at which something is due.

    Example:
        >>> wakes = Wakes()
        >>> wakes.note(5, (0, 0), 1, "b")
        >>> wakes.note(3, (0, 0), 2, "a")
        >>> wakes.pop(upto=4).key
        'a'
        >>> wakes.pop(upto=4) is None
        True
        >>> other = Wakes()
        >>> other.absorb(wakes.release([1]))
        >>> (wakes.first(), other.first().key)
        (None, 'b')
    """

    def __init__(self) -> None:
        """Nothing is due."""
        self._heaps: dict[int, list[Wake]] = {}
        # What was at the head of a bucket's heap at some time, and still is if the heap says so.
        self._heads: list[tuple[int, tuple[int, int], int]] = []

    def note(self, time: int, order: tuple[int, int], bucket: int, key: Any) -> None:
        """Look at a key at a time."""
        wake = Wake(time, order, next(_tickets), bucket, key)
        heap = self._heaps.setdefault(bucket, [])
        heapq.heappush(heap, wake)
        if heap[0] is wake:
            heapq.heappush(self._heads, (time, order, bucket))

    def first(self) -> Wake | None:
        """The earliest entry, which stays."""
        while self._heads:
            time, order, bucket = self._heads[0]
            heap = self._heaps.get(bucket)
            if heap and heap[0].time == time and heap[0].order == order:
                return heap[0]
            heapq.heappop(self._heads)
        return None

    def pop(self, upto: int) -> Wake | None:
        """The earliest entry if it is due by a time."""
        wake = self.first()
        if wake is None or wake.time > upto:
            return None
        heap = self._heaps[wake.bucket]
        heapq.heappop(heap)
        if heap:
            heapq.heapreplace(self._heads, (heap[0].time, heap[0].order, wake.bucket))
        else:
            heapq.heappop(self._heads)
            del self._heaps[wake.bucket]
        return wake

    def clear(self) -> None:
        """Forget all."""
        self._heaps.clear()
        self._heads.clear()

    def release(self, buckets: Collection[int]) -> dict[int, list[Wake]]:
        """Give up the entries of buckets, by reference."""
        return {b: self._heaps.pop(b) for b in buckets if b in self._heaps}

    def absorb(self, heaps: dict[int, list[Wake]]) -> None:
        """Take over what another replica released; costs the number of buckets."""
        for bucket, heap in heaps.items():
            self._heaps[bucket] = heap
            heapq.heappush(self._heads, (heap[0].time, heap[0].order, bucket))


# What tuple-style operators emitted, as batches in sequential order.


def jumbo_of(made: list[Emission], step: str, wanted: pa.Schema, width: int) -> Jumbo | None:
    """Emissions in any order as a batch; None when there are none.

    Raises:
        OperatorError: A value does not fit its column; the first one in order is named.
    """
    if not made:
        return None
    made.sort(key=lambda e: e.position)
    arrays = [
        exact_array(step, column, [e.values[index] for e in made])
        for index, column in enumerate(wanted)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    return Jumbo(batch, Positions.of_rows([e.position for e in made], width))


def merged(*parts: Jumbo | None) -> Jumbo | None:
    """Several batches of one output in one sequence; None when all are."""
    found = [jumbo for jumbo in parts if jumbo is not None]
    return Jumbo.concat(found).in_order() if found else None
