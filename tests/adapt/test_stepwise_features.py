"""The first step of stepwise profiling: classes, dominance, Algorithm 1 and eq. 1."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.adapt.policies.stepwise_features import (
    Correlation,
    correlation,
    dominated,
    features_of,
    ratios_and_degrees,
    samples_of,
    whole_ratios,
)
from anabranch.planning.plan import Plan
from tests.adapt.flows_of_regions import graph_of_regions, line_of_regions
from tests.adapt.scripted import observation, seen

WORD_COUNT = line_of_regions("parse", "split", "count")
START = Plan.sequential(WORD_COUNT)
TWEETS = {"parse": (100, 100, 0.030), "split": (100, 1200, 0.028), "count": (1200, 1200, 0.042)}
"""Of 100 tweets: 0.30 ms to parse one, 0.28 to split it, 0.035 to count each of its 12 words."""


def test_word_count_of_the_paper_grows_two_two_three() -> None:
    found = features_of(seen(WORD_COUNT, START, observation(START, steps=TWEETS)), unit=0.3)
    assert found is not None
    assert found.ratios == {"parse": 2, "split": 2, "count": 3}
    assert found.degrees == {}
    assert found.least_us == pytest.approx({"parse": 300, "split": 280, "count": 35})
    assert str(found) == "ratios parse:split:count = 2:2:3"


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (0.1, {"parse": 7, "split": 6, "count": 10}),
        (0.3, {"parse": 2, "split": 2, "count": 3}),
        (0.5, {"parse": 1, "split": 1, "count": 2}),
        (1.0, {"parse": 1, "split": 1, "count": 1}),
    ],
)
def test_a_coarser_unit_makes_ratios_alike(unit: float, expected: dict[str, int]) -> None:
    found = features_of(seen(WORD_COUNT, START, observation(START, steps=TWEETS)), unit=unit)
    assert found is not None
    assert found.ratios == expected


def test_ratios_that_are_alike_become_ones_and_none_becomes_zero() -> None:
    assert whole_ratios({"a": 1.0, "b": 1.0, "c": 0.95}, 0.3) == {"a": 1, "b": 1, "c": 1}
    assert whole_ratios({"a": 1.0, "b": 0.01}, 0.3) == {"a": 3, "b": 1}


def test_non_parallel_operators_get_one_task_and_bound_the_flow_of_non_scalable_ones() -> None:
    loads = {"parse": 0.002, "total": 0.004, "rank": 0.013}
    ratios, degrees = ratios_and_degrees(loads, {"total"}, {"rank"})
    assert ratios == {"parse": 0.002 / 0.013}  # the largest task load of all parallel operators
    assert degrees == {"total": 1, "rank": 4}  # 0.013 × 1 / 0.004 = 3.25, rounded up


def test_without_non_parallel_operators_the_smallest_load_is_the_unit_of_non_scalable_ones() -> (
    None
):
    ratios, degrees = ratios_and_degrees({"a": 0.002, "b": 0.004, "rank": 0.005}, (), {"rank"})
    assert ratios == {"a": 0.4, "b": 0.8}
    assert degrees == {"rank": 3}  # 0.005 / 0.002 = 2.5, rounded up


def test_only_what_every_way_leads_to_through_logic_is_dominated() -> None:
    upstream = {
        "in": (),
        "map": ("in",),
        "top": ("map",),
        "behind": ("top",),
        "further": ("behind",),
        "both": ("behind", "map"),
    }
    assert dominated(upstream, {"top"}) == {"behind", "further"}


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(100, 100), (40, 40)], Correlation.PROPORTIONAL),
        ([(100, 1200), (100, 900), (40, 500)], Correlation.WORKLOAD),
        ([(100, 10), (40, 10), (70, 10)], Correlation.LOGIC),
        ([(100, 10), (100, 12), (100, 8)], Correlation.WORKLOAD),  # inputs alike: who could tell
        ([(100, 0), (40, 0)], Correlation.LOGIC),
        ([], Correlation.PROPORTIONAL),
    ],
)
def test_classes_follow_from_what_went_in_and_came_out(
    samples: list[tuple[float, float]], expected: Correlation
) -> None:
    assert correlation(samples) is expected


def test_a_load_before_and_a_lower_one_tell_that_output_does_not_grow() -> None:
    flow = line_of_regions("parse", "top", "show")
    plan = Plan.sequential(flow)
    high = {"parse": (900, 900, 0.3), "top": (900, 10, 0.2), "show": (10, 10, 0.1)}
    low = {"parse": (90, 90, 0.03), "top": (90, 10, 0.02), "show": (10, 10, 0.1)}
    before = samples_of(seen(flow, plan, observation(plan, steps=high)))
    found = features_of(seen(flow, plan, observation(plan, steps=low)), unit=0.3, earlier=before)
    assert found is not None
    assert found.classes["top"] is Correlation.LOGIC
    assert found.classes["parse"] is Correlation.PROPORTIONAL
    assert found.ratios.keys() == {"parse", "top"}  # show gets no more when parse takes in more
    assert found.degrees == {"show": 5}  # 0.1 s of work beside 0.02 s


def test_what_the_user_names_is_logic_dependent_whatever_is_measured() -> None:
    flow = line_of_regions("parse", "top", "show")
    plan = Plan.sequential(flow)
    shown = seen(flow, plan, observation(plan))
    assert "show" in features_of(shown, unit=0.3, logic=("top",)).degrees  # type: ignore[union-attr]


def test_a_stateful_region_is_not_parallel() -> None:
    flow = line_of_regions("parse", "total!")
    plan = Plan.sequential(flow)
    found = features_of(seen(flow, plan, observation(plan)), unit=0.3)
    assert found is not None
    assert (found.ratios, found.degrees) == ({"parse": 1}, {"total": 1})


def test_the_dearest_pipeline_speaks_for_its_region() -> None:
    flow = line_of_regions("parse+clean", "count")
    steps = {"parse": (100, 100, 0.3), "clean": (100, 100, 0.3), "count": (100, 100, 0.4)}
    one = Plan.sequential(flow)
    two = one.with_pipelines("parse", 1, 1)
    fused = features_of(seen(flow, one, observation(one, steps=steps)), unit=0.3)
    cut = features_of(seen(flow, two, observation(two, steps=steps)), unit=0.3)
    assert fused is not None
    assert cut is not None
    assert fused.ratios == {"parse": 3, "count": 2}
    assert cut.ratios == {"parse": 2, "count": 3}


def test_a_join_behind_a_logic_dependent_branch_still_grows() -> None:
    flow = graph_of_regions(first="top rest", top="last", rest="last")
    plan = Plan.sequential(flow)
    found = features_of(seen(flow, plan, observation(plan)), unit=0.3, logic=("top",))
    assert found is not None
    assert found.degrees == {}


def test_nothing_is_known_before_anything_came_through() -> None:
    idle = {"parse": (0, 0, 0.0), "split": (0, 0, 0.0), "count": (0, 0, 0.0)}
    assert features_of(seen(WORD_COUNT, START, observation(START, steps=idle)), unit=0.3) is None


@given(
    loads=st.dictionaries(st.sampled_from("abcdefgh"), st.floats(1e-6, 1e3), min_size=1),
    fixed=st.sets(st.sampled_from("abcdefgh")),
    behind=st.sets(st.sampled_from("abcdefgh")),
    unit=st.floats(0.05, 1.0),
)
def test_every_operator_gets_a_ratio_or_a_degree_and_more_load_never_gets_less(
    loads: dict[str, float], fixed: set[str], behind: set[str], unit: float
) -> None:
    ratios, degrees = ratios_and_degrees(loads, fixed & loads.keys(), behind - fixed)
    whole = whole_ratios(ratios, unit)
    assert whole.keys() | degrees.keys() == loads.keys()
    assert not whole.keys() & degrees.keys()
    assert min([*whole.values(), *degrees.values()]) >= 1
    rising = sorted(whole, key=lambda name: loads[name])
    assert all(whole[a] <= whole[b] for a, b in pairwise(rising))
