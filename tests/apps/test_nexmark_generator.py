"""NEXMark's market: proportions, hot keys, references between events, reproducible rows."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from anabranch.apps.nexmark import build
from anabranch.apps.nexmark.events import AUCTION, BID, KINDS, PERSON
from anabranch.apps.nexmark.generator import EventRate, rows_of
from anabranch.errors import AnabranchError
from anabranch.io import generate

BEGIN = datetime(2015, 7, 15)


def events(kind, columns, rows, *, seed=0, rate_per_s=10_000.0, delayed=0.0):
    """Some columns of a kind of events."""
    made = rows_of(KINDS[kind].rows, columns.names, EventRate(rate_per_s, delayed))
    return generate(made, columns, rows=rows, seed=seed).read("generated", 0, rows).batch


def arrays(batch, *names):
    return [batch[name].to_numpy(zero_copy_only=False) for name in names]


def share(mask):
    return np.count_nonzero(mask) / len(mask)


def source(flow, name):
    return flow.graph.steps[name].body.source


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_46_bids():
    assert source(build(query="q3", rows=5000), "person").extent("generated").rows == 100
    assert source(build(query="q3", rows=5000), "auction").extent("generated").rows == 300
    assert source(build(query="q0", rows=5000), "bid").extent("generated").rows == 4600


def test_events_of_all_kinds_are_a_tenth_of_a_millisecond_apart():
    rows = {"person": 20, "auction": 60, "bid": 920}
    numbers = []
    for kind, columns in (("person", PERSON), ("auction", AUCTION), ("bid", BID)):
        made = events(kind, columns, rows[kind], rate_per_s=1000.0)
        numbers += [
            int((t - BEGIN) / timedelta(milliseconds=1)) for t in made["dateTime"].to_pylist()
        ]
    assert sorted(numbers) == list(range(1000))


def test_half_of_the_bids_are_on_a_hot_auction_and_three_in_four_by_a_hot_bidder():
    auction, bidder = arrays(events("bid", BID, 100_000), "auction", "bidder")
    # Some of those that are drawn from all happen to be hot ones.
    assert share((auction - 1000) % 100 == 0) == pytest.approx(0.5, abs=0.01)
    assert share((bidder - 1000) % 100 == 1) == pytest.approx(0.75, abs=0.01)


def test_three_in_four_auctions_are_of_a_hot_seller():
    (seller,) = arrays(events("auction", AUCTION, 50_000), "seller")
    assert share((seller - 1000) % 100 == 0) == pytest.approx(0.75, abs=0.01)


def test_who_is_named_was_there_lately_or_comes_soon():
    rows = np.arange(100_000)
    auction, bidder = arrays(events("bid", BID, 100_000), "auction", "bidder")
    latest_auction, latest_person = rows // 46 * 3 + 2 + 1000, rows // 46 + 1000
    assert (auction <= latest_auction + 10).all()
    assert (auction >= np.maximum(latest_auction - 100, 1000)).all()
    assert (bidder <= latest_person + 10).all()
    assert (bidder >= np.maximum(latest_person - 999, 1000)).all()
    assert share(auction > latest_auction) > 0.02, "some are ahead of their auctions"


def test_prices_are_spread_evenly_over_six_orders_of_magnitude():
    (price,) = arrays(events("bid", BID, 100_000), "price")
    assert (price.min() >= 100, price.max() <= 10**8) == (True, True)
    orders = np.bincount(np.log10(price / 100).astype(int).clip(0, 5))
    assert orders / len(price) == pytest.approx([1 / 6] * 6, abs=0.01)


def test_auctions_last_until_a_hundred_more_were_opened_on_average():
    opened, over, first, reserve, category = arrays(
        events("auction", AUCTION, 20_000, rate_per_s=1000.0),
        *("dateTime", "expires", "initialBid", "reserve", "category"),
    )
    lasted_ms = (over - opened).astype(int)
    assert lasted_ms.mean() == pytest.approx(100 * 50 / 3, rel=0.02)
    assert (lasted_ms.min() >= 1, lasted_ms.max() <= 2 * 1667) == (True, True)
    assert (reserve > first).all()
    assert np.bincount(category - 10) / len(category) == pytest.approx([0.2] * 5, abs=0.02)


def test_people_and_texts_look_as_they_should():
    people = events("person", PERSON, 2000)
    assert set(people["state"].to_pylist()) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert len(set(people["city"].to_pylist())) == 10
    assert len(set(people["name"].to_pylist())) == 99
    assert people["creditCard"][0].as_py().replace(" ", "").isdigit()
    bids = events("bid", BID, 20_000)
    channel = bids["channel"].to_pylist()
    hot = [name in {"Google", "Facebook", "Baidu", "Apple"} for name in channel]
    assert share(hot) == pytest.approx(0.5, abs=0.02)
    assert len(set(channel)) > 5000
    urls = dict(zip(channel, bids["url"].to_pylist(), strict=True))
    assert share(["&channel_id=" in url for name, url in urls.items() if "-" in name]) > 0.85
    sizes = [32 + len(text) for text in bids["extra"].to_pylist()]
    assert np.mean(sizes) == pytest.approx(100, abs=2)


def test_one_in_ten_events_comes_late_by_up_to_three_seconds():
    (times,) = arrays(events("bid", BID, 100_000, delayed=0.1), "dateTime")
    (ideal,) = arrays(events("bid", BID, 100_000), "dateTime")
    delay_ms = (ideal - times).astype(int)
    assert share(delay_ms > 0) == pytest.approx(0.1, abs=0.005)
    assert 2900 < delay_ms.max() < 3000
    behind = np.maximum.accumulate(times) - times
    assert behind.max() < np.timedelta64(4, "s"), "so that nothing is too late by default"


def test_rows_follow_from_the_seed_and_their_number():
    one, same, other = (events("bid", BID, 3000, seed=n, delayed=0.1) for n in (1, 1, 2))
    assert one == same
    assert one != other
    made = rows_of(KINDS["bid"].rows, BID.names, EventRate(10_000.0, 0.1))
    part = generate(made, BID, rows=3000, seed=1).read("generated", 1500, 1000).batch
    assert part == one.slice(1500, 1000)


def test_a_column_does_not_depend_on_which_others_are_read():
    whole = source(build(query="q9", rows=30_000), "auction").read("generated", 0, 10**6).batch
    some = source(build(query="q4", rows=30_000), "auction").read("generated", 0, 10**6).batch
    assert some == whole.select(some.schema.names)


def test_seeds_part_queries_and_kinds():
    one, other = (source(build(query="q0", rows=50, seed=n), "bid") for n in (0, 1))
    assert one.read("generated", 0, 9).batch != other.read("generated", 0, 9).batch
    flow = build(query="q9", rows=5000)
    prices = [
        source(flow, name).read("generated", 0, 300).batch[column].to_pylist()
        for name, column in (("auction", "initialBid"), ("bid", "price"))
    ]
    assert prices[0] != prices[1]


def test_a_paced_source_is_due_at_its_share_of_the_rate():
    flow = build(query="q4", rows=None, paced=True, rate_per_s=1000.0)
    assert source(flow, "bid").due_rows(10.0) == 9200
    assert source(flow, "auction").due_rows(10.0) == 600


def test_a_query_that_is_not_there_is_named():
    with pytest.raises(AnabranchError, match=r"q0.*q19.*'q10'"):
        build(query="q10")
