"""Cases for policies: random flows on random machines under random load and trouble.

The same number and seed always give the same case. Costs are about 10 µs a tuple, as those of
batches on threads are; what parallelism costs is nothing, a little, or as much as in Table 1 of
Pipelined Fission relative to the costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import harness  # noqa: F401  # puts `papers` on the path
import numpy as np
from numpy.random import Generator
from random_loads import TRACES, TraceSettings, random_load, random_troubles

from anabranch.adapt.history import Limits
from anabranch.adapt.topology import Topology
from anabranch.engines.simulator.flows import flow_of
from anabranch.engines.simulator.scenario import JOKER_SWITCH, LOCAL_SWITCH, Load, Scenario
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile
from papers.pipelined_fission.random_profiles import ChainSettings, random_chain, random_graph

COST_US, READ_US = 10.0, 0.25
STEP_S = NOISE_S = 0.5
QUEUE_TUPLES = 4096
"""Some tenths of a second of work: what waits in front of threads outlasts noise."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        number: Which.
        seed: With the number, decides everything.
        kind: In words: shape of the flow, and of the load.
        profile: The application.
        machine: Where it runs.
        scenario: What happens; `reloaded` gives it a load.
        trace: Length of the run, and the shape of its load.
    """

    number: int
    seed: int
    kind: str
    profile: Profile
    machine: Machine
    scenario: Scenario
    trace: TraceSettings

    @cached_property
    def flow(self) -> Flow:
        return flow_of(self.profile)

    @cached_property
    def topology(self) -> Topology:
        return Topology.of(self.flow)

    @property
    def limits(self) -> Limits:
        """How far policies and the referee may go."""
        return Limits.for_cores(self.machine.cores, self.topology)

    @property
    def load(self) -> Load:
        """What comes to each source."""
        return self.scenario.loads[0]

    @property
    def sources(self) -> int:
        return len(self.topology.sources)

    def reloaded(self, capacity: float) -> Case:
        """The same under a load that suits what it can do, in tuples a second of each source."""
        rng = np.random.default_rng([self.seed, self.number, 1])
        trace = self.kind.rpartition(" ")[2]
        load = random_load(rng, trace, capacity, self.trace)
        return replace(self, scenario=replace(self.scenario, loads=(load,)))


def draw(number: int, seed: int, trace: TraceSettings, attempt: int = 0) -> Case:
    """A case without a load: chains and graphs in turn, kinds of load in turn."""
    rng = np.random.default_rng([seed, number, 2, attempt])
    shape = "chain" if number % 2 else "graph"
    make = random_chain if shape == "chain" else random_graph
    profile = with_readers(replace(make(rng, _settings(rng)), unit="us"))
    flow = flow_of(profile)
    several = {r.name: r.replicable for r in Topology.of(flow).working}
    troubles = random_troubles(rng, profile, several, trace)
    cores = int(rng.choice([4, 6, 8, 12, 16, 24, 32]))
    share = float(rng.choice([1.0, 0.9, 0.8]))
    scenario = Scenario(
        drifts=troubles.drifts,
        stragglers=troubles.stragglers,
        skew=dict(troubles.skew),
        noise=troubles.noise,
        noise_s=NOISE_S,
        switch=LOCAL_SWITCH if rng.random() < 0.5 else JOKER_SWITCH,
        queue_tuples=QUEUE_TUPLES,
        step_s=STEP_S,
    )
    kind = f"{shape} under {TRACES[(number // 2) % len(TRACES)]}"
    machine = replace(Machine.of_cores(cores), parallel_share=share)
    return Case(number, seed, kind, profile, machine, scenario, trace)


def with_readers(profile: Profile) -> Profile:
    """A thread that reads in front of each first operator: queues are between threads."""
    first = [o.name for o in profile.operators if not profile.into(o.name)]
    readers = [OperatorProfile(f"read-{n}", READ_US, 1.0, StateKind.STATEFUL) for n in first]
    streams = [StreamProfile(f"read-{n}", n, 1.0) for n in first]
    return replace(
        profile,
        operators=(*readers, *profile.operators),
        streams=(*streams, *profile.streams),
    )


def _settings(rng: Generator) -> ChainSettings:
    """Flows in which replicas often help: fewer stateful operators than in Table 1."""
    overhead = float(rng.choice([0.0, 0.2, 1.0]))
    stateless = float(rng.uniform(0.4, 0.7))
    return ChainSettings(
        operators=int(rng.integers(3, 11)),
        cost_mean=COST_US,
        cost_stddev=COST_US / 2,
        stateless=stateless,
        partitioned=float(rng.uniform(0.5, 1.0)) * (1 - stateless),
        thread_switch=overhead * COST_US / 200,
        replication=overhead * COST_US / 4,
    )
