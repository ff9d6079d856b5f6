"""Laws of stepwise profiling: bounds, rest under a constant load, and no memory but its own."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.adapt.guards import beyond
from anabranch.adapt.history import History, Limits
from anabranch.adapt.policies.stepwise import Stepwise
from anabranch.adapt.topology import Topology
from tests.adapt.scripted import ScriptedRun
from tests.adapt.word_count_cluster import FLOW, START, Cluster

clusters = st.builds(
    Cluster,
    cores=st.floats(1.0, 30.0),
    per_reader=st.floats(200.0, 40_000.0),
    penalty=st.floats(0.0, 0.1),
    offered=st.none() | st.floats(50.0, 30_000.0),
    waiting_ms=st.none() | st.floats(60.0, 3000.0),
)
limited = st.builds(
    Limits, cores=st.integers(1, 16), replicas=st.integers(1, 24), threads=st.integers(5, 60)
)


@given(cluster=clusters, limits=limited)
def test_it_keeps_its_limits_and_comes_to_rest_under_a_constant_load(
    cluster: Cluster, limits: Limits
) -> None:
    run = ScriptedRun(FLOW, START, cluster.second)
    controller = run.tuned_by(Stepwise(), limits)
    run.go(controller, seconds=600)
    changes = len(run.plans)
    run.go(controller, seconds=120, start=600)
    assert len(run.plans) == changes
    assert all(beyond(plan, limits) is None for plan in run.plans)
    assert not [d for d in run.journal if d.outcome in ("failed", "refused")]


@given(cluster=clusters)
def test_decisions_depend_on_memory_and_measurements_alone(cluster: Cluster) -> None:
    stepwise, other = Stepwise(), Stepwise()
    limits, topology = Limits(8, 16, 40), Topology.of(FLOW)
    memory, twin, plan = stepwise.begin(), other.begin(), START
    for look in range(8):
        window = tuple(cluster.second(plan, 10 * look + second) for second in range(10))
        seen = History(topology, plan, window, limits)
        before = memory
        memory, found = stepwise.decide(memory, seen)
        twin, same = other.decide(twin, seen)
        assert (found, memory) == (same, twin)
        assert stepwise.decide(before, seen) == (memory, found)  # nothing was changed in place
        plan = found.plan if found is not None else plan
