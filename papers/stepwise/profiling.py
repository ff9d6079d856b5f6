"""Runs of one method on one cluster, round by round.

A round is a configuration under full load, as in figure 11: the readings of throughput that are
taken once it has settled. That in which stepwise profiling turns the load down is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from anabranch.adapt.controller import Controller
from anabranch.adapt.history import Limits
from anabranch.adapt.policies.stela import Stela
from anabranch.adapt.policies.stepwise import Stepwise
from anabranch.adapt.policies.threshold import Threshold
from anabranch.adapt.policy import Cadence, Policy
from anabranch.adapt.topology import Topology as Regions
from anabranch.events import Decision, Event, Observed, Reconfiguration
from anabranch.planning.plan import Plan
from papers.stepwise.cluster import PERIOD_S, Cluster, Topology

STEPWISE, STELA, THRESHOLD = "stepwise", "stela", "threshold"
METHODS = (STEPWISE, STELA, THRESHOLD)
SETTLE, READINGS = 3, 10
PACE = Cadence(SETTLE, READINGS, READINGS)
LOW_LOAD = "features at a low load"
MOST_REPLICAS, MOST_THREADS = 96, 400
"""As Storm has it: no limit that anybody comes to."""


@dataclass(frozen=True)
class Round:
    """One configuration.

    Attributes:
        tasks: Of sources and operators, in the order of the topology.
        rates: Readings of throughput, tuples a second of all sources.
        latency_ms: Latency on average.
    """

    tasks: tuple[int, ...]
    rates: tuple[float, ...]
    latency_ms: float

    @property
    def rate(self) -> float:
        """Throughput on average."""
        return fmean(self.rates)


@dataclass(frozen=True)
class Scaling:
    """What a method did.

    Attributes:
        topology: To which topology.
        method: Which one.
        nodes: On how many nodes.
        rounds: Configuration by configuration; the last one is the final one.
        reverted: Configurations that were taken back, by the journal.
        ended: Whether the method came to an end by itself.
        journal: What it said.
    """

    topology: str
    method: str
    nodes: int
    rounds: tuple[Round, ...]
    reverted: int
    ended: bool
    journal: tuple[str, ...] = field(repr=False)

    @property
    def first(self) -> float:
        """Throughput of the first configuration."""
        return self.rounds[0].rate

    @property
    def final(self) -> float:
        """Throughput of the configuration in the end."""
        return self.rounds[-1].rate


def method_for(name: str, topology: Topology, nodes: int, **parameters: Any) -> Policy[Any]:
    """A method with the paper's parameters."""
    if name == STEPWISE:
        chosen = Stepwise(latency_ms=topology.latency_ms, logic=topology.logic, pace=PACE)
        return replace(chosen, **parameters)
    if name == STELA:
        return Stela(attempts=nodes, pace=PACE)
    return Threshold(low=0.0, pace=PACE)


class Listener:
    """Hears a run, and parts it into rounds."""

    def __init__(self, cluster: Cluster) -> None:
        self._order = [r.region for r in cluster.plan.regions if not r.region.endswith(".output")]
        self.journal: list[Decision] = []
        self._seen: list[tuple[Plan, list[tuple[float, float]]]] = [(cluster.plan, [])]

    def hear(self, event: Event) -> None:
        """Take an event of the run."""
        if isinstance(event, Reconfiguration):
            self._seen.append((Plan.from_json(event.after), []))
        elif isinstance(event, Observed):
            now = event.observation
            rate = round(now.rows_in / now.times.total_s, 1)
            self._seen[-1][1].append((rate, round(now.latency_p50_ms, 1)))

    @property
    def changes(self) -> int:
        """Changes of plan so far."""
        return len(self._seen) - 1

    def rounds(self) -> tuple[Round, ...]:
        """The configurations that were seen long enough under full load."""
        low = bool(self.journal) and LOW_LOAD in self.journal[0].why
        shown = self._seen[2:] if low else self._seen
        found = []
        for plan, readings in shown:
            counted = readings[SETTLE : SETTLE + 2 * READINGS]
            if len(counted) > 1:
                latency = fmean(latency for _, latency in counted)
                found.append(Round(self._tasks(plan), tuple(rate for rate, _ in counted), latency))
        return tuple(found)

    def _tasks(self, plan: Plan) -> tuple[int, ...]:
        readers = [source.replicas for source in plan.sources]
        return (*readers, *(plan.region(name).replicas for name in self._order))


def scale_up(
    topology: Topology, name: str, nodes: int, rounds: int, seed: int = 0, **parameters: Any
) -> Scaling:
    """Let a method go on until it ends, or for so many rounds."""
    cluster = Cluster(topology, nodes, seed)
    listener = Listener(cluster)
    regions = Regions.of(cluster.flow)
    limits = Limits(cluster.cores, MOST_REPLICAS, MOST_THREADS)
    policy = method_for(name, topology, nodes, **parameters)
    controller = Controller(regions, policy, cluster, limits, tell=listener.journal.append)

    def hear(event: Event) -> None:
        listener.hear(event)  # first, so that a change belongs to the readings behind it
        controller.hear(event)

    cluster.start(hear)
    quiet, changes = 0, 0
    while quiet < 3 and len(listener.rounds()) <= rounds:
        cluster.wait(PERIOD_S * (SETTLE + READINGS))
        quiet = quiet + 1 if listener.changes == changes and not controller.trying else 0
        changes = listener.changes
    return Scaling(
        topology.name,
        name,
        nodes,
        listener.rounds(),
        sum(decision.outcome == "reverted" for decision in listener.journal),
        quiet >= 3,
        tuple(str(decision) for decision in listener.journal),
    )


class Runs:
    """Runs that several figures share, each made once.

    Args:
        rounds: Configurations of stepwise profiling at most.
        least: Configurations of the other methods at least.
    """

    def __init__(self, rounds: int, least: int) -> None:
        self._rounds, self._least = rounds, least
        self._known: dict[tuple[Any, ...], Scaling] = {}

    def scaling(
        self,
        topology: Topology,
        method: str,
        nodes: int,
        rounds: int | None = None,
        **parameters: Any,
    ) -> Scaling:
        """A run of a method; of stepwise profiling until it ends."""
        chosen = rounds or self._rounds
        key = (topology.name, method, nodes, chosen, *sorted(parameters.items()))
        if key not in self._known:
            self._known[key] = scale_up(topology, method, nodes, chosen, **parameters)
        return self._known[key]

    def methods(self, topology: Topology, nodes: int, names: tuple[str, ...]) -> dict[str, Scaling]:
        """Several methods, the others with as many rounds as stepwise profiling needed."""
        first = self.scaling(topology, STEPWISE, nodes)
        rounds = max(self._least, len(first.rounds))
        return {
            name: first if name == STEPWISE else self.scaling(topology, name, nodes, rounds)
            for name in names
        }
