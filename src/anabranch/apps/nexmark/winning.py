"""Queries about what auctions were sold for: q4, q6, q9.

The winning bid of an auction is the highest that was made while it was open, from `dateTime` to
`expires`, both included; of equal ones the first. It is known when the auction is over. Whether it
reached the reserve is not asked, as in Flink's SQL; Beam asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.apps.nexmark.events import AUCTION, MOMENT, Events
from anabranch.flow import Stream
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates.base import in_sequence, stand_apart
from anabranch.operators.aggregates.functions import count, mean
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.operators.row_wise.map_filter_expand import map
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.state.positions import LAST, Ints, Jumbo, Root
from anabranch.state.tables.table_store import TableStore
from anabranch.state.tables.values import from_arrow

LAST_SOLD = 10


@map(out="auction: int64", keeps="*")
def items(batch: pa.RecordBatch) -> dict[str, Any]:
    """Auctions, whose id has also the name that bids have for it."""
    return {"auction": batch["id"]}


OFFERED = ("auction", "bidder", "price")


def sold_items(events: Events, *columns: str, offered: Sequence[str] = OFFERED) -> Stream:
    """These columns of the auctions that were bid on, each with the bid that won it."""
    auctions = events.in_time("auction", *columns)
    bids = events.in_time("bid", *offered)
    return auctions.apply("items", items).apply("winning", WinningBids(), bids)


def q4(events: Events) -> Stream:
    """Average price for a category: of the winning bids of all auctions that are over.

    Differs from Flink's SQL, whose join takes rows however late they come: an auction or bid that
    is further behind than `lateness` goes to the sink `auction.late` or `bid.late`, and counts in
    no average. The number of auctions is told as well. The average is a fraction of a cent;
    Flink's is cut to whole cents, and counts auctions from their first bid on.
    """
    return sold_items(events, "id", "expires", "category").aggregate(
        "average", key="category", emit="changes", auctions=count(), avg_price=mean("price")
    )


@partitioned(key="seller", out="seller: int64, auction: int64, avg_price: float64")
def last_sold(ctx: Invocation) -> None:
    """The average price of what a seller sold last."""
    prices = ctx.state.setdefault("prices", deque(maxlen=LAST_SOLD))
    for sold in ctx.tuples():
        prices.append(sold.price)
        ctx.emit(auction=sold.auction, avg_price=sum(prices) / len(prices))


def q6(events: Events) -> Stream:
    """Average selling price by seller: of their last ten auctions, whenever one is over.

    Ten, as the benchmark says and as Beam does, in the order in which they were over.

    Differs from Flink's SQL, which Flink itself cannot run yet: that takes eleven (ten preceding
    rows and the current one), in the order of their winning bids, and cuts the average to whole
    cents. Its join takes rows however late they come; here an auction or bid that is further behind
    than `lateness` goes to the sink `auction.late` or `bid.late`, and counts in no average.
    """
    return sold_items(events, "id", "expires", "seller").apply("last-sold", last_sold)


def q9(events: Events) -> Stream:
    """Winning bids: each auction that was bid on, with the bid that won it.

    Differs from Flink's SQL, which tells the highest bid so far and corrects it: a result leaves
    once, when its auction is over. Flink's join takes rows however late they come; here an auction
    or bid that is further behind than `lateness` goes to the sink `auction.late` or `bid.late`, and
    is part of no result.
    """
    return sold_items(events, *AUCTION.names, offered=(*OFFERED, "extra"))


# Winning bids: an operator of its own, since no built-in step waits until each auction is over.
#
# It works on whole columns: a table has one row for each open auction, with the best bid so far,
# and an index of when rows are due. What is over leaves the table, so that it stays as small as the
# market is. All that a result says of its auction is in the table, too: an id that is used again
# must not bring two auctions together.

KEY = pa.schema([pa.field("auction", pa.int64(), nullable=False)])
OFFER = pa.schema([("bidder", pa.int64()), ("price", pa.int64()), ("bid_dateTime", MOMENT)])
"""Of the bid that won."""

EXTRA = pa.field("bid_extra", pa.string())
"""The same, where bids have it."""

HAS_BID = pa.field("has_bid", pa.bool_())


def of_bids(bids: pa.Schema) -> dict[str, pa.Field]:
    """What is told of the bid that won, by the column of bids that has it.

    Example:
        >>> [field.name for field in of_bids(pa.schema([("extra", pa.string())])).values()]
        ['bidder', 'price', 'bid_dateTime', 'bid_extra']
    """
    found = dict(zip(("bidder", "price", "dateTime"), OFFER, strict=True))
    return {**found, "extra": EXTRA} if "extra" in bids.names else found


class WinningBids(Operator):
    """Of auctions (first port) and bids (second), the highest valid bid of each auction.

    A bid counts from `dateTime` to `expires` of its auction, both included; of equal ones the first
    wins. Results leave when their auctions are over, in the order of their ends and ids; an auction
    without bids leaves none. An id that is taken cannot be used again before that.
    """

    state = StateKind.PARTITIONED
    key = ("auction",)
    in_ports = 2
    needs_time = True

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The columns of the auction, and those of the bid."""
        offer = of_bids(inputs[1].schema).values()
        return (StreamType(pa.schema([*inputs[0].schema, *offer]), inputs[0].time),)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The key."""
        return frozenset(self.key)

    def levels(self, depth: int) -> int:
        """One more, as for all results that stem from no single tuple."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return WinningBidsKernel(context)


class WinningBidsKernel(Kernel):
    """One running copy."""

    def __init__(self, context: KernelContext) -> None:
        """A running copy without state."""
        super().__init__(context)
        routing = context.routing or KEY.names
        given = context.inputs[0].schema
        self._item = [name for name in given.names if name not in KEY.names]
        self._offer = of_bids(context.inputs[1].schema)
        item = (given.field(name) for name in self._item)
        state = pa.schema([*item, HAS_BID, *self._offer.values()])
        self._store = TableStore(KEY, state, context.buckets, routing)
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Open, take bids, close."""
        closed = []
        for auctions, bids, until in self._pieces(_open_ones(inputs[0]), inputs[1], frontier.time):
            if auctions is not None and len(auctions):
                self._open(auctions.batch)
            if bids is not None and len(bids):
                self._take(bids.batch)
            closed.append(self._close(until))
        return [in_sequence(closed)]

    def next_timer(self) -> int | None:
        """When the next auction is over."""
        return self._store.table.earliest_due()

    def _pieces(
        self, auctions: Jumbo | None, bids: Jumbo | None, until: int
    ) -> Iterator[tuple[Jumbo | None, Jumbo | None, int]]:
        """All at once, except where an id comes again: then up to that time, and on from there.

        Whether its first auction is over by then must not depend on what came in one batch.
        """
        if auctions is not None and len(auctions):
            times = auctions.positions.columns[0]
            for cut in np.unique(times[self._again(auctions.batch)]).tolist():
                yield _before(auctions, cut), _before(bids, cut), cut
                auctions, bids = _from(auctions, cut), _from(bids, cut)
        yield auctions, bids, until

    def _again(self, auctions: pa.RecordBatch) -> Ints:
        """Rows whose id is taken, or came in an earlier row."""
        ids = auctions["auction"]
        again = self._store.table.find([ids]) >= 0
        firsts = np.unique(ids.to_numpy(), return_index=True)[1]
        if len(firsts) < len(ids):
            later = np.ones(len(ids), np.bool_)
            later[firsts] = False
            again |= later
        return np.flatnonzero(again)

    def _open(self, auctions: pa.RecordBatch) -> None:
        table = self._store.table
        groups = table.groups([auctions["auction"]])
        firsts = np.full(len(groups.slots), auctions.num_rows)
        np.minimum.at(firsts, groups.codes, np.arange(auctions.num_rows))
        rows, slots = firsts[groups.fresh], groups.slots[groups.fresh]
        for name in self._item:
            table.set(name, slots, from_arrow(auctions[name])[rows])
        # Behind the bids of its last millisecond; times of the stream are in microseconds. An end
        # may be too far ahead for those, but never too far back: its auction begins before it.
        last_ms = np.minimum(from_arrow(auctions["expires"])[rows], LAST // 1000 - 1)
        table.stamp(slots, last_ms * 1000 + 1)
        table.file(slots)

    def _take(self, bids: pa.RecordBatch) -> None:
        table = self._store.table
        slots = table.find([bids["auction"]])
        rows = np.flatnonzero(slots >= 0)
        slots, times = slots[rows], from_arrow(bids["dateTime"])[rows]
        valid = (table.get("dateTime", slots) <= times) & (times <= table.get("expires", slots))
        rows, slots = rows[valid], slots[valid]
        prices = from_arrow(bids["price"])[rows]
        # The complement turns the order of prices around; rows of one price keep theirs.
        order = np.lexsort((~prices, slots))
        ordered = slots[order]
        best = order[np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])]
        slots, prices = slots[best], prices[best]
        higher = ~table.get(HAS_BID.name, slots) | (prices > table.get("price", slots))
        slots, chosen = slots[higher], rows[best[higher]]
        table.set(HAS_BID.name, slots, np.ones(len(slots), np.bool_))
        for given, field in self._offer.items():
            table.set(field.name, slots, from_arrow(bids[given].take(pa.array(chosen))))

    def _close(self, until: int) -> Jumbo | None:
        table = self._store.table
        due = table.take_due(until)
        if not len(due):
            return None
        sold = due[table.get(HAS_BID.name, due)]
        columns = self.context.outputs[0].schema
        batch, times, keys = table.rows(sold), table.time(sold), table.keys(sold)
        table.remove(due)
        positions = stand_apart(times, -self.context.rank, keys, self.context.depth)
        arrays = batch.select(columns.names).columns
        return Jumbo(pa.RecordBatch.from_arrays(arrays, schema=columns), positions)


def _open_ones(auctions: Jumbo | None) -> Jumbo | None:
    """Without those that are over before they begin."""
    if auctions is None:
        return None
    return auctions.where(
        from_arrow(auctions.batch["dateTime"]) <= from_arrow(auctions.batch["expires"])
    )


def _before(jumbo: Jumbo | None, time: int) -> Jumbo | None:
    return None if jumbo is None else jumbo.slice(0, _place(jumbo, time))


def _from(jumbo: Jumbo | None, time: int) -> Jumbo | None:
    return None if jumbo is None else jumbo.slice(_place(jumbo, time), len(jumbo))


def _place(jumbo: Jumbo, time: int) -> int:
    return int(np.searchsorted(jumbo.positions.columns[0], time))
