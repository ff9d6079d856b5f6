"""Every application, against what its definition says in plain Python."""

from __future__ import annotations

from functools import cache

import pytest

from anabranch.apps import APPS
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.planning.plan import DEFAULT_BATCH_ROWS
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import Rows, cases, disagreement, rows_of
from tests.conformance.ways import PLANS, SLOW, WORKERS, marked, plans_of, run_by, sequential, wide
from tests.sampling import ALL, sampled

pytestmark = sampled

SIZES = ("small", "large", "shuffled")
ON_SPARK = ("word-count", "linear-road", "sentiment", "nexmark-q4")
"""Applications that stand for all of them on Spark in `make test`: every kind of state."""


@cache
def defined(name: str, size: str) -> tuple[Flow, Rows]:
    """An application on its data, and what its reference makes of them."""
    flow = cases()[name].flow(size)
    return flow, cases()[name].expected(rows_of(flow))


def sizes_of(name: str) -> tuple[str, ...]:
    case = cases().get(name)
    return SIZES if case is not None and case.disorder else SIZES[:2]


def test_every_application_has_a_reference():
    assert set(cases()) == set(APPS)


@pytest.mark.parametrize("name", list(APPS))
def test_every_reference_has_something_to_compare(name):
    _, small = defined(name, "small")
    _, large = defined(name, "large")
    assert len(small["out"]) >= 3
    assert len(large["out"]) > len(small["out"])


@pytest.mark.parametrize(
    ("name", "size"), [(name, s) for name in APPS for s in (sizes_of(name) if ALL else SIZES[:1])]
)
def test_the_sequential_run_is_what_the_definition_says(name, size):
    flow, expected = defined(name, size)
    got = run_sequential(flow).outputs
    assert disagreement(cases()[name], flow, expected, got) is None


BATCH_ROWS = {"usual batches": DEFAULT_BATCH_ROWS, "one batch": 1 << 20}
"""Of the huge data: one batch has as many groups, and as much to prune, as there are."""
HUGE = list(APPS) if ALL else ["spike-detection", "nexmark-q19"]


@pytest.mark.parametrize("batches", BATCH_ROWS)
@pytest.mark.parametrize("name", HUGE)
def test_many_rows_give_what_the_definition_says(name, batches, request):
    flow, expected = defined(name, "huge")
    (plan,) = sequential(flow, 0) if batches == "one batch" else wide(flow, 0)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=BATCH_ROWS[batches])
    got, _ = run_by("local", flow, [plan], 0, request)
    assert len(expected["out"]) >= 3
    assert disagreement(cases()[name], flow, expected, got.outputs) is None


def on_engines() -> list[object]:
    return [
        marked(engine, name, size, kind)
        for engine in ENGINES
        for name in (APPS if ALL or engine != SLOW else ON_SPARK)
        for size in (sizes_of(name) if ALL else sizes_of(name)[-1:])
        for kind in (PLANS if ALL else ["changing"])
    ]


@pytest.mark.parametrize(("engine", "name", "size", "kind"), on_engines())
def test_an_engine_gives_what_the_definition_says(engine, name, size, kind, request):
    flow, expected = defined(name, size)
    most = max(map(len, rows_of(flow).values()))
    plans = plans_of(kind, flow, most, engine, 0)
    got, changes = run_by(engine, flow, plans, 0, request, workers=WORKERS.get(kind, 0))
    assert disagreement(cases()[name], flow, expected, got.outputs) is None
    assert (changes > 0) == (len(plans) > 1), "the plan did not change on the way"
