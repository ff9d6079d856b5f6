"""Trades and quotes one by one in the order of their times; trades first where times are equal."""

from __future__ import annotations

import math
from datetime import timedelta

from tests.apps.cases import Case, Row, Rows, Times

LATENESS = timedelta(milliseconds=40)
DELAY = 1.3 * LATENESS  # of shuffled rows, so that some come too late


def expected(rows: Rows) -> Rows:
    late: Rows = {"trades": [], "quotes": []}
    worthless: Rows = {"trades": [], "quotes": []}
    events = []
    for rank, name in enumerate(("trades", "quotes")):
        newest = None
        for number, row in enumerate(rows[name]):
            unsaid = [column for column, value in row.items() if type(value) is int and value <= 0]
            if unsaid:
                why = f"{unsaid[0]} is not above zero"
                worthless[name].append({**row, "error": why})
                continue
            if newest is not None and row["ts"] < newest - LATENESS:
                late[name].append(row)
                continue
            newest = row["ts"] if newest is None else max(newest, row["ts"])
            events.append((row["ts"], rank, number, row))
    last_trades: dict[str, list[Row]] = {}
    out = []
    for _, rank, _, row in sorted(events, key=lambda event: event[:3]):
        trades = last_trades.setdefault(row["ticker"], [])
        if rank == 0:
            trades.append(row)
        elif len(trades) >= 4:
            four = trades[-4:]
            worth = sum(trade["price"] * trade["volume"] for trade in four)
            vwap = worth / sum(trade["volume"] for trade in four)
            if row["ask"] < vwap:
                index = row["size"] * math.exp(vwap - row["ask"])
                out.append({**row, "vwap": vwap, "index": index})
    return {
        "out": out,
        **{f"{name}.late": each for name, each in late.items()},
        **{f"{name}.worthless": each for name, each in worthless.items()},
    }


CASES = [
    Case(
        "finance",
        {"rows": 60, "tickers": 3, "lateness": LATENESS, "rate_per_s": 300.0},
        {"rows": 400, "tickers": 20, "lateness": LATENESS, "rate_per_s": 300.0},
        expected,
        {name: Times(lambda row: row["ts"], DELAY) for name in ("trades", "quotes")},
        huge={"tickers": 2_000},
    )
]
