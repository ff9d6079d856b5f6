from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

import anabranch as ab
from anabranch.apps import app, band_join
from anabranch.testing.sequential import run_sequential


def small(**properties):
    """Few tuples, far apart in time, in a range so dense that there are pairs."""
    given = {"rows": 300, "rate_per_s": 1.0, "window": timedelta(seconds=60), "buckets": 7}
    return band_join.build(**{**given, **properties})


@pytest.fixture
def dense(monkeypatch):
    monkeypatch.setattr(band_join, "LARGEST", 120)


def tuples(flow, name):
    return flow.graph.steps[name].body.source.read("generated", 0, 10**6).batch.to_pylist()


def reference(flow, seconds):
    """Every R with every S, by the definition."""
    return [
        (r["ts"], s["ts"], r["x"], s["a"])
        for r in tuples(flow, "r")
        for s in tuples(flow, "s")
        if abs(r["ts"] - s["ts"]) <= timedelta(seconds=seconds)
        and abs(r["x"] - s["a"]) <= 10
        and abs(r["y"] - s["b"]) <= 10
    ]


@pytest.mark.usefixtures("dense")
def test_pairs_are_those_of_a_nested_loop():
    flow = small()
    made = [(r["ts"], r["ts_right"], r["x"], r["a"]) for r in run_sequential(flow).rows("out")]
    assert len(made) > 300
    assert sorted(made) == sorted(reference(flow, 60))


@pytest.mark.usefixtures("dense")
def test_the_pairs_stand_in_the_order_of_their_later_tuples():
    made = run_sequential(small()).rows("out")
    later = [max(row["ts"], row["ts_right"]) for row in made]
    assert later == sorted(later)


@pytest.mark.usefixtures("dense")
def test_it_does_not_matter_how_it_is_run():
    report = ab.check(small(), cases=12, rows=60)
    assert report.ok, report


def test_numbers_are_those_of_the_benchmark():
    r, s = (tuples(band_join.build(rows=20_000), name) for name in ("r", "s"))
    for rows, names in ((r, "xy"), (s, "ab")):
        for name in names:
            values = np.array([row[name] for row in rows])
            assert (values.min() >= 1, values.max() <= 10_000) == (True, True)
            assert abs(values.mean() - 5000) < 100
    assert {row["x"] for row in r[:100]} != {row["a"] for row in s[:100]}
    assert r[1000]["ts"] - r[0]["ts"] == timedelta(seconds=1)


def test_the_data_follow_from_the_seed():
    one, same, other = (tuples(band_join.build(rows=50, seed=n), "r") for n in (1, 1, 2))
    assert one == same != other


def test_it_is_known_by_name():
    assert app("band-join") is band_join
