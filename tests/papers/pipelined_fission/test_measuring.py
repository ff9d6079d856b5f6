from dataclasses import replace

import pytest

from anabranch.engines.measuring.busy_flows import busy_flow
from anabranch.planning.machine import Machine
from anabranch.planning.profile import OperatorProfile, Overheads, chain
from papers.pipelined_fission.engine import Job, Ran, engine_sweeps, once_if_equal, planned, run_job
from papers.pipelined_fission.model import (
    TABLE_1_OVERHEADS_US,
    compute,
    figure_12,
    figure_18,
    log_watch,
    replication_for,
    sweeps,
)
from papers.pipelined_fission.paper import PAPER, Effort
from tests.sampling import thorough

PAIR = chain([OperatorProfile("a", 5.0), OperatorProfile("b", 5.0)], Overheads(1.0, 0.1), "us")
TINY = Effort(
    chains=1,
    sizes=(2, 3),
    solves=1,
    engine_points=2,
    engine_chains=1,
    seconds=0.01,
    repeats=1,
)


def test_sweeps_cover_the_ranges_of_table_1():
    ends = {one.figure: (one.settings[0].x, one.settings[-1].x) for one in sweeps()}
    assert ends == {
        "figure 5": (0.1, 1.0),
        "figure 6": (50, 250),
        "figure 7": (0, 0.8),
        "figure 8": (10, 190),
        "figure 9": (10, 210),
        "figure 10": (1, 12),
        "figure 11": (1, 8),
    }
    assert {one.chains.selectivity_mean for one in sweeps()[0].settings} > {0.1, 1.0}
    assert {one.cores for one in sweeps()[5].settings} == set(range(1, 13))


def test_no_approach_beats_the_optimum_and_all_beat_one_thread():
    sweep = sweeps()[0]
    found = compute(replace(sweep, settings=sweep.settings[::5]), chains=6)
    for approach in ("fission", "fission-only", "pipelining-only"):
        assert max(found.ratios(approach, "exact")) <= 1 + 1e-9
        assert min(found.ratios(approach, "sequential")) >= 1 - 1e-9


def test_times_are_taken_of_every_planner():
    small, larger = figure_12((2, 4), repeats=2)
    assert small.plans < larger.plans
    assert min(larger.fission_ms, larger.exact_ms, larger.exhaustive_ms) > 0


def test_log_watch_reaches_the_papers_speedup_with_the_replication_cost_that_is_named():
    cost = replication_for(9.7, 12)
    cheaper = Overheads(TABLE_1_OVERHEADS_US.thread_switch, cost)
    assert figure_18((12,), cheaper)[0].speedup("fission") == pytest.approx(9.7, rel=1e-3)
    assert figure_18((12,))[0].speedup("fission") < 9.7


@pytest.mark.parametrize("planner", ["sequential", "fission", "exact"])
def test_a_job_runs_under_the_plan_of_its_planner(planner):
    ran = run_job(Job(PAIR, Machine.of_cores(2), 0.01, planner), multiplication_ns=1.0)
    assert ran.rows_per_s > 0
    assert ("2 replicas" in ran.plan) == (planner != "sequential")


def test_a_job_can_have_its_plan_given():
    job = Job(PAIR, Machine.of_cores(2), 0.01, None, pipelines=(1, 1), replicas=3)
    (region, _) = planned(busy_flow(PAIR, 10, multiplication_ns=1.0), job).regions
    assert (region.replicas, region.pipelines) == (3, (("a",), ("b",)))


def test_log_watch_is_planned_region_by_region():
    flow = busy_flow(log_watch(), 10, multiplication_ns=1.0)
    plan = planned(flow, Job(log_watch(), Machine.of_cores(12), 0.1, "fission"))
    assert plan.region("Range").replicas > 1


def test_a_plan_that_both_find_is_as_fast_as_itself():
    ran = {"fission": Ran(90.0, "same"), "exact": Ran(110.0, "same")}
    assert once_if_equal(ran) == {"fission": Ran(100.0, "same"), "exact": Ran(100.0, "same")}
    apart = {"fission": Ran(90.0, "one"), "exact": Ran(110.0, "other")}
    assert once_if_equal(apart) == apart


def test_engine_sweeps_have_whole_numbers_of_operators():
    settings = next(one for one in engine_sweeps(4) if one.figure == "figure 15").settings
    assert [one.operators for one in settings.values()] == [2, 4, 6, 8]


@thorough
def test_everything_is_computed_and_measured_in_one_go():
    told = []
    found = PAPER.reproduce(TINY, told.append)
    assert len(told) == 15
    assert [one.figure for one in found.results.engine] == [f"figure {n}" for n in (13, 14, 15, 16)]
    assert PAPER.from_json(PAPER.to_json(found)) == found
    assert "not comparable" in PAPER.page(found)
