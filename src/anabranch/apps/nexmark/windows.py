"""Queries over windows in time: q5, q7, q11, q12."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.nexmark.events import Events
from anabranch.apps.nexmark.generator import BIDS, EVENTS
from anabranch.columns.times import from_times
from anabranch.flow import Stream
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates.base import in_sequence, stand_apart
from anabranch.operators.aggregates.functions import count
from anabranch.operators.aggregates.windows import session, sliding, tumbling
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.row_wise.map_filter_expand import Filter, map
from anabranch.operators.tuple_style.invocation import Invocation, Reason
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.state.positions import FIRST, Ints, Jumbo, Root
from anabranch.state.tables.store import ObjectStore

TEN_SECONDS, TWO_SECONDS = timedelta(seconds=10), timedelta(seconds=2)


def q5(events: Events) -> Stream:
    """Hot items: the auctions with most bids in the last ten seconds, every two seconds.

    All that tie are told, by their id.
    """
    return (
        events.in_time("bid", "auction")
        .aggregate("count", key="auction", window=tumbling(TWO_SECONDS), num=count())
        .apply("hottest", Hottest(TEN_SECONDS, TWO_SECONDS))
    )


@map(out="window_end: timestamp[us]", keeps="*")
def of_window(batch: pa.RecordBatch) -> dict[str, Any]:
    """When the window of ten seconds is over that a bid is in."""
    size = int(TEN_SECONDS.total_seconds())
    times = batch["dateTime"].cast(pa.timestamp("us"))
    ends = pc.ceil_temporal(times, size, "second", ceil_is_strictly_greater=True)
    return {"window_end": ends}


def q7(events: Events) -> Stream:
    """Highest bid: the bids with the highest price of each ten seconds.

    All that tie are told, in the order of their times. A bid on the border of two windows belongs
    to the one that begins there (Flink's SQL counts it to both).
    """
    bids = events.in_time("bid", "auction", "bidder", "price", "dateTime", "extra")
    windowed = bids.apply("window", of_window)
    return windowed.apply("contenders", Contenders("price")).apply(
        "highest", greatest("price", windowed.schema)
    )


def q11(events: Events) -> Stream:
    """User sessions: how many bids a bidder made without a pause of ten seconds.

    A pause of ten seconds to the millisecond parts two sessions, as in Beam; Flink merges those.
    """
    return events.in_time("bid", "bidder").aggregate(
        "session", key="bidder", window=session(TEN_SECONDS), bid_count=count()
    )


@map(out="all: int8", keeps="bidder")
def together(batch: pa.RecordBatch) -> dict[str, Any]:
    """One key for all, since there is one queue."""
    return {"all": np.zeros(batch.num_rows, np.int8)}


def arrivals(bids_per_s: float) -> Operator:
    """The step: when each bid arrives, if they arrive at an even pace."""

    @keyed(key="all", state="seen: int64", out="arrival: timestamp[us]", keeps="bidder")
    def arrivals(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
        numbers = state["seen"] + np.arange(batch.num_rows)
        state["seen"] = state["seen"] + batch.num_rows
        micros = (numbers / bids_per_s * 1e6).astype(np.int64)
        return {"arrival": pa.array(micros).cast(pa.timestamp("us"))}

    return arrivals


def q12(events: Events) -> Stream:
    """Processing time: how many bids of a bidder arrive in ten seconds, whenever they were made.

    What a clock says when a bid is read differs from run to run, and a result must not. So the
    clock here is the pace of the source: bid n arrives n / (bids per second) after the first.
    """
    bids_per_s = events.pace.rate_per_s * BIDS / EVENTS
    return (
        events.read("bid", "bidder")
        .apply("together", together)
        .apply("arrivals", arrivals(bids_per_s))
        .timed("clock", "arrival")
        .aggregate("count", key="bidder", window=tumbling(TEN_SECONDS), bid_count=count())
    )


# The rows with the greatest value of their window, all that tie: what q7 asks for.

WINDOW = "window_end"
NEXT = timedelta(microseconds=1)


class Contenders(Filter):
    """Rows that no other row of their batch and window beats: others need not travel.

    Which rows that are depends on the batch, but never whether the greatest of a window is among
    them; so `greatest` makes it good.
    """

    batch_dependent = True
    before_shuffle = True

    def __init__(self, by: str) -> None:
        """Name the column whose value counts."""
        super().__init__(self._unbeaten)
        self.by = by

    def _unbeaten(self, batch: pa.RecordBatch) -> Any:
        ends = batch[WINDOW].cast(pa.int64()).to_numpy()
        values = batch[self.by].to_numpy()
        # Rows come in the order of time, so a window's rows stand together. Where they should not,
        # there are more contenders than need be.
        starts = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1]]))
        lengths = np.diff(np.append(starts, len(ends)))
        return values == np.repeat(np.maximum.reduceat(values, starts), lengths)


def greatest(by: str, rows: pa.Schema) -> Operator:
    """The step: of each window the rows with the greatest value, once it is over."""

    @partitioned(key=WINDOW, timers=True, out=rows)
    def greatest(ctx: Invocation) -> None:
        if ctx.reason is Reason.TIMER:
            for row in ctx.state.pop("best"):
                ctx.emit(**row.asdict())
            return
        for row in ctx.tuples():
            best = ctx.state.get("best")
            if best is None:
                ctx.set_timer(row[WINDOW] + NEXT)  # behind all rows that leave with the window
            if best is None or row[by] > best[0][by]:
                ctx.state["best"] = [row]
            elif row[by] == best[0][by]:
                best.append(row)

    return greatest


# Hot items: an operator of its own, for windows that overlap.
#
# A sliding window of ten seconds is five panes of two seconds in a row. Bids are counted by pane,
# which a built-in step does, so each bid is counted once and not five times; a window adds its
# panes up when it is over, all auctions at once. There are few panes and auctions beside the bids,
# so one replica is enough.

TOLD = "told"


class Hottest(Operator):
    """Of counts by auction and pane, the auctions with the highest count of each window.

    All that tie are told, by their id, as soon as the window is over.
    """

    state = StateKind.STATEFUL
    needs_time = True

    def __init__(self, size: timedelta, slide: timedelta) -> None:
        """Windows of a size, which is a multiple of the slide; the slide is the length of a pane.

        The input is what `aggregate` with a window of that length gives: its column `num` counts.
        """
        self.__name__ = "hottest"
        self.size, self.slide = size, slide

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The same columns: of a window instead of a pane."""
        return (StreamType(inputs[0].schema, inputs[0].time),)

    def levels(self, depth: int) -> int:
        """One more, as for all results that stem from no single tuple."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return HottestKernel(context, self)


class HottestKernel(Kernel):
    """One running copy; it remembers panes by their end, and the end of the last window told."""

    def __init__(self, context: KernelContext, operator: Hottest) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._time = context.inputs[0].time
        self._spans = sliding(operator.size, operator.slide).spans(context.step, self._time)
        self._store = ObjectStore()
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Keep the counts, then tell the windows that are over."""
        if inputs[0] is not None and len(inputs[0]):
            self._keep(inputs[0])
        over = [end for end in self._ends() if end < frontier.time]
        told = [self._hottest(end) for end in over]
        if over:
            self._forget(over[-1])
        return [in_sequence(told)]

    def next_timer(self) -> int | None:
        """Right behind the end of the next window."""
        return min((end + 1 for end in self._ends()), default=None)

    @property
    def _memory(self) -> dict[Any, Any]:
        return self._store.bucket(0)

    def _panes(self) -> list[int]:
        return [end for end in self._memory if end != TOLD]

    def _put(self, key: Any, value: Any) -> None:
        self._memory[key] = value
        self._store.touch(0, key)

    def _keep(self, counts: Jumbo) -> None:
        """Rows of a pane stand at its end, in as many batches as it pleases."""
        ends, auctions = counts.positions.columns[0], counts.batch["auction"].to_numpy()
        nums = counts.batch["num"].to_numpy()
        starts = np.flatnonzero(np.append(True, ends[1:] != ends[:-1]))
        for start, stop in zip(starts, np.append(starts[1:], len(ends)), strict=True):
            end = int(ends[start])
            held = self._memory.get(end, (auctions[:0], nums[:0]))
            new = (auctions[start:stop], nums[start:stop])
            self._put(end, tuple(np.concatenate(both) for both in zip(held, new, strict=True)))

    def _ends(self) -> list[int]:
        """Of the windows that have a pane and were not told."""
        size, slide = self._spans.size, self._spans.slide
        told = self._memory.get(TOLD, FIRST)
        ends = {pane + ahead for pane in self._panes() for ahead in range(0, size, slide)}
        return sorted(end for end in ends if end > told)

    def _hottest(self, end: int) -> Jumbo:
        size, slide = self._spans.size, self._spans.slide
        within = (self._memory.get(pane) for pane in range(end - size + slide, end + 1, slide))
        auctions, nums = (np.concatenate(c) for c in zip(*filter(None, within), strict=True))
        known, codes = np.unique(auctions, return_inverse=True)
        totals = np.zeros(len(known), np.int64)
        np.add.at(totals, codes, nums)
        best = totals == totals.max()
        return self._rows(known[best], end, totals[best])

    def _rows(self, auctions: Ints, end: int, nums: Ints) -> Jumbo:
        ids, ends = pa.array(auctions), np.full(len(auctions), end)
        borders = [from_times(times, self._time) for times in (ends - self._spans.size, ends)]
        columns = [ids, *borders, pa.array(nums)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.context.outputs[0].schema)
        # Right behind the counts of its last pane, which stand at the end itself.
        positions = stand_apart(ends + 1, -self.context.rank, [ids], self.context.depth)
        return Jumbo(batch, positions)

    def _forget(self, told: int) -> None:
        """Panes that no window to come has."""
        self._put(TOLD, told)
        for pane in self._panes():
            if pane + self._spans.size - self._spans.slide <= told:
                del self._memory[pane]
                self._store.touch(0, pane)
