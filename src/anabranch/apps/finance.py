"""Finance: quotes that ask less than the average price of the last trades, and how good they are.

The VWAP application of IBM's stream processing systems (SPADE, then SPL), which Joker runs as its
finance benchmark (§5.4, figure 17). Of each ticker the volume-weighted average price of the last
four trades is kept, from the fourth trade on: Σ price · volume / Σ volume. A quote meets the latest
average of its ticker at its own event time; trades of the same instant come before it. Where it
asks less, it is a bargain, with the index

    size · exp(average - ask),   average and ask in cents,

as in IBM's published program, which multiplies what is asked, in dollars, by 100 before it compares
and exponentiates. Trades and quotes with a number that is not above zero say nothing about a price;
they leave to the sinks `<source>.worthless`.

Prices are whole cents and volumes whole shares, so sums are exact however the stream is batched
(as long as they stay below 2⁶³). More than 709 cents below the average, the index is infinite.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice, product
from string import ascii_uppercase
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_duration, a_number, require
from anabranch.apps.kit.columns import described, required
from anabranch.apps.kit.inputs import FAR, Input, paths_of, read_rows
from anabranch.apps.kit.recent import Recent
from anabranch.apps.kit.seeded_random import zipf
from anabranch.apps.kit.summary import AppSummary, Condensed, distinct, greatest
from anabranch.columns.grouped_rows import Runs
from anabranch.flow import Flow, Stream
from anabranch.io import collect, generate
from anabranch.operators.base import Operator
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.row_wise.map_filter_expand import map
from anabranch.operators.row_wise.screen import screen
from anabranch.state.positions import Ints

SOURCES = ("trades", "quotes")
WINDOW_TRADES = 4
LATENESS = timedelta(milliseconds=100)
TOP = 5

OPENING = np.datetime64("2024-01-02T09:30", "us")
LETTERS = 4  # of a ticker
LOT, ODD_LOTS = 100, 0.2
DELAYED = 0.1


TRADE = described(
    required(ts=pa.timestamp("us"), ticker=pa.string(), price=pa.int32(), volume=pa.int32()),
    price="in whole cents",
    volume="in shares",
)
QUOTE = described(
    required(ts=pa.timestamp("us"), ticker=pa.string(), ask=pa.int32(), size=pa.int32()),
    ask="in whole cents",
    size="in shares",
)


def build(
    *,
    input: Input | None = None,
    rows: int | None = 2_000_000,
    window: int = WINDOW_TRADES,
    tickers: int = 1_000,
    rate_per_s: float = 10_000.0,
    lateness: timedelta = LATENESS,
    seed: int = 0,
) -> Flow:
    """Find bargains in files of trades and quotes, or in generated ones.

    Args:
        input: Files of both, by those names: {"trades": "t.csv", "quotes": "q.csv"}. Trades have
            the columns ts, ticker, price and volume, quotes ts, ticker, ask and size; prices are in
            whole cents.
        rows: How many trades and how many quotes to generate; None for endless streams.
        window: Over how many trades of a ticker prices are averaged.
        tickers: How many tickers are generated; the one of rank r in proportion to 1/r.
        rate_per_s: How many generated trades, and quotes, fall into a second of event time.
        lateness: How far out of order a tuple may come; what is later leaves to `<source>.late`.
        seed: Decides the generated trades and quotes.

    Example:
        >>> print(*(step for step in build().resolve().order if "." not in step))
        trades trade-filter quotes quote-filter vwap-sums vwap quote met bargain-index out
    """
    require(
        "finance",
        window=a_count(window, 1),
        tickers=a_count(tickers, 1, len(ascii_uppercase) ** LETTERS),
        rate_per_s=a_number(rate_per_s, above=0),
        lateness=a_duration(lateness),
    )
    flow = Flow("finance")
    market = Market(tickers, rate_per_s, lateness)

    def ready(name: str, make: Any, columns: pa.Schema, filter: str, seed: int) -> Stream:
        if input is None:
            given = flow.source(name, generate(make, columns, rows=rows, seed=seed))
        else:
            given = read_rows(flow, name, paths_of(input, name, SOURCES), columns)
        wanted = given.apply(filter, screen(worthless))
        wanted.errors.sink(f"{name}.worthless", collect())
        timed = wanted.timed(f"{name}.time", "ts", lateness=lateness, ahead=FAR)
        timed.late.sink(f"{name}.late", collect())
        return timed

    trades = ready("trades", market.trades, TRADE, "trade-filter", 2 * seed)
    quotes = ready("quotes", market.quotes, QUOTE, "quote-filter", 2 * seed + 1)
    averages = trades.apply("vwap-sums", sums_of_last(window)).apply("vwap", average)
    (
        averages.union("met", quotes.apply("quote", asked(averages.schema)))
        .apply("bargain-index", bargains)
        .sink("out", collect())
    )
    return flow


def worthless(batch: pa.RecordBatch) -> pa.Array:
    """The first number of a trade or a quote that is not above zero; null where all are."""
    why = pa.nulls(batch.num_rows, pa.string())
    for name in reversed(batch.schema.names[2:]):
        positive = pc.fill_null(pc.greater(batch[name], 0), False)
        if not pc.all(positive).as_py():
            why = pc.if_else(positive, why, f"{name} is not above zero")
    return why


def sums_of_last(window: int) -> Operator:
    """The step: what the last trades of a ticker were worth, and how many shares they moved.

    The worth and the shares of the trades before are the state, one column for each of them.
    """
    ages = range(window - 1)
    columns = [f"{name}_{age}" for name in ("worth", "shares") for age in ages]
    held = "".join(f", {name}: int64" for name in columns)

    @keyed(
        key="ticker",
        state=f"trades: int64{held}",
        out="worth: int64, shares: int64",
        keeps=("ts", "ticker"),
    )
    def sums(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Ints], Ints]:
        volume = batch["volume"].to_numpy().astype(np.int64)
        worth = batch["price"].to_numpy() * volume
        runs = Runs(state.codes, state.groups)
        before = state["trades"]
        state["trades"] = before + runs.counts
        full = np.flatnonzero(before[state.codes] + runs.ranks() + 1 >= window)
        made = {}
        for name, values in (("worth", worth), ("shares", volume)):
            past = np.array([state[f"{name}_{age}"] for age in ages], np.int64)
            recent = Recent(runs, values, past.reshape(len(ages), state.groups))
            for age, kept in enumerate(recent.past()):
                state[f"{name}_{age}"] = kept
            made[name] = recent.sums()[full]
        return made, full

    return sums


@map(out="vwap: double, ask: int32, size: int32", keeps=("ts", "ticker"))
def average(batch: pa.RecordBatch) -> dict[str, Any]:
    """Sums to a price, in the columns of what it will be compared with; it asks nothing itself."""
    price = batch["worth"].to_numpy() / batch["shares"].to_numpy()
    nothing = np.zeros(batch.num_rows, np.int32)
    return {"vwap": price, "ask": nothing, "size": nothing}


def asked(like: pa.Schema) -> Operator:
    """The step: a quote in the columns of an average."""

    @map(out=like)
    def quote(batch: pa.RecordBatch) -> dict[str, Any]:
        given = {name: batch[name] for name in ("ts", "ticker", "ask", "size")}
        return {**given, "vwap": np.zeros(batch.num_rows)}

    return quote


@keyed(
    key="ticker",
    state="vwap: double",
    out="vwap: double, index: double",
    keeps=("ts", "ticker", "ask", "size"),
)
def bargains(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Any], Ints]:
    """Quotes below the latest average of their ticker, with their index."""
    ask, vwap = batch["ask"].to_numpy(), batch["vwap"].to_numpy()
    runs = Runs(state.codes, state.groups)
    order, places = runs.order, np.arange(len(runs))
    # Row by row in the order of tickers: the last place before it that holds an average.
    latest = np.maximum.accumulate(np.where(ask[order] == 0, places, -1))
    own = latest >= runs.starts[runs.codes[order]]
    known = np.empty(len(runs))
    known[order] = np.where(own, vwap[order[latest]], state["vwap"][runs.codes[order]])
    state["vwap"] = known[runs.last_rows()]
    found = np.flatnonzero((ask > 0) & (known > ask))
    with np.errstate(over="ignore"):
        index = batch["size"].to_numpy()[found] * np.exp(known[found] - ask[found])
    return {"vwap": known[found], "index": index}, found


class Summary(AppSummary):
    """How many bargains there are, and the best of them.

    Example:
        >>> cheap = {"ticker": ["IBM"], "ask": [9_900], "size": [200], "vwap": [9_902.5]}
        >>> print(Summary.of({"out": pa.table({**cheap, "index": [2436.5]})}))
        1 bargains in 1 tickers, the best:
          IBM  200 shares at 99.00, average 99.025, index 2.44e+03
    """

    def __init__(self) -> None:
        order = [("index", "descending"), ("ticker", "ascending")]
        self._bargains, self._best = 0, Condensed(greatest(TOP, order))
        self._tickers = Condensed(distinct("ticker"))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._bargains += rows.num_rows
            self._best.add(rows)
            self._tickers.add(rows)

    def __str__(self) -> str:
        lines = [
            f"  {row['ticker']}  {row['size']:,} shares at {row['ask'] / 100:,.2f}, "
            f"average {row['vwap'] / 100:,.3f}, index {row['index']:.3g}"
            for row in self._best.rows()
        ]
        said = f"{self._bargains:,} bargains in {len(self._tickers):,} tickers, the best:"
        return "\n".join([said, *lines])


class Market:
    """Makes trades and quotes: few tickers have most of them, and prices move slowly.

    Each row follows from the seed and its number alone. The price of a ticker is a function of
    time, two waves around a level of its own. A trade is made half a spread above or below it, a
    quote asks half a spread more, and both stray by some cents. Every tenth row comes too late to
    be in order, within the lateness.
    """

    def __init__(self, tickers: int, rate_per_s: float, lateness: timedelta) -> None:
        """Draw the tickers; they do not depend on the seed of the rows."""
        rng = np.random.default_rng(tickers)
        letters = islice(product(ascii_uppercase, repeat=LETTERS), tickers)
        self._names = pa.array(["".join(each) for each in letters])
        self._by_rank = zipf(tickers)
        self._level = 500 * 100 ** rng.random(tickers)  # 5 to 500 dollars
        self._slow_s, self._quick_s = rng.uniform(900, 3600, tickers), rng.uniform(20, 60, tickers)
        self._half_spread = rng.integers(1, 4, tickers) / 2
        self._gap_us, self._most_us = 1e6 / rate_per_s, lateness / timedelta(microseconds=1)

    def trades(self, rng: np.random.Generator, index: Ints) -> dict[str, Any]:
        """Columns of trades, for `generate`."""
        ticker, ts, price = self._prices(rng, index)
        side = rng.choice([-1, 1], len(index)) * self._half_spread[ticker]
        odd = rng.random(len(index)) < ODD_LOTS
        volume = np.where(odd, rng.integers(1, LOT, len(index)), _lots(rng, len(index)))
        made = _cents(price + side + rng.normal(0, 2, len(index)))
        return {"ts": ts, "ticker": self._names.take(ticker), "price": made, "volume": volume}

    def quotes(self, rng: np.random.Generator, index: Ints) -> dict[str, Any]:
        """Columns of quotes, for `generate`."""
        ticker, ts, price = self._prices(rng, index)
        ask = _cents(price + self._half_spread[ticker] + rng.normal(0, 1.5, len(index)))
        size = _lots(rng, len(index))
        return {"ts": ts, "ticker": self._names.take(ticker), "ask": ask, "size": size}

    def _prices(self, rng: np.random.Generator, index: Ints) -> tuple[Ints, Any, Any]:
        ticker = np.searchsorted(self._by_rank, rng.random(len(index)))
        delayed = rng.random(len(index)) < DELAYED
        us = index * self._gap_us - delayed * rng.random(len(index)) * 0.99 * self._most_us
        slow, quick = (
            np.sin(2e-6 * np.pi * us / period[ticker] + ticker)
            for period in (self._slow_s, self._quick_s)
        )
        price = self._level[ticker] * (1 + 0.01 * slow + 0.001 * quick)
        return ticker, OPENING + us.astype("timedelta64[us]"), price


def _lots(rng: np.random.Generator, rows: int) -> Ints:
    return LOT * rng.geometric(0.4, rows)


def _cents(price: npt.NDArray[np.float64]) -> Ints:
    return np.maximum(np.rint(price), 1).astype(np.int64)
