"""The queries of NEXMark by their definitions, over all events at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from anabranch.flow import Flow
from anabranch.testing.checking import Recording
from tests.apps.cases import EVERYTHING, Case, Row, Rows, Times

EPOCH = datetime(1970, 1, 1)
TEN_SECONDS, TWO_SECONDS = timedelta(seconds=10), timedelta(seconds=2)
RATE = 4.0
BIDS_PER_S = RATE * 46 / 50


def picked(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def begin(time: datetime, size: timedelta = TEN_SECONDS) -> datetime:
    """Of the window of a size that a time is in."""
    return time - (time - EPOCH) % size


def by(rows: Iterable[Row], *names: str) -> dict[tuple[object, ...], list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return dict(groups)


# One bid at a time


def q0(rows: Rows) -> list[Row]:
    return [picked(bid, "auction", "bidder", "price", "dateTime", "extra") for bid in rows["bid"]]


def q1(rows: Rows) -> list[Row]:
    return [{**bid, "price": bid["price"] * Decimal("0.908")} for bid in rows["bid"]]


def q2(rows: Rows) -> list[Row]:
    return [bid for bid in rows["bid"] if bid["auction"] % 123 == 0]


def q13(rows: Rows) -> list[Row]:
    return [{**bid, "value": str(bid["auction"] % 10_000)} for bid in rows["bid"]]


# Windows


def q5(rows: Rows) -> list[Row]:
    windows: dict[datetime, Counter[int]] = defaultdict(Counter)
    for bid in rows["bid"]:
        start = begin(bid["dateTime"], TWO_SECONDS)
        while start + TEN_SECONDS > bid["dateTime"]:
            windows[start][bid["auction"]] += 1
            start -= TWO_SECONDS
    return [
        {"auction": auction, "window_start": start, "window_end": start + TEN_SECONDS, "num": n}
        for start, counts in sorted(windows.items())
        for most in [max(counts.values())]
        for auction, n in sorted(counts.items())
        if n == most
    ]


def q7(rows: Rows) -> list[Row]:
    bids = sorted(rows["bid"], key=lambda bid: bid["dateTime"])
    windowed = [{**bid, "window_end": begin(bid["dateTime"]) + TEN_SECONDS} for bid in bids]
    highest = {
        window: max(bid["price"] for bid in of_it)
        for (window,), of_it in by(windowed, "window_end").items()
    }
    return [bid for bid in windowed if bid["price"] == highest[bid["window_end"]]]


def q11(rows: Rows) -> list[Row]:
    sessions = []
    for (bidder,), bids in by(rows["bid"], "bidder").items():
        parts: list[list[datetime]] = []
        for time in sorted(bid["dateTime"] for bid in bids):
            if not parts or time - parts[-1][-1] >= TEN_SECONDS:
                parts.append([])
            parts[-1].append(time)
        sessions += [
            {
                "bidder": bidder,
                "window_start": times[0],
                "window_end": times[-1] + TEN_SECONDS,
                "bid_count": len(times),
            }
            for times in parts
        ]
    return sessions


def q12(rows: Rows) -> list[Row]:
    arrivals = Counter(
        (begin(EPOCH + timedelta(microseconds=int(number / BIDS_PER_S * 1e6))), bid["bidder"])
        for number, bid in enumerate(rows["bid"])
    )
    return [
        {"bidder": bidder, "window_start": start, "window_end": start + TEN_SECONDS, "bid_count": n}
        for (start, bidder), n in arrivals.items()
    ]


# Joins


def q3(rows: Rows) -> list[Row]:
    auctions = by(rows["auction"], "seller")
    return [
        {**picked(person, "name", "city", "state"), "auction": auction["id"]}
        for person in rows["person"]
        for auction in auctions.get((person["id"],), [])
        if auction["category"] == 10 and person["state"] in {"OR", "ID", "CA"}
    ]


def q8(rows: Rows) -> list[Row]:
    sold = {(auction["seller"], begin(auction["dateTime"])) for auction in rows["auction"]}
    came = {(person["id"], person["name"], begin(person["dateTime"])) for person in rows["person"]}
    return [
        {"id": person, "name": name, "starttime": start}
        for person, name, start in came
        if (person, start) in sold
    ]


# Winning bids


def won(rows: Rows) -> list[tuple[Row, Row]]:
    """Auctions with the bids that won them, in the order of their ends."""
    pairs = []
    offers = by(sorted(rows["bid"], key=lambda bid: bid["dateTime"]), "auction")
    for auction in rows["auction"]:
        bids = [
            bid
            for bid in offers.get((auction["id"],), [])
            if auction["dateTime"] <= bid["dateTime"] <= auction["expires"]
        ]
        if bids:
            pairs.append((auction, max(bids, key=lambda bid: bid["price"])))
    return sorted(pairs, key=lambda pair: (pair[0]["expires"], pair[0]["id"]))


def q4(rows: Rows) -> list[Row]:
    prices = defaultdict(list)
    for auction, bid in won(rows):
        prices[auction["category"]].append(bid["price"])
    return [
        {
            "category": category,
            "auctions": len(paid),
            "avg_price": float(Fraction(sum(paid), len(paid))),
        }
        for category, paid in prices.items()
    ]


def q6(rows: Rows) -> list[Row]:
    averages, prices = [], defaultdict(list)
    for auction, bid in won(rows):
        seller = auction["seller"]
        prices[seller].append(bid["price"])
        last = prices[seller][-10:]
        average = float(Fraction(sum(last), len(last)))
        averages.append({"seller": seller, "auction": auction["id"], "avg_price": average})
    return averages


def q9(rows: Rows) -> list[Row]:
    return [
        {
            **auction,
            "auction": auction["id"],
            **picked(bid, "bidder", "price"),
            "bid_dateTime": bid["dateTime"],
            "bid_extra": bid["extra"],
        }
        for auction, bid in won(rows)
    ]


# Tables that change


def q17(rows: Rows) -> list[Row]:
    bids = [{**bid, "day": bid["dateTime"].date()} for bid in rows["bid"]]
    report = []
    for (auction, day), of_it in by(bids, "auction", "day").items():
        prices = [bid["price"] for bid in of_it]
        cheap = sum(price < 10_000 for price in prices)
        dear = sum(price >= 1_000_000 for price in prices)
        report.append(
            {
                "auction": auction,
                "day": day,
                "total_bids": len(prices),
                "rank1_bids": cheap,
                "rank2_bids": len(prices) - cheap - dear,
                "rank3_bids": dear,
                "min_price": min(prices),
                "max_price": max(prices),
                "avg_price": float(Fraction(sum(prices), len(prices))),
                "sum_price": sum(prices),
            }
        )
    return report


def q18(rows: Rows) -> list[Row]:
    # Sorting keeps the order of those with one time.
    ordered = sorted(rows["bid"], key=lambda bid: bid["dateTime"])
    return [{"rank": 1, **bids[-1]} for bids in by(ordered, "bidder", "auction").values()]


def q19(rows: Rows) -> list[Row]:
    return [
        {"rank": rank, **bid}
        for bids in by(rows["bid"], "auction").values()
        for rank, bid in enumerate(sorted(bids, key=lambda bid: -bid["price"])[:10], start=1)
    ]


QUERIES: dict[str, Callable[[Rows], list[Row]]] = {
    f.__name__: f for f in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q11, q12, q13, q17, q18, q19)
}
UNORDERED = {"q3", "q8", "q11", "q12"}
ONE_SOURCE, TWO_SOURCES = {"q5", "q7", "q11"}, {"q3", "q4", "q6", "q8", "q9"}
TIED = {"q7", "q9", "q19"}
SMALL = {"q2": 2000, "q3": 4000, "q8": 1500}
LARGE = {"q5": 400}
RATES = {"q5": 0.5, "q8": 20.0, "q17": 0.001, "q18": 100_000.0}
"""Few bids in a window, so that auctions tie; a day and more of bids; several a millisecond."""
MANY_A_WINDOW = {"q5": 500.0, "q7": 500.0, "q11": 100.0}
"""For the most rows, so that windows have many of them."""

LATENESS = timedelta(seconds=4)
DISORDER = {"person": 20, "auction": 20, "bid": 8}
"""Seconds, so many that some events come too late; there are fewer people and auctions than bids,
and so longer times between them."""


class OfRoundPrices(Case):
    """Bids of one, ten, a hundred… dollars, so that some are equal."""

    def flow(self, size: str) -> Flow:
        flow = super().flow(size)
        tables = Recording.of(flow, EVERYTHING).tables
        schema = tables["bid"].schema
        prices = [10 ** (len(str(price)) - 1) for price in tables["bid"]["price"].to_pylist()]
        place = schema.get_field_index("price")
        tables["bid"] = tables["bid"].set_column(place, schema.field(place), pa.array(prices))
        return Recording(tables, {name: {} for name in tables}).feed(flow)


def parted(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Events that come on time, and those that come too late."""
    on_time, late, latest = [], [], EPOCH
    for row in rows:
        (late if row["dateTime"] < latest - LATENESS else on_time).append(row)
        latest = max(latest, row["dateTime"])
    return on_time, late


def case(name: str, query: str) -> Case:
    def expected(rows: Rows) -> Rows:
        if query not in ONE_SOURCE | TWO_SOURCES:
            return {"out": QUERIES[query](rows)}
        both = {source: parted(events) for source, events in rows.items()}
        late = {
            "late" if query in ONE_SOURCE else f"{source}.late": events
            for source, (_, events) in both.items()
        }
        return {"out": QUERIES[query]({source: both[source][0] for source in both}), **late}

    sources = {"q3": "person auction", "q8": "person auction"}.get(query, "auction bid").split()
    timed = ["bid"] if query in ONE_SOURCE else sources if query in TWO_SOURCES else []
    given = {"rate_per_s": RATES.get(query, RATE), "lateness": LATENESS}
    small = SMALL.get(query, 100)
    kind = OfRoundPrices if query in TIED else Case
    return kind(
        name,
        {"rows": small, **given},
        {"rows": LARGE.get(query, max(2 * small, 800)), "seed": 1, **given},
        expected,
        {
            source: Times(lambda row: row["dateTime"], timedelta(seconds=DISORDER[source]))
            for source in timed
        },
        frozenset({"out"} if query in UNORDERED else {}),
        {"rate_per_s": MANY_A_WINDOW.get(query, given["rate_per_s"])},
        huge_delay=0.55,
    )


CASES = [case("nexmark", "q5"), *(case(f"nexmark-{query}", query) for query in QUERIES)]
