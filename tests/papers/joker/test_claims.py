from dataclasses import replace

import pytest

from papers.claims import Verdict
from papers.joker.claims import curve_claims, trace_claims
from papers.joker.models import model_claims
from papers.joker.runs import Curves
from tests.papers.joker.scripted import (
    adapted,
    all_compared,
    curves,
    figure_9,
    figure_10_steps,
    figure_11_run,
    figure_14_runs,
    figure_15_runs,
    figure_18_run,
    figure_20_steps,
    series,
    step,
    traces,
)
from tests.papers.scripted import reproduction

FIVE_TIMES = "word count becomes 5 times as fast, until its source is saturated"


def failed(claims):
    return [(c.where, c.paper) for c in claims if c.verdict is Verdict.NOT_REPRODUCED]


def test_what_the_paper_tells_is_reproduced():
    claims = reproduction("joker").claims
    assert failed(claims) == []
    unsure = [claim.where for claim in claims if claim.verdict is Verdict.NOT_COMPARABLE]
    chosen = ["figure 18", "figure 18", "figure 19", "figure 19", "figure 20", "figure 20"]
    assert unsure == ["figure 5", "figure 14", "figure 16", *chosen, "figures 22–31"]


def figure_5(**changed):
    told = next(each for each in curves() if each.figure == "figure 5").series
    return {"figure_5": Curves("figure 5", "cost", told | changed)}


def named(figure, **changed):
    key = figure.replace(" ", "_")
    told = next(each for each in curves() if each.figure == figure).series
    return {key: Curves(figure, "cost", told | changed)}


CURVES = [
    (figure_5(**{"fusion only": series(2.0, 3.0, 4.2)}), "pipelines alone reach 4×"),
    (figure_5(**{"fusion only": series(2.0, 3.0, 3.0)}), "pipelines alone reach 4×"),
    (figure_5(**{"fusion only": series(3.0, 3.5, 4.0)}), "by two pipelines"),
    (figure_5(**{"fission only": series(5.0, 7.0, 8.0)}), "replicas alone bring up to 10×"),
    (figure_5(**{"fission only": series(5.0, 12.4, 10.0)}), "more than either alone"),
    (
        figure_5(**{
            "fusion first": series(6.0, 12.0, 19.0),
            "fission first": series(6.0, 12.0, 19.0),
        }),
        "up to 20×",
    ),
    (figure_5(**{"fission first": series(6.0, 9.0, 20.0)}), "which of the two comes first"),
    (named("figure 6", **{"8 operators": series(11.0, 4.0, 20.0)}), "longer flows"),
    (named("figure 6", **{"8 operators": series(9.0, 15.0, 20.0)}), "whatever their operators"),
    (named("figure 8", tree=series(2.0, 3.0, 4.0)), "span several regions"),
    (named("figure 8", tree=series(2.0, 4.0, 7.0, together=False)), "in one step"),
    (named("figure 8", tree=series(2.0, 4.0, 9.5)), "than the tree"),
    (named("figure 8", **{"reverse tree": series(2.0, 4.0, 9.5)}), "than the reverse tree"),
    ({"figure_9": figure_9(costly=(9, 5, 13))}, "the more replicas it gets"),
    ({"figure_9": figure_9(speedups=(4.8, 8.7, 10.0))}, "linear in the replicas"),
    ({"figure_9": figure_9(costly=(5, 9, 12))}, "13 replicas"),
    ({"figure_9": figure_9(cheap=(4, 4, 3))}, "always gets 4 replicas"),
    (named("figure 12", **{"gain 0.4": series(5.5, 5.0, 11.0)}), "costs most of the speedup"),
    (named("figure 12", **{"gain 0.2": series(4.0, 10.0, 15.0)}), "are alike"),
    (named("figure 12", **{"gain 0.4": series(2.0, 5.0, 15.0)}), "very restrictive"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "claim"), CURVES)
def test_curves_that_say_otherwise_are_not_reproduced(changed, claim):
    assert any(claim in paper for _, paper in failed(curve_claims(curves(**changed), 8.0)))


def run(*steps, end, speedup):
    return {"run": adapted(list(steps), end, speedup)}


BUSY = ("busy 0.5", "busy 0.8", "busy 0.95")
CUT = (
    step(6, 0.5, True, volume=((1, 1), 1), bargain=((1,), 1)),
    step(14, 0.5, True, volume=((1, 1), 1), bargain=((1,), 2)),
)

TRACES = [
    (
        {"figure_10": run(step(6, 0.9, True, m1=((4, 3), 1)), end={"m1": ((3, 4), 3)}, speedup=3)},
        "the first split is behind m2",
    ),
    (
        {"figure_10": run(*figure_10_steps(), end={"m1": ((3, 4), 2)}, speedup=3)},
        "saturate the source at 230",
    ),
    (
        {
            "figure_11": {
                "busy 0.5": figure_11_run((190,), True),
                "busy 0.8": figure_11_run((), False),
                "busy 0.95": figure_11_run((), False),
            }
        },
        "tries a replica at 160",
    ),
    (
        {
            "figure_11": {
                f"busy {busy}": figure_11_run((), True) for busy in ("0.5", "0.8", "0.95")
            }
        },
        "try a third replica",
    ),
    ({"figure_14": dict.fromkeys(("utility 0.2", "utility 0.1"), figure_14_runs()["utility 0.1"])},
     "only replicas are added"),
    ({"figure_14": dict.fromkeys(("utility 0.2", "utility 0.1"), figure_14_runs()["utility 0.2"])},
     "begins with a split"),
    ({"figure_15": figure_15_runs(8.2)}, "holds the speedup back"),
    ({"figure_15": figure_15_runs(7.0)}, "40 % less"),
    ({"figure_11": {name: adapted([], {"m": ((1,), 1)}) for name in BUSY}}, "two are needed"),
    ({"figure_11": {name: adapted([step(190, 0.2, True, m=((1,), 2))], {"m": ((1,), 2)})
                    for name in BUSY}}, "no overshoot"),
    ({"figure_14": figure_14_runs() | {"utility 0.1": adapted([], {"m1": ((1, 1), 2)})}},
     "end with the same plan"),
    ({"figure_15": {"utility 0.2": figure_15_runs()["utility 0.9"],
                    "utility 0.9": figure_15_runs()["utility 0.9"]}}, "a pipeline comes first"),
    ({"figure_16": run(step(6, 0.5, True, m1=((2, 3), 3)), end={"m1": ((2, 3), 3)}, speedup=3)},
     "two splits and a replica"),
    ({"figure_18": run(step(6, 0.5, True, count=((1,), 8)), end={"count": ((1,), 8)}, speedup=5)},
     "one more replica does not help"),
    ({"figure_18": {"run": figure_18_run(5)}}, "8 replicas"),
    ({"figure_19": run(*CUT, end=CUT[-1].shapes, speedup=3)}, "resolved together"),
    ({"figure_19": run(*CUT, end=CUT[-1].shapes, speedup=3)}, "no pipeline is cut"),
    ({"figure_20": run(step(6, 0.9, True, **figure_20_steps()[0].shapes),
                       end=figure_20_steps()[0].shapes, speedup=2.86)}, "brings 2.3×"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "claim"), TRACES)
def test_steps_that_say_otherwise_are_not_reproduced(changed, claim):
    claims = trace_claims(traces(**changed), figure_10_steps(), figure_20_steps())
    assert any(claim in paper for _, paper in failed(claims))


def test_other_steps_at_the_papers_throughputs_are_noticed():
    claims = trace_claims(traces(), figure_10_steps()[1:], figure_20_steps())
    assert [paper for where, paper in failed(claims)] == [
        "a split is tried and reverted, a replica added, and once more; then the split stays"
    ]
    claims = trace_claims(traces(), figure_10_steps(), figure_20_steps()[1:])
    assert [where for where, _ in failed(claims)] == ["figure 20"]


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"joker": 800.0}, "comparable"),
        ({"joker": 800.0}, "the stateful region bounds both"),
        ({"mistaken": 1000.0}, "do not fit the runtime"),
    ],
)
def test_throughputs_that_say_otherwise_are_not_reproduced(changed, claim):
    assert any(claim in paper for _, paper in failed(model_claims(all_compared(**changed))))


def test_plans_that_say_otherwise_are_not_reproduced():
    first, second, third, fourth, last = all_compared()
    wide = replace(fourth, factor=first.factor)
    claims = model_claims((wide, second, third, fourth, last))
    assert [where for where, _ in failed(claims)] == ["figures 22–25"]
    narrow = replace(third, factor=fourth.factor)
    claims = model_claims((first, second, third, narrow, last))
    assert [where for where, _ in failed(claims)] == ["figures 28–29"]


def test_a_model_that_uses_more_threads_is_noticed():
    first, *others = all_compared()
    greedy = replace(first, model=replace(first.model, threads=13))
    assert failed(model_claims((greedy, *others))) == [
        ("figure 32", "Joker uses more threads than the model's plans")
    ]


def test_what_costs_were_chosen_for_is_never_held_against_the_paper():
    for speedup in (1.0, 5.0):
        counted = run(
            step(6, 0.5, True, count=((1,), 8)), end={"count": ((1,), 8)}, speedup=speedup
        )
        claims = trace_claims(traces(figure_18=counted), figure_10_steps(), figure_20_steps())
        chosen = {c.paper: c for c in claims}
        assert "5×" in chosen[FIVE_TIMES].rule
        assert chosen[FIVE_TIMES].verdict is Verdict.NOT_COMPARABLE
        assert chosen["that takes 4 steps"].verdict is Verdict.NOT_COMPARABLE
