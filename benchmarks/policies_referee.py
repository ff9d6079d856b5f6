"""The referee of policies: the best plan that a search in the simulator itself finds.

It knows what policies do not: true costs of the moment, loads of buckets, who straggles. It uses no
policy. What a plan can carry is found by a short simulation without noise in which sources read as
much as they can, less what noise takes from the best plan; the search climbs from several starts,
the model's plans among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from policies_cases import Case

from anabranch.engines.simulator.costs import RegionSpec, drifted
from anabranch.engines.simulator.flows import specs_of
from anabranch.engines.simulator.scenario import COST, SELECTIVITY, Drift, Scenario, Straggler
from anabranch.engines.simulator.shares import KEYS, zipf_weights
from anabranch.engines.simulator.simulation import Simulation
from anabranch.planning.answer import RegionChoice
from anabranch.planning.bucket_map import BucketMap, balanced
from anabranch.planning.flow_problem import FlowModel
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile
from anabranch.planning.regions import Region

NEAR = 0.95
"""A plan that serves this part of what the best plan serves is as good."""

STEP_S, SETTLE_STEPS, MOST_STEPS = 1.0, 3, 12
NOISE_SETTLES_S, NOISE_S = 10.0, 50.0
FEW_TUPLES = 1.0
PROMISES = (0.9, 1.0, 1.1, 1.3)

BEST, BY_LOAD, EVEN = "best", "load", "even"
MAPS = (BEST, BY_LOAD, EVEN)
"""Bucket maps that the referee may use: around stragglers as well, by load, as many to each."""

Cutting = tuple[int, ...]
Shape = tuple[tuple[Cutting, int], ...]
"""Of each region that works: lengths of its pipelines, and its replicas."""


@dataclass(frozen=True)
class Conditions:
    """What holds at one moment: operators that have drifted, and who straggles."""

    drifts: tuple[Drift, ...]
    stragglers: tuple[Straggler, ...]

    @staticmethod
    def at(scenario: Scenario, at_s: float) -> Conditions:
        drifts = tuple(
            replace(d, factor=d.now(at_s), at_s=0.0, over_s=0.0)
            for d in scenario.drifts
            if d.now(at_s) != 1.0
        )
        slow = (s for s in scenario.stragglers if s.at_work(at_s))
        return Conditions(drifts, tuple(replace(s, from_s=0.0, until_s=None) for s in slow))


class Referee:
    """What plans of one case can carry under some conditions, and which are best.

    Args:
        case: The case; its load does not matter.
        conditions: What holds.
        maps: Bucket maps that it may use.
    """

    def __init__(self, case: Case, conditions: Conditions, maps: str = BEST) -> None:
        self._map_kind = maps
        self._case, self._conditions = case, conditions
        self._regions = case.topology.working
        self._known: dict[Shape, float] = {}
        self._plans: dict[Plan, float] = {}
        self._cheapest: dict[float, int] = {}
        self._scenario = replace(
            case.scenario,
            loads=(),
            drifts=conditions.drifts,
            stragglers=conditions.stragglers,
            noise=0.0,
            queue_tuples=FEW_TUPLES,
            step_s=STEP_S,
        )
        self._weights = [self._loads_of_buckets(region) for region in self._regions]
        self._maps: dict[tuple[int, int], BucketMap] = {}
        self._ends = len(case.topology.regions) - len(self._regions)
        self._most = case.limits.threads - self._ends
        costs = {d.operator: d.factor for d in conditions.drifts if d.of == COST}
        given = {d.operator: d.factor for d in conditions.drifts if d.of == SELECTIVITY}
        self._profile = with_ends(case, drifted(case.profile, costs, given))
        self._model = FlowModel(case.flow, case.machine, case.profile.overheads)
        self._best_shape = self._search()
        self._kept = 1.0
        self._kept = self._with_noise(self._best_shape) / self._carried(self._best_shape)
        self.best = self._kept * self._carried(self._best_shape)

    # What plans can carry, in tuples a second of each source

    def capacity(self, plan: Plan) -> float:
        """What a plan can carry."""
        known = self._plans.get(plan)
        if known is None:
            specs = specs_of(self._case.flow, plan, self._case.profile, self._case.machine)
            known = self._plans[plan] = self._measured(specs)
        return self._kept * known

    @property
    def sequential(self) -> float:
        """What one thread per region can carry."""
        return self._kept * self._carried(self._sequential())

    def _measured(self, specs: Sequence[RegionSpec]) -> float:
        run = Simulation(
            self._case.profile, specs, self._case.machine, self._scenario, self._case.seed
        )
        run.advance(SETTLE_STEPS * STEP_S)
        before, steps = _read(run), 0
        rate = 0.0
        while steps < MOST_STEPS:
            run.advance(STEP_S)
            now, steps = _read(run), steps + 1
            if abs(now - before - rate) <= 1e-6 * rate:
                break
            rate, before = now - before, now
        return rate / STEP_S / self._case.sources

    def _with_noise(self, shape: Shape) -> float:
        """What a plan carries in the long run."""
        if not self._case.scenario.noise:
            return self._carried(shape)
        known = self._case.scenario
        noisy = replace(
            self._scenario, noise=known.noise, queue_tuples=known.queue_tuples, step_s=known.step_s
        )
        run = Simulation(
            self._case.profile, self._specs(shape), self._case.machine, noisy, self._case.seed
        )
        run.advance(NOISE_SETTLES_S)
        before = _read(run)
        run.advance(NOISE_S)
        return (_read(run) - before) / NOISE_S / self._case.sources

    def _carried(self, shape: Shape) -> float:
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = self._measured(self._specs(shape))
        return known

    def _specs(self, shape: Shape) -> list[RegionSpec]:
        found = []
        for number, (region, (cutting, replicas)) in enumerate(
            zip(self._regions, shape, strict=True)
        ):
            ends = np.cumsum((0, *cutting))
            runs = tuple(region.steps[a:b] for a, b in pairwise(ends))
            owners = self._owners(number, replicas) if region.mapped else ()
            found.append(RegionSpec(region.name, RegionChoice(runs, replicas), owners))
        return found

    # Buckets

    def _loads_of_buckets(self, region: Region) -> list[float]:
        if not region.mapped:
            return []
        skew = self._case.scenario.skew
        for name in region.steps:
            if name in skew:
                weights = zipf_weights(region.buckets, KEYS, skew[name], self._case.seed)
                return [float(weight) for weight in weights]
        return [1 / region.buckets] * region.buckets

    def _owners(self, number: int, replicas: int) -> BucketMap:
        known = self._maps.get((number, replicas))
        if known is None:
            known = balanced(self._regions[number].buckets, replicas)
            if self._map_kind != EVEN:
                known = dealt_out(self._weights[number], self._speeds(number, replicas))
            self._maps[number, replicas] = known
        return known

    def _speeds(self, number: int, replicas: int) -> list[float]:
        """How fast each replica is, as far as the referee may look at that."""
        speeds = [1.0] * replicas
        for slow in self._conditions.stragglers if self._map_kind == BEST else ():
            if slow.region == self._regions[number].name and (slow.replica or 0) < replicas:
                speeds[slow.replica or 0] /= slow.factor
        return speeds

    # Search

    def _search(self) -> Shape:
        """The plan that carries most."""
        starts = [self._sequential(), *self._promised((None,))]
        found = [self._climbed(start) for start in dict.fromkeys(starts)]
        return max(found, key=lambda shape: (self._carried(shape), -_threads(shape)))

    def _climbed(self, shape: Shape) -> Shape:
        """Go to the best neighbour until none is better."""
        while True:
            here = self._carried(shape)
            wider = [s for s in self._neighbours(shape) if self._carried(s) > here * 1.001]
            if not wider:
                return shape
            shape = max(wider, key=lambda s: (self._carried(s), -_threads(s)))

    def cheapest(self, load: float) -> int:
        """The fewest threads that serve a load, or what the best plan serves of it, within 5 %."""
        level = min(load, self.best)
        if level not in self._cheapest:
            need = NEAR * level / self._kept
            total = level * self._case.sources
            starts = [self._best_shape, *self._promised([total * part for part in PROMISES])]
            good = [s for s in starts if self._carried(s) >= need]
            good += [s for s, carried in self._known.items() if carried >= need]
            good.sort(key=_threads)
            found = [self._narrowed(start, need) for start in good[:4]]
            self._cheapest[level] = min(map(_threads, found)) + self._ends
        return self._cheapest[level]

    def _narrowed(self, shape: Shape, need: float) -> Shape:
        """Take threads away as long as it carries enough."""
        while True:
            fewer = sorted(
                (s for s in self._neighbours(shape) if _threads(s) < _threads(shape)), key=_threads
            )
            narrower = next((s for s in fewer if self._carried(s) >= need), None)
            if narrower is None:
                return shape
            shape = narrower

    def _sequential(self) -> Shape:
        return tuple(((len(region.steps),), 1) for region in self._regions)

    def _promised(self, rates: Sequence[float | None]) -> Iterator[Shape]:
        """What the model finds for rates, as it would with true costs."""
        start = Plan.sequential(self._case.flow)
        for rate in rates:
            plan = self._model.best(self._profile, start, rate)
            planned = (plan.region(region.name) for region in self._regions)
            yield tuple((tuple(map(len, p.pipelines)), p.replicas) for p in planned)

    def _neighbours(self, shape: Shape) -> Iterator[Shape]:
        for number, (region, (cutting, replicas)) in enumerate(
            zip(self._regions, shape, strict=True)
        ):
            for other in _other_ways(region, cutting, replicas):
                found = (*shape[:number], other, *shape[number + 1 :])
                if other[1] <= self._case.limits.replicas and _threads(found) <= self._most:
                    yield found


def dealt_out(weights: Sequence[float], speeds: Sequence[float]) -> BucketMap:
    """Heaviest bucket first, to whoever is done first with it."""
    held, owners = [0.0] * len(speeds), [0] * len(weights)
    for bucket in sorted(range(len(weights)), key=lambda b: -weights[b]):
        weight = weights[bucket]
        owner = min(range(len(speeds)), key=lambda r: (held[r] + weight) / speeds[r])
        held[owner] += weight
        owners[bucket] = owner
    return tuple(owners)


def _other_ways(region: Region, cutting: Cutting, replicas: int) -> Iterator[tuple[Cutting, int]]:
    """One region with other replicas, or with one cut more or less."""
    most = region.buckets if region.mapped else 1 << 30
    if region.replicable:
        for count in dict.fromkeys((replicas - 1, replicas + 1, replicas // 2, replicas * 2)):
            if 1 <= count <= most and count != replicas:
                yield cutting, count
    cuts = set(np.cumsum(cutting).tolist()) - {len(region.steps)}
    for place in range(1, len(region.steps)):
        ends = sorted((cuts ^ {place}) | {0, len(region.steps)})
        yield tuple(b - a for a, b in pairwise(ends)), replicas


def _threads(shape: Shape) -> int:
    return sum(len(cutting) * replicas for cutting, replicas in shape)


def _read(run: Simulation) -> float:
    return sum(source.read for source in run.intake.sources.values())


def with_ends(case: Case, profile: Profile) -> Profile:
    """A profile with the flow's sources and sinks, which cost nothing, as models want it."""
    graph = case.topology
    read = 1 / case.sources
    operators = [OperatorProfile(s.name, 0.0, 1.0, rate=read) for s in graph.sources]
    ends = {o.name for o in operators} | set(profile.by_name)
    operators += profile.operators
    steps = [name for region in graph.regions for name in region.steps]
    operators += [OperatorProfile(name, 0.0, 0.0) for name in steps if name not in ends]
    known = {(s.producer, s.consumer): s.selectivity for s in profile.streams}
    streams = []
    for producer, consumer in graph.streams:
        given = known.get((producer, consumer))
        if given is None:
            given = profile.by_name[producer].selectivity if producer in profile.by_name else 1.0
        streams.append(StreamProfile(producer, consumer, given))
    return replace(profile, operators=tuple(operators), streams=tuple(streams))
