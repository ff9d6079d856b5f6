"""What the reproduction of Joker rests on: its applications, and runs of them on the simulator."""

from dataclasses import replace

import pytest

from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, regions
from papers.joker import applications, replayed, runs
from papers.joker.applications import JOKER
from papers.joker.models import compare, heuristic
from papers.joker.runs import adapt, changes_together, figure_9, rate_under, shapes_of


def working(application):
    """Kinds of the regions with operators, by name."""
    ends = (RegionKind.SOURCE, RegionKind.SINK)
    found = regions(application.flow())
    return {region.name: region.kind.value for region in found if region.kind not in ends}


@pytest.mark.parametrize(
    ("application", "kinds"),
    [
        (applications.one_region(1, 2, 3, 4), {"m1": "partitioned"}),
        (applications.tree(8), dict.fromkeys("abc", "partitioned")),
        (applications.reverse_tree(8), dict.fromkeys("abc", "partitioned")),
        (applications.chain_of_2(8), dict.fromkeys("ab", "partitioned")),
        (applications.chain_of_4(8), {"a1": "partitioned", "b1": "partitioned"}),
        (applications.word_count(), {"split": "stateless", "count": "partitioned"}),
        (applications.finance(), {"volume": "partitioned", "bargain": "partitioned"}),
        (applications.monitoring(), {"filter": "stateless", "window": "partitioned"}),
        (
            applications.compared(0.4),
            {"mult1": "partitioned", "mult4": "stateful", "mult5": "partitioned"},
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_applications_have_the_regions_of_the_paper(application, kinds):
    assert working(application) == kinds


@pytest.mark.parametrize(
    ("application", "per_s"),
    [
        (applications.selectivities(), 80e3),
        (applications.one_operator(), 500e3),
        (applications.word_count(), 0.64e6),
        (applications.monitoring(), 2.1e6),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_one_thread_a_region_is_as_fast_as_the_paper_says(application, per_s):
    plan = Plan.sequential(application.flow())
    assert rate_under(application, plan) == pytest.approx(per_s, rel=0.04)


def test_an_adaptation_ends_with_what_its_last_plan_can_do():
    application = applications.one_region(256, 256)
    run = adapt(application)
    plan = Plan.sequential(application.flow())
    cuts, replicas = run.shapes["m1"]
    last = plan.with_pipelines("m1", *cuts).with_replicas("m1", replicas)
    assert run.before_per_s == pytest.approx(rate_under(application, plan), rel=0.001)
    assert run.after_per_s == pytest.approx(rate_under(application, last), rel=0.001)
    kept = [step.shapes for step in run.steps if step.kept]
    assert kept[-1] == run.shapes == shapes_of(last)
    assert run.threads == 1 + len(cuts) * replicas


def test_gains_of_trials_are_those_over_the_plan_that_stood():
    run = adapt(applications.one_region(64))
    rate = run.before_per_s
    for step in run.steps:
        assert step.rate_per_s == pytest.approx(rate, rel=0.001)
        rate = rate * (1 + step.gain) if step.kept else rate
    assert rate == pytest.approx(run.after_per_s, rel=0.001)
    assert len(run.steps) > 2


def test_the_journal_goes_with_the_steps():
    run = adapt(applications.one_region(64), replace(JOKER, gain=10.0))
    assert not any(step.kept for step in run.steps)
    assert run.shapes == {"m1": ((1,), 1)}
    assert sum("reverted" in line for line in run.journal) == len(run.steps)


def test_a_step_of_several_regions_is_noticed():
    assert changes_together(adapt(applications.tree(512)))
    assert not changes_together(adapt(applications.one_region(64)))


def test_figure_9_gives_the_costly_region_more_replicas():
    (points,) = figure_9((64.0, 512.0)).series.values()
    assert points[0].shapes["costly"][1] < points[1].shapes["costly"][1]


def test_figure_14_reverts_a_split_before_each_replica():
    eager = runs.figure_14().runs["utility 0.1"]
    cut = [len(step.shapes["m1"][0]) for step in eager.steps]
    assert cut == [2, 1] * (len(cut) // 2)
    assert not any(step.kept for step, pieces in zip(eager.steps, cut, strict=True) if pieces == 2)


def test_figure_20_is_taken_in_the_papers_two_steps():
    run = runs.figure_20().only()
    assert [step.shapes for step in run.steps if step.kept] == list(replayed.FIGURE_20)


def test_shown_the_papers_throughputs_the_policy_takes_the_papers_steps():
    steps = replayed.figure_10()
    assert [(step.shapes["m1"], step.kept) for step in steps] == [
        (((3, 4), 1), False),
        (((7,), 2), True),
        (((3, 4), 2), False),
        (((7,), 3), True),
        (((3, 4), 3), True),
    ]
    assert [round(step.gain, 2) for step in steps][:4] == [0.04, 0.67, 0.09, 0.46]
    assert [step.shapes for step in replayed.figure_20()] == list(replayed.FIGURE_20)


def test_the_model_is_compared_on_the_same_chain():
    (each,) = compare((1.0,))
    application = applications.compared(1.0)
    assert each.model.shapes == shapes_of(heuristic(application, 1.0))
    assert each.joker.rate_per_s <= each.stateful_per_s * 1.001
    assert each.mistaken.rate_per_s < each.model.rate_per_s
