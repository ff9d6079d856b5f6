"""Clusters of the paper (§6.1), simulated: nodes of two cores, and tasks dealt out in turn.

A plan's replicas are placed on nodes round-robin, as Storm's scheduler does, whenever a policy asks
for a plan; the policy does not see places. What crosses nodes costs its consumer time for every
cache line, which stands for serialization, and no node sends more than its network takes.

Sleeping takes time but no processor, which the simulator does not know. Sources and operators that
sleep therefore sit on sockets of their own beside the nodes, where nothing else needs the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anabranch.engines.engine import Options
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.simulator.plans import PLACE
from anabranch.engines.simulator.scenario import Scenario
from anabranch.events import Event, Reconfiguration
from anabranch.flow import Flow
from anabranch.planning.machine import Machine
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan
from anabranch.reproduce.stepwise.topologies import Topology

CORES_PER_NODE = 2
SERIALIZING_NS = 1000.0
"""Time that one cache line of a tuple from another node takes."""
NETWORK_MB_S = 60.0
NETWORK_US = 300.0
SLEEPERS = 48
"""Sockets for those who sleep: room for twice as many tasks."""
NOISE = 0.1
QUEUE, JUMBO = 1024, 16
"""Tuples in front of a task, as in Storm, and tuples that are handed over together."""
PERIOD_S = 2.0


def machine_of(nodes: int) -> Machine:
    """Nodes, and room for those who sleep."""
    sockets = nodes + SLEEPERS
    row = [SERIALIZING_NS] * sockets
    apart = tuple(tuple(0.0 if i == j else row[j] for j in range(sockets)) for i in range(sockets))
    return Machine(
        f"{nodes} nodes",
        sockets,
        CORES_PER_NODE,
        latency_ns=apart,
        nodes=sockets,
        network_us=NETWORK_US,
        network_mb_s=NETWORK_MB_S,
    )


def placed(plan: Plan, topology: Topology, nodes: int) -> Plan:
    """A plan with its tasks dealt out to nodes in turn, and sleepers to themselves.

    Sinks that write nothing stay where they are.
    """
    turn = {True: 0, False: 0}

    def places(region: str, replicas: int) -> Iterator[str]:
        sleeps = region in topology.sleeping
        for _ in range(replicas):
            socket = nodes + turn[True] % SLEEPERS if sleeps else turn[False] % nodes
            turn[sleeps] += 1
            yield f"{PLACE}{socket}"

    known = topology.profile.by_name
    return replace(
        plan,
        regions=tuple(
            replace(r, placement=tuple(places(r.region, r.replicas))) if r.region in known else r
            for r in plan.regions
        ),
    )


def unplaced(plan: Plan) -> Plan:
    """A plan as policies know it."""
    return replace(plan, regions=tuple(replace(r, placement=()) for r in plan.regions))


class Cluster:
    """A run of a topology on a cluster: an engine as policies see it.

    Args:
        topology: What runs.
        nodes: On how many nodes.
        seed: Decides the noise.
    """

    def __init__(self, topology: Topology, nodes: int, seed: int = 0) -> None:
        self.flow: Flow = topology.flow()
        self.cores = CORES_PER_NODE * nodes
        self._topology, self._nodes = topology, nodes
        self.engine = SimulatorEngine(
            self.flow,
            placed(Plan.sequential(self.flow), topology, nodes),
            Options(),
            topology.profile,
            machine_of(nodes),
            Scenario(noise=NOISE, noise_s=1.0, queue_tuples=QUEUE, jumbo_tuples=JUMBO, step_s=0.1),
            seed=seed,
            period_s=PERIOD_S,
        )

    @property
    def plan(self) -> Plan:
        """The plan in force, without places."""
        return unplaced(self.engine.plan)

    def model(self) -> Model | None:
        """Nobody knows what plans promise."""
        return None

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan."""
        self.engine.reconfigure(placed(plan, self._topology, self._nodes))

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin; events tell of plans without places."""

        def hear(event: Event) -> None:
            if isinstance(event, Reconfiguration):
                event = replace(event, before=_bare(event.before), after=_bare(event.after))
            tell(event)

        self.engine.start(hear)

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.engine.wait(seconds)


def _bare(plan: str) -> str:
    return unplaced(Plan.from_json(plan)).to_json()
