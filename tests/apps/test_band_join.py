from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps import app, band_join
from anabranch.errors import UnknownNameError
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough

NOON = datetime(2024, 1, 1, 12)
MINUTE = timedelta(seconds=60)


def small(**properties):
    """Few tuples, far apart in time, in a range so dense that there are pairs."""
    given = {"rows": 300, "rate_per_s": 1.0, "window": MINUTE, "largest": 120, "buckets": 7}
    return band_join.build(**{**given, **properties})


def table(flow, name):
    batch = flow.graph.steps[name].body.source.read("generated", 0, 10**6).batch
    return pa.Table.from_batches([batch])


def r(seconds, x, y):
    return {"ts": str(NOON + timedelta(seconds=seconds)), "x": x, "y": y}


def s(seconds, a, b):
    return {"ts": str(NOON + timedelta(seconds=seconds)), "a": a, "b": b, "c": 0.5, "d": True}


@pytest.fixture
def joined(tmp_path):
    """The run of an R and an S in files of JSON lines."""

    def run(left, right, **config):
        paths = {}
        for name, rows in (("r", left), ("s", right)):
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            (tmp_path / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
            paths[name] = str(tmp_path / f"{name}.jsonl")
        return run_sequential(band_join.build(input=paths, **config))

    return run


def pairs(result):
    return [(row["x"], row["a"]) for row in result.rows("out")]


def test_numbers_that_are_ten_apart_are_still_near(joined):
    right = [s(0, 10, 10), s(0, 30, 10), s(0, 31, 10), s(0, 20, 0.0), s(0, 20, -0.01), s(0, 9, 10)]
    assert sorted(pairs(joined([r(0, 20, 10.0)], right))) == [(20, 10), (20, 20), (20, 30)]


def test_tuples_five_minutes_apart_still_belong_together(joined):
    left = [r(0, 1, 1), r(301, 2, 1)]
    right = [s(0, 3, 1), s(300, 4, 1), s(301, 5, 1), s(601, 6, 1), s(602, 7, 1)]
    assert sorted(pairs(joined(left, right))) == [(1, 3), (1, 4), (2, 4), (2, 5), (2, 6)]


def test_the_pairs_stand_in_the_order_of_their_later_tuples():
    made = run_sequential(small()).rows("out")
    later = [max(row["ts"], row["ts_right"]) for row in made]
    assert len(made) > 300
    assert later == sorted(later)


def test_numbers_are_those_of_the_benchmark():
    flow = band_join.build(rows=20_000)
    left, right = table(flow, "r").to_pylist(), table(flow, "s").to_pylist()
    for rows, names in ((left, "xy"), (right, "ab")):
        for name in names:
            values = np.array([row[name] for row in rows])
            assert values.min() >= 1
            assert values.max() <= 10_000
            assert abs(values.mean() - 5000) < 100
    assert {row["x"] for row in left[:100]} != {row["a"] for row in right[:100]}
    assert left[1000]["ts"] - left[0]["ts"] == timedelta(seconds=1)


def test_the_data_follow_from_the_seed():
    one, same, other = (table(band_join.build(rows=50, seed=n), "r") for n in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_users_own_files_give_what_the_generated_rows_give(tmp_path, ending):
    flow = small(rows=90)
    paths = {}
    for name in ("r", "s"):
        path, rows = tmp_path / f"{name}.{ending}", table(flow, name)
        if ending == "csv":
            pa.csv.write_csv(rows, path)
        elif ending == "parquet":
            pq.write_table(rows, path)
        else:
            path.write_text("".join(json.dumps(x, default=str) + "\n" for x in rows.to_pylist()))
        paths[name] = str(path)
    expected = run_sequential(flow).rows("out")
    assert len(expected) > 50
    assert run_sequential(small(input=paths)).rows("out") == expected


def test_bad_rows_are_counted_and_harm_no_other(joined):
    bad_left = ["{", {"x": 1, "y": 1}, {**r(0, 1, 1), "ts": "noon"}, r(0, "one", 1)]
    result = joined([*bad_left, r(0, 1, 1)], [s(0, 1, 1), "nothing", s(0, 2**31, 1)])
    assert pairs(result) == [(1, 1)]
    assert [result.counters[f"{name}.parse"].skipped for name in "rs"] == [4, 2]
    assert [len(result.rows(f"{name}.bad")) for name in "rs"] == [4, 2]


def test_a_row_without_numbers_has_no_partner(joined):
    left = [{"ts": str(NOON)}, r(0, None, 1), r(0, 1, None), r(0, 1, 1)]
    assert pairs(joined(left, [s(0, 1, 1), s(0, None, 1), {"ts": str(NOON)}])) == [(1, 1)]


def test_numbers_at_the_edge_of_their_type_are_compared_as_numbers(joined):
    most, least = 2**31 - 1, -(2**31)
    result = joined(
        [r(0, most, 3.4e38), r(0, least, -3.4e38)],
        [s(0, most, 3.4e38), s(0, least, -3.4e38), s(0, most - 10, 3.4e38), s(0, least, 0)],
    )
    assert sorted(pairs(result)) == [(least, least), (most, most - 10), (most, most)]


def test_rows_that_are_all_alike_all_pair(joined):
    left = [r(n, 5, 5) for n in range(30)]
    assert len(joined(left, [s(n, 5, 5) for n in range(30)]).rows("out")) == 900


def test_empty_files_give_nothing_and_say_so(joined):
    result = joined([], [])
    assert result.rows("out") == []
    assert str(band_join.Summary.of(result.outputs)) == "0 pairs:"


def test_files_without_the_names_of_their_streams_are_refused():
    with pytest.raises(UnknownNameError, match="--input r=FILES --input s=FILES"):
        band_join.build(input="both.csv")


@thorough
def test_it_does_not_matter_how_it_is_run():
    report = ab.check(small(), cases=12, rows=60, processes=0)
    assert report.ok, report


def test_it_is_known_by_name():
    assert app("band-join").module is band_join
