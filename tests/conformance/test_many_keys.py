"""As many keys as rows: state grows with every row, and nothing is ever found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.apps import APPS
from anabranch.flow import Flow
from anabranch.io import memory
from anabranch.planning.plan import Plan
from tests.conformance.ways import run_by
from tests.sampling import ALL, sampled

pytestmark = sampled

MANY = 1_000_000 if ALL else 100_000
Found = Mapping[str, pa.Table]


def spikes() -> Flow:
    return APPS["spike-detection"].build(rows=MANY, devices=MANY, spikes=0.0)


def no_spikes(found: Found) -> None:
    out = found["out"]
    assert pc.count_distinct(out["device"]).as_py() == MANY
    assert np.allclose(out["average"], out["value"])
    assert not pc.any(out["spike"]).as_py()


def frauds() -> Flow:
    flow = APPS["fraud-detection"].build(rows=MANY)
    accounts = {"account": np.arange(MANY), "transaction": np.arange(MANY)}
    table = pa.table({**accounts, "type": pa.repeat("NNN", MANY)})
    return flow.reading({"transactions": memory(table.cast(schema_of(flow, "transactions")))})


def no_scores(found: Found) -> None:
    assert found["out"].num_rows == found["out"]["score"].null_count == MANY
    assert found["bad"].num_rows == 0


def bargains() -> Flow:
    """One trade and one quote of each ticker, and three more trades of the last."""
    flow = APPS["finance"].build(rows=MANY)
    names = pc.binary_join_element_wise("T", pa.array(np.arange(MANY)).cast(pa.string()), "")
    more = pa.array([MANY - 1] * 3)
    tickers = pa.concat_arrays([names, names.take(more)])
    ones = pa.repeat(100, MANY + 3)
    ts = times(MANY + 3)
    trades = pa.table({"ts": ts, "ticker": tickers, "price": ones, "volume": ones})
    quotes = pa.table({"ts": ts, "ticker": tickers, "ask": pa.repeat(99, MANY + 3), "size": ones})
    return flow.reading(
        {
            name: memory(table.cast(schema_of(flow, name)))
            for name, table in (("trades", trades), ("quotes", quotes))
        }
    )


def one_bargain(found: Found) -> None:
    assert found["out"]["ticker"].to_pylist() == [f"T{MANY - 1}"]
    assert {name: each.num_rows for name, each in found.items() if name != "out"} == dict.fromkeys(
        ("trades.late", "quotes.late", "trades.worthless", "quotes.worthless"), 0
    )


def sessions() -> Flow:
    flow = APPS["nexmark-q11"].build(rows=MANY)
    table = pa.table({"bidder": np.arange(MANY), "dateTime": times(MANY).cast(pa.timestamp("ms"))})
    return flow.reading({"bid": memory(table.cast(schema_of(flow, "bid")))})


def one_bid_each(found: Found) -> None:
    out = found["out"]
    assert pc.count_distinct(out["bidder"]).as_py() == out.num_rows == MANY
    assert set(pc.unique(out["bid_count"]).to_pylist()) == {1}


def times(rows: int) -> pa.Array:
    """A millisecond apart."""
    start = np.datetime64(datetime(2026, 3, 4), "us")
    return pa.array(start + np.arange(rows) * np.timedelta64(1_000, "us"))


def schema_of(flow: Flow, source: str) -> pa.Schema:
    schema: pa.Schema = flow.graph.steps[source].body.source.schema
    return schema


CASES: dict[str, tuple[Callable[[], Flow], Callable[[Found], None]]] = {
    "spike-detection": (spikes, no_spikes),
    "fraud-detection": (frauds, no_scores),
    "finance": (bargains, one_bargain),
    "nexmark-q11": (sessions, one_bid_each),
}


@pytest.mark.parametrize("name", CASES)
def test_a_key_for_every_row_is_no_trouble(name, request):
    make, as_expected = CASES[name]
    flow = make()
    got, _ = run_by("local", flow, [Plan.sequential(flow)], 0, request)
    as_expected(got.outputs)
    assert str(APPS[name].module.Summary.of(got.outputs)).strip()
