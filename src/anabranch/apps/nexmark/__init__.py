"""NEXMark: queries over an online auction, a benchmark that most stream processors know.

By Tucker and others (2002), today in the forms of Apache Beam and of nexmark/nexmark for Flink,
whose SQL defines what is asked here. Each query is a function of a few lines, in the order of how
much it takes: `one_by_one`, `windows`, `joins`, `rankings`, `winning`. Two have operators of their
own, `hot_items` and `closing`; all else is built in. Results of windows (q5, q7, q8, q11, q12) tell
theirs beyond what the SQL selects; where a query differs otherwise, it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch.apps.kit.arguments import (
    Requirement,
    a_count,
    a_duration,
    a_number,
    a_share,
    require,
    unless,
)
from anabranch.apps.kit.inputs import Input
from anabranch.apps.kit.summary import AppSummary, Condensed, last
from anabranch.apps.nexmark import joins, one_by_one, rankings, windows, winning
from anabranch.apps.nexmark.events import Events
from anabranch.apps.nexmark.generator import EventRate
from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.flow import Flow, Stream
from anabranch.io import collect

LEAST_RATE, MOST_RATE = 1e-6, 1e9
SHOWN_ROWS, SHOWN_LETTERS = 5, 24


class Query(NamedTuple):
    """A query, and the kinds of events that it reads."""

    ask: Callable[[Events], Stream]
    sources: tuple[str, ...]


QUERIES = {
    "q0": Query(one_by_one.q0, ("bid",)),
    "q1": Query(one_by_one.q1, ("bid",)),
    "q2": Query(one_by_one.q2, ("bid",)),
    "q3": Query(joins.q3, ("person", "auction")),
    "q4": Query(winning.q4, ("auction", "bid")),
    "q5": Query(windows.q5, ("bid",)),
    "q6": Query(winning.q6, ("auction", "bid")),
    "q7": Query(windows.q7, ("bid",)),
    "q8": Query(joins.q8, ("person", "auction")),
    "q9": Query(winning.q9, ("auction", "bid")),
    "q11": Query(windows.q11, ("bid",)),
    "q12": Query(windows.q12, ("bid",)),
    "q13": Query(one_by_one.q13, ("bid",)),
    "q17": Query(rankings.q17, ("bid",)),
    "q18": Query(rankings.q18, ("bid",)),
    "q19": Query(rankings.q19, ("bid",)),
}


def variant(query: str) -> Callable[[Events], Stream]:
    """The function that is a query.

    Example:
        >>> print(variant("q7").__doc__.splitlines()[0])
        Highest bid: the bids with the highest price of each ten seconds.
    """
    return QUERIES[query].ask


def build(
    *,
    query: str = "q5",
    input: Input | None = None,
    rows: int | None = 3_000_000,
    rate_per_s: float = 10_000.0,
    lateness: timedelta = timedelta(seconds=4),
    delayed: float = 0.1,
    paced: bool = False,
    seed: int = 0,
) -> Flow:
    """Ask a query of an auction's events.

    Args:
        query: Which one: q0 to q9, q11 to q13, q17 to q19.
        input: Files of the kinds of events that it reads: {"auction": "a.csv", "bid": "b.csv"}, or
            the bids alone. Which of the benchmark's columns a query needs is listed for each.
        rows: How many events to generate, of which 2 % are persons, 6 % auctions and 92 % bids; a
            query reads those that it asks about. None for an endless stream.
        rate_per_s: How many generated events fall into a second of event time.
        lateness: How far out of order an event may come; what is later goes to the sink `late`, or
            to `<source>.late` where there are two. As in Flink's tables.
        delayed: Share of generated events that come late, by up to three seconds.
        paced: Whether generated events become due at that rate, too, instead of all at once.
        seed: Decides the generated events.

    Example:
        >>> build(query="q2")
        Flow 'nexmark-q2': bid → select → out
    """
    if query not in QUERIES:
        raise UnknownNameError(
            Subject("argument", "query"),
            f"a query among {list(QUERIES)}",
            repr(query),
            nearest(query, QUERIES),
        )
    require(
        f"nexmark-{query}",
        rows=unless(None, a_count(rows, least=0)),
        rate_per_s=Requirement(
            rate_per_s,
            a_number(rate_per_s, LEAST_RATE).holds and rate_per_s <= MOST_RATE,
            f"a rate from {LEAST_RATE:g} to {MOST_RATE:g} events a second",
        ),
        lateness=a_duration(lateness),
        delayed=a_share(delayed),
        seed=a_count(seed, least=0),
    )
    flow = Flow(f"nexmark-{query}")
    ask, sources = QUERIES[query]
    pace = EventRate(rate_per_s, delayed)
    events = Events(flow, sources, input, rows, pace, lateness, paced, seed)
    ask(events).sink("out", collect())
    return flow


class Summary(AppSummary):
    """How many results there are, and the last of them.

    Example:
        >>> print(Summary.of({"out": pa.table({"auction": [1000, 1007], "num": [42, 37]})}))
        2 results; the last:
          auction 1000, num 42
          auction 1007, num 37
    """

    def __init__(self) -> None:
        self._results, self._last = 0, Condensed(last(SHOWN_ROWS))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._results += rows.num_rows
            self._last.add(rows)

    def __str__(self) -> str:
        rows = self._last.rows()
        lines = ["  " + ", ".join(f"{name} {_short(row[name])}" for name in row) for row in rows]
        return "\n".join([f"{self._results:,} results{'; the last:' if lines else ''}", *lines])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 1] + "…"
