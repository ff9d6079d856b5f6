from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import anabranch as ab
from anabranch.apps import fraud_detection
from anabranch.apps.kit.seeded_random import draws
from anabranch.cli.writing import save
from anabranch.errors import BuildError
from anabranch.io import memory
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough

USUAL, SAME = "NNN", 0.86 * 0.96 * 0.88
STRANGE = ["HHS", "LNL"]


def source_of(flow):
    return flow.graph.steps["transactions"].body.source


def generated(rows, **config):
    return source_of(fraud_detection.build(rows=rows, **config)).read("generated", 0, rows).batch


def scored(types, account=None, **config):
    """What comes of transactions of these types."""
    rows = [
        {"account": account[n] if account else 1, "transaction": n, "type": each}
        for n, each in enumerate(types)
    ]
    flow = fraud_detection.build(rows=0, **config)
    flow = flow.reading({"transactions": memory(rows, fraud_detection.TRANSACTIONS)})
    return run_sequential(flow).outputs


def on_threads(flow):
    """What comes of a flow in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    return {name: flow.graph.steps[name].body.sink.table() for name in ("out", "bad")}


def scores(types, **given):
    return scored(types, **given)["out"]["score"].to_pylist()


def test_the_model_is_one_of_probabilities():
    assert len(fraud_detection.TYPES) == 18
    assert (fraud_detection.LIKELY.sum(axis=1) == fraud_detection.CERTAIN).all()


def test_an_account_has_a_score_from_its_tenth_transaction_on():
    got = scores([USUAL] * 12)
    assert got[:9] == [None] * 9
    assert got[9:] == pytest.approx([1 - SAME] * 3)


def test_a_score_is_the_mean_of_what_was_missed():
    followed_by_strange = 0.04 * 0.04 * 0.04
    got = scores([USUAL] * 9 + ["HHS"])
    assert got[-1] == pytest.approx((8 * (1 - SAME) + (1 - followed_by_strange)) / 9)


def test_unlikely_sequences_are_outliers():
    out = scored(STRANGE * 6)["out"].to_pylist()
    assert [row["outlier"] for row in out] == [False] * 9 + [True] * 3
    assert not any(row["outlier"] for row in scored([USUAL] * 30)["out"].to_pylist())


def test_a_score_equal_to_the_threshold_is_no_outlier():
    exactly = scores([USUAL] * 10)[-1]
    for threshold, outlier in ((exactly, False), (np.nextafter(exactly, 0), True)):
        assert scored([USUAL] * 10, threshold=threshold)["out"]["outlier"][-1].as_py() is outlier


def test_accounts_do_not_mix():
    mixed = scores([USUAL, "HHS"] * 12, account=[1, 2] * 12)
    assert mixed[::2] == scores([USUAL] * 12)
    assert mixed[1::2] == scores(["HHS"] * 12)


@pytest.mark.parametrize("window", [2, 3, fraud_detection.LONGEST])
def test_the_window_can_be_another(window):
    got = scores([USUAL] * (window + 1), window=window)
    assert got[: window - 1] == [None] * (window - 1)
    assert got[window - 1 :] == pytest.approx([1 - SAME] * 2)


@pytest.mark.parametrize("window", [1, fraud_detection.LONGEST + 1])
def test_a_window_that_state_cannot_hold_is_refused(window):
    with pytest.raises(BuildError, match="window: a whole number from 2 to 13"):
        fraud_detection.build(window=window)


def test_a_type_that_does_not_exist_harms_no_other():
    found = scored([*[USUAL] * 5, "XYZ", "", *[USUAL] * 5])
    assert found["out"].num_rows == 10
    assert found["out"]["score"][-1].as_py() == pytest.approx(1 - SAME)
    assert [row["type"] for row in found["bad"].to_pylist()] == ["XYZ", ""]
    assert "unknown type 'XYZ'" in found["bad"]["error"][0].as_py()


@thorough
def test_it_does_not_matter_how_it_is_run():
    flow = fraud_detection.build(rows=100, accounts=3, stolen=0.3)
    ab.check(flow, cases=12, rows=100, processes=0).raise_if_different()


def with_unknown_types(rows, every):
    """The application on generated transactions, of which every so many-th has an unknown type."""
    table = pa.Table.from_batches([generated(rows, accounts=63)])
    types = table["type"].to_pylist()
    types[::every] = ["XYZ"] * len(types[::every])
    table = table.set_column(2, fraud_detection.TRANSACTIONS.field("type"), pa.array(types))
    return fraud_detection.build(rows=0).reading({"transactions": memory(table)})


@thorough
def test_nor_does_it_where_every_third_type_does_not_exist():
    flow = with_unknown_types(90, every=3)
    assert run_sequential(flow).outputs["bad"].num_rows == 30
    ab.check(flow, cases=8, rows=90, processes=0).raise_if_different()


def test_many_unknown_types_cost_no_more_than_a_look(monkeypatch):
    calls = []
    looked = fraud_detection.unknown_type

    def counted(batch):
        calls.append(batch.num_rows)
        return looked(batch)

    monkeypatch.setattr(fraud_detection, "unknown_type", counted)
    found = on_threads(with_unknown_types(20_000, every=10))
    assert (found["bad"].num_rows, found["out"].num_rows) == (2_000, 18_000)
    assert sum(calls) == 20_000, "no row is looked at twice"


@pytest.mark.parametrize("accounts", [1, 2, 10, 15, 16, 63])
def test_there_are_as_many_accounts_as_asked_for(accounts):
    made = generated(5_000, accounts=accounts)["account"].to_numpy()
    assert np.unique(made).tolist() == list(range(1, accounts + 1))


def test_an_account_with_nearly_all_transactions_is_scored_whatever_the_batches():
    accounts = np.where(np.arange(400) % 10 == 0, np.arange(400), 7)
    types = generated(400)["type"].to_pylist()
    rows = [
        {"account": int(a), "transaction": n, "type": t}
        for n, (a, t) in enumerate(zip(accounts, types, strict=True))
    ]
    flow = fraud_detection.build(rows=0)
    flow = flow.reading({"transactions": memory(rows, fraud_detection.TRANSACTIONS)})
    got = run_sequential(flow).outputs["out"]
    assert got.equals(on_threads(flow)["out"])
    assert got["score"].null_count == 9 + 40


def test_accounts_at_the_edges_of_their_type_are_accounts():
    most = 2**63 - 1
    got = scored([USUAL] * 20, account=[most, -most - 1] * 10)["out"]
    assert got["score"].null_count == 18
    assert set(got["account"].to_pylist()) == {most, -most - 1}


def test_generated_data_follow_from_the_seed_and_the_row_alone():
    whole = generated(5000, seed=3)
    assert whole.equals(generated(5000, seed=3))
    assert not whole.equals(generated(5000, seed=4))
    later = source_of(fraud_detection.build(rows=5000, seed=3)).read("generated", 3000, 10).batch
    assert later.equals(whole.slice(3000, 10))


def test_few_accounts_make_many_transactions():
    counts = np.unique(generated(140_000)["account"].to_numpy(), return_counts=True)[1]
    assert len(counts) > 10_000
    assert counts.max() == 140_000 // 14


def test_honest_customers_follow_the_model_and_thieves_do_not():
    batch = generated(100_000, accounts=255)
    account, types = batch["account"].to_numpy(), np.array(batch["type"].to_pylist())
    honest = generated(100_000, accounts=255, stolen=0.0)
    assert (np.array(honest["type"].to_pylist()) == types).mean() == pytest.approx(0.98, abs=0.01)
    mine = np.array(honest["type"].to_pylist())[account == 1]
    after_usual = mine[1:][mine[:-1] == USUAL]
    assert (after_usual == USUAL).mean() == pytest.approx(SAME, abs=0.05)


def test_most_of_what_thieves_do_is_found_and_little_else():
    out = on_threads(fraud_detection.build(rows=60_000, accounts=255))["out"]
    number = {}
    account = out["account"].to_numpy()
    order = np.zeros(len(account), np.int64)
    for row, each in enumerate(account.tolist()):
        order[row] = number.get(each, 0)
        number[each] = order[row] + 1
    stretch, step = np.divmod(order, fraud_detection.STRETCH)
    by_thief = draws(0, account, stretch, -1) < 0.02
    outlier = out["outlier"].to_numpy()
    caught = by_thief & (step >= 9) & (order >= 10)
    assert outlier[caught].mean() > 0.9
    before = draws(0, account, stretch - 1, -1) < 0.02
    assert outlier[~by_thief & ~before].mean() < 0.03


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_files_of_transactions_give_what_the_transactions_gave(suffix, tmp_path):
    flow = fraud_detection.build(rows=300, accounts=7)
    file = tmp_path / f"transactions{suffix}"
    save(source_of(flow), file, 300)
    got = on_threads(fraud_detection.build(input=str(file)))["out"]
    assert got.to_pylist() == on_threads(flow)["out"].to_pylist()


def test_malformed_rows_are_kept_apart(tmp_path):
    file = tmp_path / "transactions.csv"
    file.write_text("account,transaction,type\n1,2,NNN\nx,3,NNN\n1\n1,4,XXX\n,5,NNN\n1,6,NNN\n")
    found = run_sequential(fraud_detection.build(input=str(file))).outputs
    assert found["out"]["transaction"].to_pylist() == [2, 6]
    assert found["bad"]["transaction"].to_pylist() == [4]
    assert found["transactions.bad"]["line"].to_pylist() == ["x,3,NNN", "1", ",5,NNN"]


def test_a_null_in_a_typed_file_is_a_bad_row(tmp_path):
    table = pa.table({"account": [1, 1], "transaction": [1, 2], "type": [USUAL, None]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    found = run_sequential(fraud_detection.build(input=str(tmp_path / "t.parquet"))).outputs
    assert (found["out"].num_rows, found["transactions.bad"].num_rows) == (1, 1)


def test_an_empty_file_gives_nothing(tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    found = run_sequential(fraud_detection.build(input=str(tmp_path / "none.jsonl"))).outputs
    assert found["out"].num_rows == 0
    assert str(fraud_detection.Summary.of(found)) == (
        "0 of 0 transactions are outliers, on 0 of 0 accounts:"
    )


def test_the_summary_names_the_accounts_with_most_outliers():
    found = on_threads(fraud_detection.build(rows=20_000, accounts=255))
    said = str(fraud_detection.Summary.of(found)).splitlines()
    assert said[0].startswith(f"{sum(found['out']['outlier'].to_pylist()):,} of 20,000 trans")
    assert len(said) == 6


def test_settings_come_from_the_command_line(command_line):
    ran = command_line(
        "run", "fraud-detection", "--engine", "local", "--policy", "none", "--json",
        *("--set", "rows=500", "--set", "window=5", "--set", "stolen=0.5"),
    )  # fmt: skip
    assert json.loads(ran.out)["rows_in"] == 500
