"""Threshold: one replica at a time, where the busy share says so."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from anabranch.adapt.guards import beyond
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.threshold import Threshold
from anabranch.adapt.policy import Proposal
from anabranch.adapt.registry import policy
from anabranch.events import Observation
from anabranch.planning.plan import Plan
from tests.adapt.flows_of_regions import line_of_regions
from tests.adapt.scripted import ROOMY, ScriptedRun, observation, seen

FLOW = line_of_regions("parse", "split", "count")
START = Plan.sequential(FLOW)


def decide(
    busy: Mapping[str, float],
    plan: Plan = START,
    limits: Limits = ROOMY,
    threshold: Threshold | None = None,
) -> Proposal | None:
    shown = observation(plan, busy={name: [share] for name, share in busy.items()})
    return (threshold or Threshold()).decide(None, seen(FLOW, plan, shown, limits=limits))[1]


def test_the_most_overloaded_region_gets_one_more_replica() -> None:
    found = decide({"parse": 0.85, "split": 0.97, "count": 0.5})
    assert found is not None
    assert found.plan == START.with_replicas("split", 2)
    assert found.why == "region split: busy 0.97 > 0.80, 1 → 2 replicas promise 0.48"
    assert not found.trial


def test_nothing_is_done_between_the_marks() -> None:
    assert decide({"parse": 0.8, "split": 0.3, "count": 0.5}) is None


def test_a_region_that_cannot_grow_leaves_it_to_the_next() -> None:
    full = START.with_replicas("split", 4)
    found = decide(
        {"parse": 0.85, "split": 0.97, "count": 0.5}, full, Limits(4, replicas=4, threads=50)
    )
    assert found is not None
    assert found.plan == full.with_replicas("parse", 2)


def test_no_region_grows_beyond_the_threads_there_may_be() -> None:
    busy = {"parse": 0.9, "split": 0.97, "count": 0.5}
    assert decide(busy, limits=Limits(2, replicas=4, threads=5)) is None


def test_an_idle_region_gives_a_replica_back() -> None:
    wide = START.with_replicas("split", 3)
    found = decide({"parse": 0.5, "split": 0.2, "count": 0.5}, wide)
    assert found is not None
    assert found.plan == wide.with_replicas("split", 2)


def test_a_single_replica_stays_however_idle() -> None:
    assert decide({"parse": 0.0, "split": 0.0, "count": 0.0}) is None


def test_as_in_the_paper_nothing_is_given_back_when_there_is_no_low_mark() -> None:
    wide = START.with_replicas("split", 3)
    busy = {"parse": 0.5, "split": 0.0, "count": 0.5}
    assert decide(busy, wide, threshold=Threshold(low=0.0)) is None


def test_the_busiest_pipeline_speaks_for_its_region() -> None:
    flow = line_of_regions("parse+split", "count")
    plan = Plan.sequential(flow).with_pipelines("parse", 1, 1)
    shown = observation(plan, busy={"parse": [0.2, 0.9], "count": [0.5]})
    found = Threshold().decide(None, seen(flow, plan, shown))[1]
    assert found is not None
    assert found.plan == plan.with_replicas("parse", 2)


def test_the_registry_knows_it() -> None:
    assert policy("threshold") == Threshold()


@given(
    work=st.tuples(*[st.floats(0.0, 12.0)] * 3),
    replicas=st.tuples(*[st.integers(1, 6)] * 3),
    threads=st.integers(4, 30),
)
def test_it_comes_to_rest_within_bounds_under_a_constant_load(
    work: tuple[float, ...], replicas: tuple[int, ...], threads: int
) -> None:
    """Work of so many threads in each region is shared by its replicas."""
    names = ("parse", "split", "count")
    start = START
    for name, count in zip(names, replicas, strict=True):
        start = start.with_replicas(name, count)
    limits = Limits(8, replicas=8, threads=max(threads, sum(replicas) + 3))

    def script(plan: Plan, second: int) -> Observation:
        shares = [min(1.0, w / plan.region(n).replicas) for n, w in zip(names, work, strict=True)]
        busy = {name: [share] for name, share in zip(names, shares, strict=True)}
        return observation(plan, at_s=second, busy=busy)

    run = ScriptedRun(FLOW, start, script)
    run.go(run.tuned_by(Threshold(), limits), seconds=150)
    assert all(beyond(plan, limits) is None for plan in run.plans)
    most = sum(abs(r - 8) + 8 for r in replicas)
    assert len(run.plans) <= most
    settled = len(run.plans)
    run.go(run.tuned_by(Threshold(), limits), seconds=60, start=150)
    assert len(run.plans) == settled
