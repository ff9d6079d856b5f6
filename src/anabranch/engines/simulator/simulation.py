"""The simulation: a profile under a plan on a machine, in virtual time.

`Simulation` needs no flow: a profile and regions are enough. It advances in short steps, between
which costs, load and plan stay as they are; whatever happens at an exact moment (a load, a
drift, the end of a pause) ends a step. The same arguments give the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from anabranch.engines.simulator.costs import (
    RegionCosts,
    RegionSpec,
    drifted,
    region_costs,
    seconds_per_unit,
)
from anabranch.engines.simulator.intake import SimulatedSources
from anabranch.engines.simulator.network import Contention, Network, Waits
from anabranch.engines.simulator.region import IntakeState, SimulatedRegion
from anabranch.engines.simulator.scenario import COST, SELECTIVITY, Scenario, SwitchCost
from anabranch.engines.simulator.shares import Floats, fixed_shares, key_loads, useful
from anabranch.engines.simulator.totals import RunningTotals, Totals
from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import RegionChoice
from anabranch.planning.bucket_map import moved
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import check
from anabranch.planning.profile import Profile

DRIFT_S = 0.1
LOOK_S = 0.2
DONE = 1e-6
HAIR_S = 1e-9
"""Sums of steps may lack so much of a moment that was meant; what is due by then is due."""


class Simulation:
    """One run.

    Args:
        profile: The application.
        regions: How it runs.
        machine: Where it runs.
        scenario: What happens meanwhile.
        seed: Decides all that is left to chance.
        rows: Tuples of each source, after which it ends; None for no end.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain(
        ...     [OperatorProfile("parse", 2.0), OperatorProfile("count", 1.0)], unit="ms"
        ... )
        >>> plan = [RegionChoice((("parse",), ("count",)))]
        >>> simulation = Simulation(profile, plan, Machine.of_cores(2))
        >>> simulation.advance(10.0)
        >>> round(simulation.totals.operators["count"].rows_out)
        5000
    """

    def __init__(
        self,
        profile: Profile,
        regions: Sequence[RegionChoice | RegionSpec],
        machine: Machine,
        scenario: Scenario | None = None,
        seed: int = 0,
        rows: float | None = None,
    ) -> None:
        self.profile, self.machine = profile, machine
        self.scenario = scenario or Scenario()
        self._seed = seed
        self._unit_s = seconds_per_unit(profile, machine)
        self._now_profile = profile
        self._costs: dict[RegionChoice, RegionCosts] = {}  # as long as the profile is this one
        specs = self._checked(regions)
        readers = [o for o in profile.operators if not profile.into(o.name)]
        sources = [operator.name for operator in readers]
        self.scenario.require(profile.by_name, sources, [spec.name for spec in specs])
        self.intake = SimulatedSources(
            readers, {o.name: self.scenario.load(o.name) for o in readers}, rows
        )
        self.now_s = 0.0
        self.totals, self._counting = Totals(), RunningTotals()
        self._noise_model = NoiseModel(self.scenario, machine, seed)
        self._distances = Distances(machine)
        self.changing = Changing(self.scenario.switch)
        self.network = Network(
            profile, [self._run(s) for s in specs], Contention(machine), self.intake
        )
        self.waits = Waits(self.network, self.scenario.jumbo_tuples, seed)
        self._moments = self.scenario.moments()
        self._noise_at = self._drift_at = self._look_at = 0.0
        self._refresh()

    # Plans

    def _checked(self, regions: Sequence[RegionChoice | RegionSpec]) -> list[RegionSpec]:
        specs = [r if isinstance(r, RegionSpec) else RegionSpec(r.operators[0], r) for r in regions]
        check(self.profile, [spec.choice for spec in specs])
        for spec in specs:
            placement, replicas = spec.choice.placement, spec.choice.replicas
            sockets = self.machine.sockets
            if placement and len(placement) != replicas:
                raise PlanError(
                    Subject("region", spec.name),
                    f"{replicas} places",
                    str(list(placement)),
                    "one for each replica",
                )
            if any(not 0 <= place < sockets for place in placement):
                raise PlanError(
                    Subject("region", spec.name),
                    f"sockets from 0 to {sockets - 1}",
                    str(list(placement)),
                    f"use those of {self.machine.name}",
                )
        order = {operator.name: n for n, operator in enumerate(self.profile.operators)}
        return sorted(specs, key=lambda spec: order[spec.choice.operators[0]])

    def _run(self, spec: RegionSpec) -> SimulatedRegion:
        members = [self.profile.by_name[name] for name in spec.choice.operators]
        replicas = spec.choice.replicas
        shares = fixed_shares(members, replicas, spec.bucket_map, self.scenario.skew, self._seed)
        return SimulatedRegion(
            spec,
            shares,
            useful(members, replicas),
            self.scenario.queue_tuples,
            self.machine.sockets,
            reads=not self.profile.into(members[0].name),
            keys=key_loads(members, len(spec.bucket_map), self.scenario.skew, self._seed),
        )

    @property
    def specs(self) -> list[RegionSpec]:
        """The plan in force, region by region."""
        return [region.spec for region in self.network.regions]

    def switch(self, regions: Sequence[RegionChoice | RegionSpec]) -> None:
        """Change the plan, from the next step on; each region by itself."""
        specs = self._checked(regions)
        old = [(spec.name, spec.choice.operators) for spec in self.specs]
        new = [(spec.name, spec.choice.operators) for spec in specs]
        if old != new:
            raise PlanError(
                Subject("plan"), f"the regions {old}", str(new), "a run keeps its regions"
            )
        self.changing.begin(self.network.regions, specs)

    # Time

    def advance(self, seconds: float) -> None:
        """Let virtual time pass; less of it if the sources end and all is done."""
        until = self.now_s + seconds
        while self.now_s < until - HAIR_S and not self.ended:
            self._happen()
            self._step(min(until, self.now_s + self.scenario.step_s, self._next_event()))
        self._fold()

    def _step(self, until_s: float) -> None:
        seconds = until_s - self.now_s
        self.intake.offer(self.now_s, seconds)
        self.network.step(seconds)
        self.now_s = until_s
        for region in self.network.regions:
            self._counting.note(region)
        self.waits.note_step()
        if self.now_s >= self._look_at - HAIR_S:
            self.waits.look(self.now_s)
            self._look_at = self.now_s + LOOK_S

    @property
    def ended(self) -> bool:
        """Whether all sources have come to their end and nothing waits any more."""
        return self.intake.ended and self.network.waiting < DONE

    def _next_event(self) -> float:
        found = min(self._noise_model.next_change(self.now_s + HAIR_S), self.changing.next_event())
        if self._moments:
            found = min(found, self._moments[0])
        if self.scenario.noise:
            found = min(found, self._noise_at)
        return min(found, self._drift_at) if self._drifting() else found

    def _drifting(self) -> bool:
        now = self.now_s + HAIR_S
        return any(d.at_s <= now < d.at_s + d.over_s for d in self.scenario.drifts)

    def _happen(self) -> None:
        """Whatever is due at this moment."""
        now = self.now_s + HAIR_S
        stale = self._noise_model.next_change(self._refreshed_s + HAIR_S) <= now
        while self._moments and self._moments[0] <= now:
            self._moments.pop(0)
            stale = True
        if self.scenario.noise and self._noise_at <= now:
            self._noise_model.draw_noise()
            self._noise_at = self.now_s + self.scenario.noise_s
            stale = True
        if self._drifting() and self._drift_at <= now:
            self._drift_at = self.now_s + DRIFT_S
            stale = True
        for number, spec in self.changing.due(self.network.regions, now):
            self._fold()
            self._replace(number, spec)
            stale = True
        if stale:
            self._refresh()
        if stale or self.changing.busy:
            self.network.disturb()

    def _replace(self, number: int, spec: RegionSpec) -> None:
        """A region's change of plan is over."""
        old = self.network.regions[number]
        new = self._run(spec)
        self.network.regions[number] = new
        self._set_costs(number)
        new.take_over(old)
        self.waits.replaced(number, self.now_s)
        switch = self.scenario.switch
        if switch.dip_s > 0:
            self._noise_model.dip(spec.name, self.now_s + switch.dip_s)

    # Costs

    def _refresh(self) -> None:
        """Find what everything costs from now on."""
        self._fold()
        self._refreshed_s = self.now_s
        factors: dict[str, dict[str, float]] = {COST: {}, SELECTIVITY: {}}
        for drift in self.scenario.drifts:
            known = factors[drift.of]
            known[drift.operator] = known.get(drift.operator, 1.0) * drift.now(self.now_s + HAIR_S)
        if self.scenario.drifts:
            self._now_profile = drifted(self.profile, factors[COST], factors[SELECTIVITY])
            self._costs.clear()
        self.network.set_flows(self._now_profile)
        for number in range(len(self.network.regions)):
            self._set_costs(number)

    def _set_costs(self, number: int) -> None:
        region = self.network.regions[number]
        first = self.profile.by_name[region.spec.choice.operators[0]]
        links = self.network.into[number]
        producers = [(self.network.regions[link.producer], link.part) for link in links]
        fetch_s = self._distances.fetch_s(region, producers, first.tuple_bytes)
        choice = region.spec.choice
        costs = self._costs.get(choice)
        if costs is None:
            costs = region_costs(self._now_profile, choice, self._unit_s)
            self._costs[choice] = costs
        region.set_costs(costs, self._noise_model.slow(region, self.now_s + HAIR_S), fetch_s)
        network_s = self._distances.network_s(region, producers)
        self.waits.set_ways(number, network_s, self._now_profile.visits[first.name])

    def _fold(self) -> None:
        for region in self.network.regions:
            taken = self._counting.taken(region)
            self.totals.add(self._now_profile, region, taken, self._unit_s)


# Distance: what it takes to bring tuples from socket to socket and from node to node.
#
# BriskStream's fetch cost (eq. 2): a tuple that was made on another socket costs its consumer the
# latency between the two for every cache line. Replicas that are placed nowhere in particular count
# as spread evenly over the sockets. A network adds time on the way, which costs no processor.

Producers = Sequence[tuple[SimulatedRegion, float]]
"""Who makes the tuples of a region, each with its part of them."""


class Distances:
    """The distances of one machine."""

    def __init__(self, machine: Machine) -> None:
        within = range(machine.sockets)
        self._latency_s = np.array([[machine.latency(i, j) for j in within] for i in within]) * 1e-9
        nodes = np.array([machine.node_of(socket) for socket in within])
        apart = (nodes[:, None] != nodes[None, :]).astype(np.float64)
        self._network_s = apart * machine.network_us * 1e-6
        self._line_bytes = machine.cache_line_bytes

    def fetch_s(
        self, consumer: SimulatedRegion, producers: Producers, tuple_bytes: float
    ) -> Floats:
        """Time of each replica to fetch a tuple of so many bytes, on average over its origins."""
        lines = ceil(tuple_bytes / self._line_bytes)
        return lines * _between(self._latency_s, consumer, producers)

    def network_s(self, consumer: SimulatedRegion, producers: Producers) -> Floats:
        """Time that tuples for each replica are on the network, on average."""
        return _between(self._network_s, consumer, producers)


def _between(matrix: Floats, consumer: SimulatedRegion, producers: Producers) -> Floats:
    origins = np.zeros(len(matrix))
    for producer, part in producers:
        origins += part * (producer.shares @ producer.spread)
    found: Floats = consumer.spread @ (origins @ matrix)
    return found


# Changing the plan of a run, region by region, as the local engine does it.
#
# A region whose plan changes takes no more tuples in; its other threads finish what waits between
# its pipelines. Then it stands still for a while, and goes on under the new plan with what waits in
# front of it. Other regions go on meanwhile, as long as there is room.


@dataclass
class _Change:
    spec: RegionSpec
    pause_s: float
    until_s: float = inf


class Changing:
    """Changes under way.

    Args:
        cost: What a change costs.
    """

    def __init__(self, cost: SwitchCost) -> None:
        self._cost = cost
        self._under_way: dict[int, _Change] = {}
        self.pause_s = 0.0  # how long the regions of the last change stood still at most
        self.moved_buckets = 0
        self.done_s = 0.0  # when the last region went on

    @property
    def busy(self) -> bool:
        """Whether a change is under way."""
        return bool(self._under_way)

    def begin(self, regions: Sequence[SimulatedRegion], specs: Sequence[RegionSpec]) -> None:
        """Begin with the regions that a new plan concerns."""
        self.pause_s, self.moved_buckets = 0.0, 0
        for number, (region, spec) in enumerate(zip(regions, specs, strict=True)):
            if region.spec != spec:
                buckets = _moving(region.spec, spec)
                pause_s = self._cost.pause_s(buckets)
                self.moved_buckets += buckets
                self.pause_s = max(self.pause_s, pause_s)
                self._under_way[number] = _Change(spec, pause_s)
                region.gate = IntakeState.DRAINING

    def next_event(self) -> float:
        """When a pause ends."""
        return min((change.until_s for change in self._under_way.values()), default=inf)

    def due(
        self, regions: Sequence[SimulatedRegion], now_s: float
    ) -> Iterator[tuple[int, RegionSpec]]:
        """Regions that go on under their new plan now; those that are drained begin to pause."""
        for number, change in list(self._under_way.items()):
            region = regions[number]
            if region.gate is IntakeState.DRAINING and region.drained:
                region.gate = IntakeState.PAUSED
                change.until_s = now_s + change.pause_s
            if region.gate is IntakeState.PAUSED and change.until_s <= now_s:
                del self._under_way[number]
                self.done_s = now_s
                yield number, change.spec


def _moving(old: RegionSpec, new: RegionSpec) -> int:
    """Buckets that get another owner."""
    if len(old.bucket_map) != len(new.bucket_map):
        return 0
    return len(moved(old.bucket_map, new.bucket_map))


# Noise model: how slow each thread is by its place, by chance, and after a change of plan.


class NoiseModel:
    """What slows threads down.

    Threads that are placed nowhere in particular go about the sockets and see their mean speed.

    Args:
        scenario: What happens.
        machine: Where.
        seed: Decides the noise.
    """

    def __init__(self, scenario: Scenario, machine: Machine, seed: int) -> None:
        self._scenario, self._machine = scenario, machine
        self._chance = np.random.default_rng(seed)
        self._noise: dict[str, Floats] = {}
        self._dips: dict[str, float] = {}  # by region, until when it is slow after a change
        for straggler in scenario.stragglers:
            for what, number, count in (
                ("socket", straggler.socket, machine.sockets),
                ("node", straggler.node, machine.nodes),
            ):
                if number is not None and number >= count:
                    raise PlanError(
                        Subject("field", f"scenario.stragglers.{what}"),
                        f"a {what} of 0 to {count - 1}",
                        str(number),
                        f"name one that {machine.name} has",
                    )

    def draw_noise(self) -> None:
        """Service times change at random."""
        self._noise = {}

    def dip(self, region: str, until_s: float) -> None:
        """A region is slower for a while, since its plan has changed."""
        self._dips[region] = until_s

    def next_change(self, at_s: float) -> float:
        """When a region is itself again."""
        return min((until for until in self._dips.values() if until > at_s), default=np.inf)

    def slow(self, region: SimulatedRegion, at_s: float) -> Floats:
        """How many times longer each thread of a region needs."""
        sockets = self._sockets(at_s)
        mean = 1 / float((1 / sockets).mean())
        by_replica = sockets[region.places] if region.placed else np.full(region.shape[1], mean)
        for straggler in self._scenario.stragglers:
            if straggler.region == region.spec.name and straggler.at_work(at_s):
                by_replica = by_replica.copy()
                by_replica[straggler.replica :][:1] *= straggler.factor
        if self._dips.get(region.spec.name, 0.0) > at_s:
            by_replica = by_replica / (1 - self._scenario.switch.dip_share)
        return by_replica * self._noise_of(region)

    def _sockets(self, at_s: float) -> Floats:
        factors = np.ones(self._machine.sockets)
        nodes = np.array([self._machine.node_of(s) for s in range(self._machine.sockets)])
        for straggler in self._scenario.stragglers:
            if straggler.at_work(at_s):
                if straggler.socket is not None:
                    factors[straggler.socket] *= straggler.factor
                if straggler.node is not None:
                    factors[nodes == straggler.node] *= straggler.factor
        return factors

    def _noise_of(self, region: SimulatedRegion) -> Floats:
        """Factors whose mean is 1; as long as nothing is drawn anew, the same."""
        known = self._noise.get(region.spec.name)
        if known is None or known.shape != region.shape:
            spread = self._scenario.noise
            drawn = self._chance.standard_normal(region.shape) if spread else 0.0
            known = np.exp(np.broadcast_to(spread * drawn - spread**2 / 2, region.shape))
            self._noise[region.spec.name] = known
        return known
