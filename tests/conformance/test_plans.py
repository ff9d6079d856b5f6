"""Every flow, by every way to run one, under every kind of plan: the sequential result."""

from __future__ import annotations

import pytest

from anabranch.engines.registry import ENGINES
from anabranch.testing.compare import difference
from tests.conformance.flows import EXAMPLE_ARGUMENTS, EXAMPLES, NAMES, RESULTS, SAMPLE, subject
from tests.conformance.ways import IMITATED, PLANS, SLOW, WORKERS, marked, plans_of, run_by
from tests.sampling import ALL, sampled

pytestmark = sampled

SEEDS = 3 if ALL else 1


def cases() -> list[object]:
    """Where it takes long, some stand for the others unless all are asked for."""
    few = {engine: ["random", "changing"] for engine in ENGINES}
    kinds = {} if ALL else few | {SLOW: ["changing"], IMITATED: ["changing"]}
    return [
        marked(way, name, kind, seed)
        for way in (*ENGINES, IMITATED)
        for name in (NAMES if ALL or way != SLOW else SAMPLE)
        for kind in kinds.get(way, list(PLANS))
        for seed in range(1 if way == SLOW else SEEDS)
    ]


@pytest.mark.parametrize(("way", "name", "kind", "seed"), cases())
def test_the_result_is_the_sequential_one(way, name, kind, seed, request):
    seen = subject(name)
    plans = plans_of(kind, seen.flow, seen.rows, way, seed)
    workers = WORKERS.get(kind, 0)
    got, changes = run_by(way, seen.flow, plans, seed, request, workers=workers)
    found = difference(seen.flow, seen.expected, got)
    assert found is None, f"{found}\n{plans}"
    assert (changes > 0) == (len(plans) > 1), "the plan did not change on the way"


@pytest.mark.parametrize("name", NAMES)
def test_every_flow_has_something_to_compare(name):
    seen = subject(name)
    assert sum(table.num_rows for table in seen.expected.outputs.values()) >= RESULTS


def test_what_is_malformed_or_late_is_among_the_data():
    seen = subject("readings")
    assert min(len(seen.expected.rows(sink)) for sink in ("out", "late", "bad")) >= RESULTS


def test_every_example_is_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXAMPLE_ARGUMENTS)
