"""The parts of `benchmarks/serial.py`: what is counted, the bound, and the bars."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.apps import APPS
from anabranch.engines.measuring.profiling import profile_flow
from anabranch.graph import StateKind
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.planning.regions import shape_of
from anabranch.planning.serial import serial_of
from anabranch.planning.starting import side_by_side

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from serial import PART, Row, judge, measure_app, parsed, require_reasons, simulated
from speedup_data import CASES

ROWS = 20_000


def test_rows_and_work_are_counted_apart_by_what_is_stateful_by_definition(tmp_path):
    case = replace(CASES["micro-joker-chain"], rows=PART * ROWS)
    row = measure_app(case, tmp_path, quick=False)
    assert (row.rows, row.stateful, row.avoidable) == (ROWS, "mult4", "")
    assert (row.avoidable_rows_share, row.avoidable_work_share) == (0.0, 0.0)
    assert 0.5 < row.stateful_rows_share < 1.0  # an operator upstream drops some
    assert 0.0 < row.stateful_work_share < 1.0
    assert row.bound_cores is not None
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_stateful_by_definition_is_named_with_the_reason(tmp_path):
    case = replace(CASES["network-monitoring"], rows=PART * ROWS)
    row = measure_app(case, tmp_path, quick=False)
    assert (row.stateful, row.stateful_rows_share) == ("", 0.0)
    assert "out writes in the order of event time" in row.avoidable
    assert 0.0 < row.avoidable_rows_share < 0.5  # its clock is not serial


@pytest.mark.parametrize("name", ["micro-joker-chain", "nexmark-q5", "word-count"])
def test_the_simulator_stays_below_the_bound_of_the_profile(name):
    flow = APPS[name].build(rows=ROWS)
    profile = profile_flow(flow)
    bound = serial_of(profile, shape_of(flow)).most_cores
    speedups = simulated(flow, profile)
    assert max(speedups.values()) <= bound * (1 + 1e-6)
    assert all(speedup <= int(cores) * 1.01 for cores, speedup in speedups.items())


def test_queues_are_full_when_counting_begins_though_many_cores_have_nothing_to_do():
    flow = ab.Flow("timed")
    flow.source("rows", ab.memory([{"ts": 1}])).timed("clock", "ts").sink("out", ab.collect())
    clock = OperatorProfile("clock", 9.0, 1e-4, replicas_cost=0.25)  # 12 are a little too fast
    out = OperatorProfile("out", 1e4, state=StateKind.STATEFUL)
    profile = chain([OperatorProfile("rows", 0.5), clock, out], unit="us")
    assert simulated(flow, profile)["512"] == pytest.approx(profile.work, rel=1e-3)


def test_a_region_of_one_replica_must_say_why():
    flow = APPS["micro-joker-chain"].build()
    with pytest.raises(AssertionError, match="has 1 replicas, though None"):
        require_reasons(flow, Plan.sequential(flow))
    with pytest.raises(AssertionError, match="out has 4 replicas"):
        require_reasons(flow, side_by_side(flow, 4))  # such a sink gains nothing by them


def row(rows_share: float, work_share: float, simulated_64: float) -> Row:
    return Row(10, 1.0, rows_share, 0.9, work_share, "g", "", 20.0, {"64": simulated_64})


def test_bars_are_for_the_worst_application_and_for_what_could_be_avoided():
    report = judge({"a": row(0.01, 0.02, 19.0), "b": row(1.0, 0.04, 20.0)})
    assert {name: bar.holds for name, bar in report.bars.items()} == {
        "most_avoidable_rows_share": False,
        "most_avoidable_work_share": True,
        "simulated_speedup_per_bound": True,
    }
    assert report.figures == {"applications_within_rows_bar": 1, "applications_within_work_bar": 2}
    above = judge({"a": row(0.0, 0.0, 21.0)})
    assert not above.bars["simulated_speedup_per_bound"].holds


def test_applications_are_chosen_by_name():
    assert parsed(["--apps", "finance,log-watch"]).apps == ["finance", "log-watch"]
    with pytest.raises(SystemExit):
        parsed(["--apps", "nothing"])
