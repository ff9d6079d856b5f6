"""NEXMark's queries: examples by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

import anabranch as ab
from anabranch.apps.nexmark import build
from anabranch.apps.nexmark.winning import WinningBidsKernel
from anabranch.graph import Role, StateKind
from anabranch.testing.sequential import run_sequential
from tests.apps.nexmark_rows import ask, at, auction, bid, fed, found

# One bid at a time


def test_q0_passes_on_what_the_sql_selects():
    assert ask("q0", bid=[bid(1, 7, channel="c", url="u", extra="e")]) == [
        {"auction": 7, "bidder": 5, "price": 7, "dateTime": at(1), "extra": "e"}
    ]


def test_q1_converts_exactly_up_to_the_largest_price():
    prices = [1, 99, 2**63 - 1, -(2**63)]
    converted = ask("q1", bid=[bid(0, price) for price in prices])
    assert found(converted, "price") == [(Decimal("0.908") * price,) for price in prices]


def test_q2_selects_every_123rd_auction():
    bids = [bid(0, n, auction=n) for n in (0, 1, 122, 123, 124, 246, 2**63 - 1)]
    assert found(ask("q2", bid=bids), "auction", "price") == [(0, 0), (123, 123), (246, 246)]


def test_q13_looks_the_auction_up_beside_the_stream():
    bids = [bid(0, auction=n) for n in (3, 10_003, 29_999)]
    assert found(ask("q13", bid=bids), "auction", "value") == [
        (3, "3"),
        (10_003, "3"),
        (29_999, "9999"),
    ]


# Windows


def test_q5_tells_all_auctions_that_tie():
    bids = [bid(0, auction=1), bid(1, auction=2), bid(1, auction=1), bid(3, auction=2)]
    windows = found(ask("q5", bid=bids), "window_start", "auction", "num")
    assert windows == [
        (at(-8), 1, 2),
        (at(-6), 1, 2),
        (at(-6), 2, 2),
        (at(-4), 1, 2),
        (at(-4), 2, 2),
        (at(-2), 1, 2),
        (at(-2), 2, 2),
        (at(0), 1, 2),
        (at(0), 2, 2),
        (at(2), 2, 1),
    ]


def test_q5_begins_a_window_with_a_bid_on_its_border_and_ends_before_the_next():
    ends = found(ask("q5", bid=[bid(10)]), "window_start")
    assert ends == [(at(2),), (at(4),), (at(6),), (at(8),), (at(10),)]


def test_q5_leaves_out_windows_without_bids():
    windows = found(ask("q5", bid=[bid(0), bid(100)]), "window_start", "num")
    assert windows == [(at(n), 1) for n in (-8, -6, -4, -2, 0, 92, 94, 96, 98, 100)]


def test_q7_tells_all_highest_bids_of_a_window_in_the_order_of_time():
    bids = [bid(1, 5), bid(9.999, 7, bidder=1), bid(6, 7, bidder=2), bid(10, 9), bid(11, 8)]
    assert found(ask("q7", bid=bids), "dateTime", "price", "bidder") == [
        (at(6), 7, 2),
        (at(9.999), 7, 1),
        (at(10), 9, 5),
    ]


def test_q7_takes_prices_at_the_edge_of_their_type():
    bids = [bid(0, -(2**63)), bid(10, 2**63 - 1), bid(11, 2**63 - 2)]
    assert found(ask("q7", bid=bids), "price") == [(-(2**63),), (2**63 - 1,)]


def test_q11_parts_sessions_by_ten_seconds_of_silence():
    bids = [bid(0), bid(9.999), bid(19.999), bid(20), bid(19.5, bidder=6)]
    sessions = found(ask("q11", bid=bids), "bidder", "window_start", "window_end", "bid_count")
    assert sessions == [
        (5, at(0), at(19.999), 2),
        (6, at(19.5), at(29.5), 1),
        (5, at(19.999), at(30), 2),
    ]


def test_q12_counts_by_arrival_whatever_the_time_of_a_bid():
    # 9200 bids a second arrive, so the first window takes 92,000.
    whole = ask("q12", bid=[bid(n % 7) for n in range(5)])
    assert found(whole, "bidder", "bid_count") == [(5, 5)]
    flow = build(query="q12", rows=1000, rate_per_s=10.0)
    starts = sorted({row["window_start"] for row in run_sequential(flow).rows("out")})
    assert starts == [datetime(1970, 1, 1) + timedelta(seconds=10 * n) for n in range(10)]


# Joins


def test_q3_pairs_whoever_comes_first():
    people = [{"id": 1, "dateTime": at(5)}, {"id": 2, "dateTime": at(6), "state": "WA"}]
    auctions = [
        auction(1, 9, id=70),
        auction(8, 9, id=71),
        auction(8, 9, id=72, category=11),
        auction(8, 9, id=73, seller=2),
    ]
    pairs = ask("q3", person=people, auction=auctions)
    assert found(pairs, "name", "state", "auction") == [("Ann", "OR", 70), ("Ann", "OR", 71)]


def test_q3_remembers_people_for_years():
    auctions = [auction(day * 86_400, day * 86_400, id=day) for day in range(1, 3600, 300)]
    pairs = ask("q3", person=[{"id": 1, "dateTime": at(0)}], auction=auctions)
    assert found(pairs, "auction") == [(day,) for day in range(1, 3600, 300)]


def test_q8_asks_for_the_same_window_and_tells_once():
    people = [{"id": n, "dateTime": at(9.999)} for n in (1, 2, 3)]
    people.append({"id": 4, "dateTime": at(11)})
    auctions = [
        auction(0, 90, seller=1),
        auction(9, 90, seller=1),
        auction(10, 90, seller=2),
        auction(9.999, 90, seller=3),
        auction(9.5, 90, seller=4),  # in the window before
        auction(12, 90, seller=4),
    ]
    new = ask("q8", person=people, auction=auctions)
    assert found(new, "id", "starttime") == [(1, at(0)), (3, at(0)), (4, at(10))]


# Winning bids


def test_q9_takes_the_first_of_the_highest_bids_while_the_auction_is_open():
    auctions = [auction(10, 20, id=1), auction(10, 20, id=2), auction(10, 20, id=3)]
    bids = [
        bid(9.999, 900, auction=1),  # before it opened
        bid(10, 5, auction=1),
        bid(12, 7, auction=1, bidder=1),
        bid(15, 7, auction=1, bidder=2),  # no more than the one before
        bid(20, 8, auction=2),  # in the last millisecond
        bid(20.001, 9, auction=2),  # after the end
        bid(11, 50, auction=4),  # on nothing
    ]
    won = ask("q9", auction=auctions, bid=bids)
    assert found(won, "id", "price", "bid_dateTime") == [(1, 7, at(12)), (2, 8, at(20))]


@pytest.mark.parametrize("price", [-(2**63), 0, 2**63 - 1])
def test_q9_takes_any_price(price):
    won = ask("q9", auction=[auction(0, 9)], bid=[bid(1, price)])
    assert found(won, "price") == [(price,)]


def test_q9_takes_an_auction_that_ends_before_it_begins_for_none():
    auctions = [auction(5, 4, id=1), auction(5, 5, id=2)]
    won = ask("q9", auction=auctions, bid=[bid(5, auction=1), bid(5, auction=2)])
    assert found(won, "id") == [(2,)]


REUSED = {
    "auction": [auction(0, 5, seller=1), auction(3, 9, seller=2), auction(6, 8, seller=3)],
    "bid": [bid(1, 10), bid(4, 20), bid(6, 30), bid(8.5, 40)],
}
"""An auction, its id again while it is open, and once more when it is over."""


@pytest.mark.parametrize(("query", "price"), [("q6", "avg_price"), ("q9", "price")])
def test_an_id_can_be_used_again_once_its_auction_is_over(query, price):
    flow = fed(query, **REUSED)
    assert found(run_sequential(flow).rows("out"), "seller", price) == [(1, 20), (3, 30)]
    assert ab.check(flow, cases=30, processes=0).ok


def test_q9_tells_of_an_auction_what_was_said_when_it_opened():
    again = {**REUSED["auction"][2], "itemName": "lamp", "extra": None, "reserve": 9}
    won = ask("q9", auction=[*REUSED["auction"][:2], again], bid=REUSED["bid"])
    names = ("id", "auction", "dateTime", "expires", "reserve", "itemName", "extra", "bidder")
    assert found(won, *names) == [
        (7, 7, at(0), at(5), 1, None, None, 5),
        (7, 7, at(6), at(8), 9, "lamp", None, 5),
    ]


def test_q9_tells_what_the_winning_bid_had_beside_its_price():
    bids = [bid(1, 10, extra="lost"), bid(2, 20, extra="won"), bid(3, 20, extra=None)]
    won = ask("q9", auction=[auction(0, 9, extra="item")], bid=bids)
    assert found(won, "extra", "bid_extra") == [("item", "won")]
    won = ask("q9", auction=[auction(0, 9)], bid=[*bids[:2], bid(4, 30, extra=None)])
    assert found(won, "price", "bid_extra") == [(30, None)], "not that of an earlier bid"


def test_q9_holds_no_more_than_the_auctions_that_are_open(monkeypatch):
    held, step = [], WinningBidsKernel.step

    def counting(kernel, inputs, frontier):
        out = step(kernel, inputs, frontier)
        held.append(len(kernel.stores[0].table))
        return out

    monkeypatch.setattr(WinningBidsKernel, "step", counting)
    flow = fed(
        "q9",
        auction=[auction(n, n + 5, id=n) for n in range(100)],
        bid=[bid(n + 1, auction=n) for n in range(100)],
    )
    assert len(run_sequential(flow).rows("out")) == 100
    assert max(held) == 6
    steps = flow.graph.steps
    remember = [
        n for n in flow.names(Role.OPERATOR) if steps[n].body.state is not StateKind.STATELESS
    ]
    assert sorted(remember) == ["auction.time", "bid.time", "winning"]


def test_q4_averages_over_auctions_with_bids():
    auctions = [
        auction(0, 5, id=1, category=10),
        auction(0, 5, id=2, category=10),
        auction(0, 9, id=3, category=10),
        auction(0, 9, id=4, category=11),
    ]
    bids = [
        bid(1, 10, auction=1),
        bid(2, 20, auction=1),
        bid(2, 41, auction=2),
        bid(9, 3, auction=4),
    ]
    last = {row["category"]: row for row in ask("q4", auction=auctions, bid=bids)}
    assert found(last.values(), "category", "auctions", "avg_price") == [
        (10, 2, 30.5),
        (11, 1, 3.0),
    ]


def test_q6_averages_the_last_ten_that_are_over():
    auctions = [auction(0, 100 - n, id=n) for n in range(12)]
    bids = [bid(1, 10**n, auction=n) for n in range(12)]
    averages = ask("q6", auction=auctions, bid=bids)
    assert found(averages, "auction") == [(n,) for n in reversed(range(12))]
    assert averages[0]["avg_price"] == 10.0**11
    assert averages[-1]["avg_price"] == 1111111111 / 10


# Tables that change


def test_q17_reports_by_auction_and_day():
    prices = [9_999, 10_000, 999_999, 1_000_000]
    bids = [bid(0, price) for price in prices] + [bid(12 * 3600, 1), bid(0, 5, auction=8)]
    last = {(row["auction"], row["day"].day): row for row in ask("q17", bid=bids)}
    counts = ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids")
    assert found([last[7, 15]], *counts) == [(4, 1, 2, 1)]
    assert found([last[7, 15]], "min_price", "max_price", "avg_price", "sum_price") == [
        (9_999, 1_000_000, 504_999.5, 2_019_998)
    ]
    assert found([last[7, 16], last[8, 15]], "total_bids", "sum_price") == [(1, 1), (1, 5)]


def test_q18_keeps_the_latest_bid_not_the_last_to_arrive():
    bids = [bid(1, 1), bid(5, 2), bid(3, 3), bid(5, 4), bid(0, 5, bidder=6), bid(0, 6, auction=8)]
    last = {(row["bidder"], row["auction"]): row["price"] for row in ask("q18", bid=bids)}
    assert last == {(5, 7): 4, (6, 7): 5, (5, 8): 6}, "of one millisecond, the last to arrive"


def test_q19_keeps_ten_bids_of_each_auction():
    bids = [bid(n, n % 12, bidder=n) for n in range(24)] + [bid(0, 3, auction=8)]
    last = {(row["auction"], row["rank"]): row for row in ask("q19", bid=bids)}
    top = [last[7, rank] for rank in range(1, 11)]
    assert found(top, "price", "bidder")[:4] == [(11, 11), (11, 23), (10, 10), (10, 22)]
    assert [key for key in last if key[0] == 8] == [(8, 1)]
