from __future__ import annotations

import json
import math
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps import finance
from anabranch.errors import BuildError
from anabranch.graph import Role
from anabranch.io import memory
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough

OPENING = datetime(2024, 1, 2, 9, 30)
LARGEST = 2**31 - 1


def at(ms, ticker="IBM", **numbers):
    return {"ts": OPENING + timedelta(milliseconds=ms), "ticker": ticker, **numbers}


def trades(*prices, ticker="IBM", volume=100, start=0):
    return [at(start + n, ticker, price=p, volume=volume) for n, p in enumerate(prices)]


def outcome(trades, quotes, **config):
    """What comes of these trades and quotes."""
    given = {
        "trades": memory(trades, finance.TRADE),
        "quotes": memory(quotes, finance.QUOTE),
    }
    return run_sequential(finance.build(rows=1, **config).reading(given))


def bargains(trades, quotes, **config):
    return outcome(trades, quotes, **config).rows("out")


def generated(rows, name, **config):
    flow = finance.build(rows=rows, **config)
    return flow.graph.steps[name].body.source.read("generated", 0, rows).batch


def collected(flow):
    """What every sink gets, in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    steps = flow.graph.steps
    sinks = {name: steps[name].body.sink.table() for name in flow.names(Role.SINK)}
    return sinks, run.result()


# --- the rules --------------------------------------------------------------------------------


def test_a_quote_below_the_average_of_four_trades_is_a_bargain():
    made = bargains(trades(100, 102, 104, 106), [at(9, ask=101, size=300)])
    assert len(made) == 1
    assert made[0]["vwap"] == 103
    assert made[0]["index"] == pytest.approx(300 * math.exp(2))


def test_prices_weigh_as_much_as_their_volumes():
    some = [at(0, price=100, volume=3), at(1, price=200, volume=1)]
    assert bargains(some, [at(2, ask=100, size=1)], window=2)[0]["vwap"] == 125


def test_a_quote_at_the_average_is_none():
    assert bargains(trades(103, 103, 103, 103), [at(9, ask=103, size=1)]) == []


def test_there_is_no_average_before_the_fourth_trade():
    assert bargains(trades(100, 100, 100), [at(9, ask=1, size=1)]) == []


def test_only_the_last_four_trades_count():
    made = bargains(trades(9_000, 9_000, 100, 102, 104, 106), [at(9, ask=100, size=1)])
    assert made[0]["vwap"] == 103


def test_tickers_are_averaged_apart():
    some = trades(100, 100, ticker="A") + trades(200, 200, ticker="B", start=2)
    quotes = [at(9, "A", ask=150, size=1), at(9, "B", ask=150, size=1), at(9, "C", ask=1, size=1)]
    assert [row["ticker"] for row in bargains(some, quotes, window=2)] == ["B"]


def test_a_quote_meets_the_average_of_its_own_time():
    quotes = [at(ms, ask=100, size=1) for ms in (0, 2, 5, 9)]
    made = bargains(trades(110, 120, 130, start=1), quotes, window=1)
    assert [row["vwap"] for row in made] == [120, 130, 130]


def test_a_trade_of_the_same_instant_comes_before_the_quote():
    made = bargains([at(5, price=110, volume=1)], [at(5, ask=100, size=1)], window=1)
    assert [row["vwap"] for row in made] == [110]


def test_tuples_out_of_order_within_the_lateness_change_nothing():
    some, quotes = trades(100, 102, 104, 106, 90), [at(3, ask=101, size=1)]
    lateness = timedelta(milliseconds=10)
    expected = bargains(some, quotes, lateness=lateness)
    assert bargains(some[::-1], quotes, lateness=lateness) == expected
    assert [row["vwap"] for row in expected] == [103]


def test_what_is_too_late_goes_to_a_sink_of_its_own():
    some = [*trades(100, start=500), at(100, price=1, volume=1)]
    result = outcome(some, [], lateness=timedelta(milliseconds=100))
    assert result.rows("trades.late") == [at(100, price=1, volume=1)]
    assert result.rows("quotes.late") == []


def test_rows_that_say_nothing_about_a_price_are_counted_and_set_aside():
    no_shares, below = at(1, price=100, volume=0), at(2, price=-5, volume=0)
    nothing = at(3, ask=0, size=1)
    result = outcome([*trades(100), no_shares, below], [nothing, at(4, ask=99, size=1)], window=1)
    assert result.rows("trades.worthless") == [
        {**no_shares, "error": "volume is not above zero"},
        {**below, "error": "price is not above zero"},
    ]
    assert result.rows("quotes.worthless") == [{**nothing, "error": "ask is not above zero"}]
    assert result.counters["trade-filter"].skipped == 2
    assert result.counters["quote-filter"].skipped == 1
    assert len(result.rows("out")) == 1


@pytest.mark.parametrize("bad", [{"volume": 0}, {"price": 0}, {"price": -5}])
def test_trades_that_say_nothing_about_a_price_are_left_out(bad):
    some = [*trades(100), at(1, **{"price": 100, "volume": 100, **bad}), *trades(100, start=2)]
    assert bargains(some, [at(9, ask=1, size=1)], window=3) == []
    assert len(bargains(some, [at(9, ask=1, size=1)], window=2)) == 1


def test_nulls_in_files_are_left_out(tmp_path):
    whole = at(0, price=100, volume=1)
    rows = [{**whole, name: None} for name in finance.TRADE.names] + [whole]
    nullable = pa.schema([field.with_nullable(True) for field in finance.TRADE])
    pq.write_table(pa.Table.from_pylist(rows, nullable), tmp_path / "t.parquet")
    quote = pa.Table.from_pylist([at(1, ask=99, size=1)], finance.QUOTE)
    pq.write_table(quote, tmp_path / "q.parquet")
    files = {"trades": str(tmp_path / "t.parquet"), "quotes": str(tmp_path / "q.parquet")}
    found, _ = collected(finance.build(input=files, window=1))
    assert found["out"].num_rows == 1
    found, _ = collected(finance.build(input=files, window=2))
    assert found["out"].num_rows == 0


def test_sums_are_exact_at_the_edge_of_their_types():
    some = [at(n, price=LARGEST - n, volume=LARGEST) for n in range(2)]
    made = bargains(some, [at(9, ask=LARGEST - 1, size=LARGEST)], window=2)
    assert made[0]["vwap"] == LARGEST - 0.5


def test_the_index_of_what_costs_next_to_nothing_is_infinite():
    made = bargains(trades(*[LARGEST] * 4), [at(9, ask=1, size=1)])
    assert made[0]["index"] == math.inf


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("window", 0),
        ("tickers", 0),
        ("tickers", 26**4 + 1),
        ("rate_per_s", 0.0),
        ("lateness", timedelta(seconds=-1)),
    ],
)
def test_arguments_that_cannot_be_are_refused(argument, value):
    with pytest.raises(BuildError, match=f"application 'finance': expected {argument}: "):
        finance.build(**{argument: value})


def test_there_are_names_for_as_many_tickers_as_are_allowed():
    market = finance.Market(26**4, 1.0, timedelta())
    made = market.trades(np.random.default_rng(0), np.arange(1000))
    assert made["ticker"].null_count == 0


@thorough
@pytest.mark.parametrize(("window", "cases", "rows"), [(4, 12, 32), (1, 2, 24), (7, 2, 40)])
def test_it_does_not_matter_how_it_is_run(window, cases, rows):
    flow = finance.build(rows=rows, tickers=3, window=window, rate_per_s=1000)
    report = ab.check(flow, cases=cases, rows=rows, processes=0)
    assert report.ok, report


def test_the_exponential_of_a_number_does_not_depend_on_its_neighbours():
    numbers = np.linspace(-20, 700, 1003)
    alone = np.array([np.exp(numbers[n : n + 1])[0] for n in range(len(numbers))])
    for offset in range(9):
        assert np.array_equal(np.exp(numbers[offset:]), alone[offset:])


def test_most_tuples_of_one_ticker_are_averaged_like_any_other():
    rng = np.random.default_rng(0)
    some, quotes = [], []
    for n in range(5000):
        ticker = "HOT" if rng.random() < 0.9 else f"T{n % 7}"
        some.append(at(n, ticker, price=int(rng.integers(90, 111)), volume=int(rng.integers(1, 9))))
        quotes.append(at(n, ticker, ask=100, size=1))
    given = {"trades": memory(some, finance.TRADE), "quotes": memory(quotes, finance.QUOTE)}
    flow = finance.build(rows=1).reading(given)
    sinks, _ = collected(flow)
    hot = [row for row in some if row["ticker"] == "HOT"]
    found = [row for row in sinks["out"].to_pylist() if row["ticker"] == "HOT"]
    expected = []
    for n in range(3, len(hot)):
        four = hot[n - 3 : n + 1]
        worth = sum(row["price"] * row["volume"] for row in four)
        expected.append(worth / sum(row["volume"] for row in four))
    assert [row["vwap"] for row in found] == [vwap for vwap in expected if vwap > 100]


# --- generated data ---------------------------------------------------------------------------


def test_few_tickers_have_most_trades():
    names = generated(20_000, "trades", tickers=100)["ticker"].value_counts().to_pylist()
    counts = sorted((each["counts"] for each in names), reverse=True)
    assert len(counts) == 100
    harmonic = sum(1 / rank for rank in range(1, 101))
    assert counts[0] == pytest.approx(20_000 / harmonic, rel=0.1)


def test_a_tenth_of_the_rows_comes_late_and_none_too_late():
    times = generated(20_000, "quotes")["ts"].cast(pa.int64()).to_numpy()
    behind = np.maximum.accumulate(times) - times
    assert np.mean(behind > 0) == pytest.approx(0.1, abs=0.01)
    assert behind.max() < finance.LATENESS / timedelta(microseconds=1)


def test_prices_of_a_ticker_stay_near_each_other():
    rows = generated(20_000, "trades", tickers=5)
    for ticker in rows["ticker"].unique():
        prices = rows.filter(pa.compute.equal(rows["ticker"], ticker))["price"].to_numpy()
        assert prices.std() < 0.02 * prices.mean() + 5


def test_some_quotes_are_bargains_and_most_are_not():
    sinks, _ = collected(finance.build(rows=30_000, tickers=50))
    assert 0.2 < sinks["out"].num_rows / 30_000 < 0.4
    assert sinks["trades.late"].num_rows == sinks["quotes.late"].num_rows == 0


def test_the_data_follow_from_the_seed_and_the_number_of_the_row():
    one, same, other = (generated(3000, "trades", seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert generated(2000, "trades", seed=1) == one.slice(0, 2000)


# --- the user's files -------------------------------------------------------------------------


def write(path, batch):
    table = pa.Table.from_batches([batch])
    if path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
    return str(path)


@pytest.mark.parametrize(
    ("trade_file", "quote_file"),
    [
        ("t.csv", "q.csv"),
        ("t.jsonl", "q.jsonl"),
        ("t.parquet", "q.parquet"),
        ("t.parquet", "q.csv"),
    ],
)
def test_files_give_what_the_same_rows_give_otherwise(tmp_path, trade_file, quote_file):
    config = {"tickers": 5, "rate_per_s": 1000.0}
    files = {
        "trades": write(tmp_path / trade_file, generated(400, "trades", **config)),
        "quotes": write(tmp_path / quote_file, generated(400, "quotes", **config)),
    }
    expected, _ = collected(finance.build(rows=400, **config))
    found, _ = collected(finance.build(input=files))
    assert found["out"].num_rows > 20
    assert found["out"].to_pylist() == expected["out"].to_pylist()


def test_rows_that_do_not_parse_are_counted_and_set_aside(tmp_path):
    lines = ["ts,ticker,price,volume", "2024-01-02 09:30:00,IBM,ten,1", "oops"]
    lines += [f"2024-01-02 09:30:0{n},IBM,100,1" for n in range(4)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    quote = {"ts": "2024-01-02 09:31:00", "ticker": "IBM", "ask": 99, "size": 1}
    bad = [{**quote, "ask": None}, {**quote, "size": 2**31}]
    (tmp_path / "q.jsonl").write_text("\n".join(json.dumps(row) for row in [*bad, quote]))
    files = {"trades": str(tmp_path / "t.csv"), "quotes": str(tmp_path / "q.jsonl")}
    found, result = collected(finance.build(input=files))
    assert found["out"].num_rows == 1
    assert found["trades.bad"].num_rows == found["quotes.bad"].num_rows == 2
    assert result.skipped == {"trades.parse": 2, "quotes.parse": 2}


def test_empty_files_hold_no_bargains(tmp_path):
    files = {name: str(tmp_path / f"{name}.csv") for name in finance.SOURCES}
    for path in files.values():
        open(path, "w").close()
    found, _ = collected(finance.build(input=files))
    assert found["out"].num_rows == 0
    assert str(finance.Summary.of(found)) == "0 bargains in 0 tickers, the best:"


def test_the_summary_shows_the_best_first():
    found, _ = collected(finance.build(rows=2000, tickers=5))
    lines = str(finance.Summary.of(found)).splitlines()
    assert len(lines) == 1 + finance.TOP
    best = max(found["out"].to_pylist(), key=lambda row: row["index"])
    assert best["ticker"] in lines[1]
    assert f"{best['ask'] / 100:,.2f}" in lines[1]
