"""Busy flows do what their profile says, and the same under every plan."""

import pickle
from random import Random

import numpy as np
import pytest

from anabranch.engines.measuring import busy_flows as busy
from anabranch.engines.measuring.busy_flows import CountingSink, busy_flow
from anabranch.errors import BuildError
from anabranch.graph import StateKind
from anabranch.io.two_phase_commit import Transactions
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile, chain
from anabranch.planning.regions import regions
from anabranch.testing import random_plan, run_interleaved, run_sequential
from anabranch.testing.on_engine import run_on_engine
from tests.sampling import thorough


def mixed_chain() -> Profile:
    return chain(
        [
            OperatorProfile("parse", 0.1, selectivity=2.5),
            OperatorProfile(
                "count", 0.1, selectivity=0.5, state=StateKind.PARTITIONED, key=("user",), keys=7
            ),
            OperatorProfile("clean", 0.1),
            OperatorProfile("order", 0.1, selectivity=1.5, state=StateKind.STATEFUL),
            OperatorProfile("some", 0.1, selectivity=0.3),
        ],
        unit="us",
    )


def tuples_into(profile: Profile, rows: int) -> dict[str, int]:
    seen: dict[str, int] = {}

    def tap(step, inputs, outputs):
        seen[step] = seen.get(step, 0) + sum(len(jumbo) for jumbo in inputs if jumbo is not None)

    run_sequential(busy_flow(profile, rows), tap=tap)
    return seen


def test_as_many_tuples_reach_each_operator_as_the_profile_says():
    profile, rows = mixed_chain(), 1500
    seen = tuples_into(profile, rows)
    for name, visits in profile.visits.items():
        assert seen[name] == pytest.approx(rows * visits, rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_and_no_crash_changes_what_comes_out(seed):
    flow = busy_flow(mixed_chain(), rows=80, buckets=8)
    plans = [random_plan(flow, Random(seed * 2 + turn)) for turn in (0, 1)]
    expected = run_sequential(flow).rows("sink")
    assert run_interleaved(flow, plans[0], seed, changes=plans[1:], crashes=1).rows("sink") == (
        expected
    )


@thorough
def test_threads_give_what_one_thread_gives():
    flow = busy_flow(mixed_chain(), rows=3000, buckets=8)
    plan = Plan.sequential(flow).with_source("source", batch_rows=500)
    wide = plan.with_replicas("some", 2).with_replicas("count", 3).with_pipelines("count", 1, 2)
    expected = run_sequential(flow).rows("sink")
    assert run_on_engine(flow, "local", [wide, plan]).rows("sink") == expected


def test_regions_follow_the_states_of_the_operators():
    found = [region.steps for region in regions(busy_flow(mixed_chain(), rows=1))]
    assert found == [
        ("source",),
        ("parse", "count", "clean"),
        ("order",),
        ("some",),
        ("sink",),
    ]


def test_an_operator_works_in_proportion_to_its_cost_and_its_tuples(monkeypatch):
    worked: list[float] = []
    monkeypatch.setattr(busy, "multiply", worked.append)
    profile = chain([OperatorProfile("a", 3.0, 0.5), OperatorProfile("b", 10.0)], unit="us")
    flow = busy_flow(profile, rows=400, multiplication_ns=0.5)
    rows = len(run_sequential(flow).rows("sink"))
    assert sum(worked) == pytest.approx(400 * 6000 + rows * 20_000)


def test_the_hottest_key_has_its_share():
    hot = OperatorProfile(
        "count", 0.0, state=StateKind.PARTITIONED, key=("user",), keys=50, hottest_key_share=0.4
    )
    flow = busy_flow(chain([OperatorProfile("a", 1.0), hot]), rows=4096)
    users = flow.graph.steps["source"].body.source.read("generated", 0, 4096).batch["user"]
    counts = np.bincount(users.to_numpy(), minlength=50)
    assert counts[0] / 4096 == pytest.approx(0.4, abs=0.03)
    assert np.count_nonzero(counts) == 50


def test_a_flow_travels_to_another_process():
    flow = busy_flow(mixed_chain(), rows=60)
    copy = pickle.loads(pickle.dumps(flow))
    assert run_sequential(copy).rows("sink") == run_sequential(flow).rows("sink")


def test_the_sink_counts_what_a_run_writes():
    sink = CountingSink()
    flow = busy_flow(mixed_chain(), rows=500).writing({"sink": sink})
    batch = flow.graph.steps["source"].body.source.read("generated", 0, 5).batch
    out = Transactions(sink)
    out.open(batch.schema)
    out.write(batch)
    out.commit(0)
    assert sink.rows == 5


@pytest.mark.parametrize(
    ("profile", "subject"),
    [
        (
            Profile(
                (OperatorProfile("a", 1.0), OperatorProfile("b", 1.0), OperatorProfile("c", 1.0)),
                (StreamProfile("a", "b", 1.0), StreamProfile("a", "c", 1.0)),
            ),
            "profile",
        ),
        (chain([OperatorProfile("a", 1.0, state=StateKind.SHARED)]), "operator 'a'"),
        (
            chain([OperatorProfile("a", 1.0, state=StateKind.PARTITIONED, key=("row",))]),
            "operator 'a'",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(profile, subject):
    with pytest.raises(BuildError, match=f"^{subject}: "):
        busy_flow(profile, rows=1)
