"""The simulation: a profile under a plan on a machine, in virtual time.

`Simulation` needs no flow: a profile and regions are enough. It advances in short steps, between
which costs, load and plan stay as they are; whatever happens at an exact moment (a load, a
drift, the end of a pause) ends a step. The same arguments give the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.engines.simulator.changing import Changing
from anabranch.engines.simulator.contention import Contention
from anabranch.engines.simulator.costs import (
    RegionCosts,
    RegionSpec,
    drifted,
    region_costs,
    seconds_per_unit,
)
from anabranch.engines.simulator.distance import Distances
from anabranch.engines.simulator.intake import Intake
from anabranch.engines.simulator.latency import Waits
from anabranch.engines.simulator.network import Network
from anabranch.engines.simulator.region import RegionRun
from anabranch.engines.simulator.scenario import COST, SELECTIVITY, Scenario
from anabranch.engines.simulator.shares import fixed_shares, key_loads, useful
from anabranch.engines.simulator.totals import Counting, Totals
from anabranch.engines.simulator.weather import Weather
from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import RegionChoice
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
        self.intake = Intake(readers, {o.name: self.scenario.load(o.name) for o in readers}, rows)
        self.now_s = 0.0
        self.totals, self._counting = Totals(), Counting()
        self._weather = Weather(self.scenario, machine, seed)
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

    def _run(self, spec: RegionSpec) -> RegionRun:
        members = [self.profile.by_name[name] for name in spec.choice.operators]
        replicas = spec.choice.replicas
        shares = fixed_shares(members, replicas, spec.bucket_map, self.scenario.skew, self._seed)
        return RegionRun(
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
        found = min(self._weather.next_change(self.now_s + HAIR_S), self.changing.next_event())
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
        stale = self._weather.next_change(self._refreshed_s + HAIR_S) <= now
        while self._moments and self._moments[0] <= now:
            self._moments.pop(0)
            stale = True
        if self.scenario.noise and self._noise_at <= now:
            self._weather.draw_noise()
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
            self._weather.dip(spec.name, self.now_s + switch.dip_s)

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
        region.set_costs(costs, self._weather.slow(region, self.now_s + HAIR_S), fetch_s)
        network_s = self._distances.network_s(region, producers)
        self.waits.set_ways(number, network_s, self._now_profile.visits[first.name])

    def _fold(self) -> None:
        for region in self.network.regions:
            taken = self._counting.taken(region)
            self.totals.add(self._now_profile, region, taken, self._unit_s)
