"""Joker's organic adaptation: resolve bottlenecks by pipelines and replicas, keep what helps.

Kahveci and Gedik, Joker: Elastic stream processing with organic adaptation, §4.1 to 4.5, algorithms
1 to 7. Every region with a bottleneck pipeline is changed, all of them in one step; whether that
helped is judged by the throughput of the changed regions nearest to the sources. What does not help
is reverted and blacklisted until the load changes. It only ever adds threads.

Readings and deviations:
- A split is tried if its utility *minus one* reaches the threshold: a utility is a ratio, and as
  printed algorithm 3 would accept every split.
- Algorithm 7 sets a pipeline's metrics only when its load has changed, so that a slow drift adds
  up; a trial is judged against what was seen right before it.
- Throughput counts all tuples of the window, each period the same. The paper averages
  exponentially over 30 s; a window here is a third as long by default (`pace`).
- Stateless and shared regions are replicated, too, since order is restored behind them; the paper
  replicates regions with partitioned state alone (`stateless=False`).
- Sources keep their readers, sinks are not looked at.
- Where larger steps (§4.5) are not possible or did not help, smaller ones are tried.
- After three periods with nothing to do it is done, until the load of a pipeline changes.
- What a guard refuses, or an engine fails to apply, is blacklisted like what does not help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from anabranch.adapt.guards import OfferedLoad, threads
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import Region, RegionKind

# What Joker does to one region: split bottleneck pipelines, or add replicas (algorithms 2 to 4).
#
# All functions are pure: from what was seen of a region to the change that should resolve it.

Pipeline = tuple[str, ...]
Shape = tuple[tuple[Pipeline, ...], int]
"""Pipelines and replicas of a region: what Joker calls its configuration."""


class Actions(Enum):
    """Which changes are tried, and in which order (figure 5)."""

    FUSION_FIRST = "fusion first"
    FISSION_FIRST = "fission first"
    FUSION_ONLY = "fusion only"
    FISSION_ONLY = "fission only"


@dataclass(frozen=True)
class RegionChange:
    """What is to be done to a region.

    Attributes:
        region: How it is to run.
        tried: For each bottleneck pipeline, what is blacklisted for it if the change does not help.
        why: What was seen, and what is promised.
    """

    region: RegionPlan
    tried: tuple[tuple[Pipeline, Shape], ...]
    why: str


@dataclass(frozen=True)
class Bottleneck:
    """A region with busy pipelines, and what may be done about it.

    Attributes:
        region: The region.
        seen: What was seen of it.
        plan: The plan to change; other regions may have changed in it already.
        pipelines: Its bottleneck pipelines.
        why: What was seen, in words.
        refused: Whether a shape is blacklisted for a pipeline.
    """

    region: Region
    seen: History
    plan: Plan
    pipelines: tuple[Pipeline, ...]
    why: str
    refused: Callable[[Pipeline, Shape], bool]

    @property
    def now(self) -> RegionPlan:
        """How the region runs."""
        return self.plan.region(self.region.name)

    @property
    def spare_threads(self) -> int:
        """How many more threads there may be."""
        return self.seen.limits.threads - threads(self.plan)


def busy_pipelines(seen: History, region: str, threshold: float) -> dict[Pipeline, float]:
    """Pipelines whose threads are busier than a threshold, with their busy shares."""
    runs = seen.plan.region(region).pipelines
    return {
        run: busy for run, busy in zip(runs, seen.busy(region), strict=True) if busy > threshold
    }


# Splitting


def cost_shares(seen: History, region: str, pipeline: Pipeline) -> tuple[tuple[float, ...], float]:
    """Parts of a pipeline's working time that each of its steps takes, and the overhead's part.

    Work counts, not time: a thread that waits now and then has the same shares as a full one.
    """
    planned = seen.plan.region(region)
    overhead = seen.overhead(region)[planned.pipelines.index(pipeline)]
    thread_s = max(seen.seconds * planned.replicas, 1e-9)
    spent = [seen.steps[s].busy_s / thread_s if s in seen.steps else 0.0 for s in pipeline]
    whole = sum(spent) + overhead
    if whole <= 0:
        return (0.0,) * len(pipeline), 1.0
    return tuple(each / whole for each in spent), overhead / whole


def split_utility(costs: Sequence[float], overhead: float, cut: Sequence[int]) -> float:
    """How many times the throughput a split promises (§4.2): the dearest piece bounds it.

    Args:
        costs: Cost shares of the steps of a pipeline.
        overhead: Part of its time that is spent in no step; each piece has it again.
        cut: Numbers of the steps that the second and later pieces begin with.

    Example:
        >>> costs = (0.2, 0.1, 0.4)
        >>> [round(split_utility(costs, 0.3, [step]), 2) for step in (1, 2)]
        [1.25, 1.43]
    """
    pieces = pairwise((0, *cut, len(costs)))
    return 1 / max(overhead + max(sum(costs[start:end]) for start, end in pieces), 1e-9)


def best_cut(costs: Sequence[float], pieces: int) -> tuple[int, ...]:
    """Where to cut so that the dearest of at most so many pieces is cheapest; of equals the first.

    Of two pieces, these are the ones that differ least, as algorithm 3 has it.

    Example:
        >>> best_cut((0.2, 0.1, 0.4), pieces=2), best_cut((0.2, 0.1, 0.4), pieces=3)
        ((2,), (2,))
    """
    best = _cheapest(tuple(costs), min(2, len(costs)))
    for number in range(3, min(pieces, len(costs)) + 1):
        best = min(best, _cheapest(tuple(costs), number), key=lambda found: found[0])
    return best[1]


@lru_cache(maxsize=4096)
def _cheapest(costs: tuple[float, ...], pieces: int) -> tuple[float, tuple[int, ...]]:
    """What the dearest of so many pieces costs at least, and where to cut for that."""
    if pieces == 1:
        return round(sum(costs), 9), ()
    ways = []
    for cut in range(1, len(costs) - pieces + 2):
        dearest, behind = _cheapest(costs[cut:], pieces - 1)
        starts = (cut, *(cut + step for step in behind))
        ways.append((max(round(sum(costs[:cut]), 9), dearest), starts))
    return min(ways, key=lambda way: way[0])


def split(bottleneck: Bottleneck, threshold: float, pieces: int) -> RegionChange | None:
    """Cut every bottleneck pipeline (algorithm 3); None unless all cuts promise enough.

    Args:
        bottleneck: The region.
        threshold: What a split has to promise on top of what there is.
        pieces: Into how many pipelines one is cut at most.
    """
    now, spare = bottleneck.now, bottleneck.spare_threads
    cuts: dict[Pipeline, tuple[int, ...]] = {}
    tried, promised = [], []
    for pipeline in bottleneck.pipelines:
        most = min(pieces, 1 + spare // now.replicas)
        cut = next(_cuts(bottleneck, pipeline, threshold, most), None)
        if cut is None:
            return None
        cuts[pipeline] = cut
        spare -= len(cut) * now.replicas
        tried.append((pipeline, (_pieces(now.pipelines, {pipeline: cut}), now.replicas)))
        promised.append(split_utility(*_shares(bottleneck, pipeline), cut))
    at = " and ".join(run[step] for run, cut in cuts.items() for step in cut)
    return RegionChange(
        replace(now, pipelines=_pieces(now.pipelines, cuts)),
        tuple(tried),
        f"{bottleneck.why}, split at {at} promises {min(promised):.2f}×",
    )


def _cuts(
    bottleneck: Bottleneck, pipeline: Pipeline, threshold: float, most: int
) -> Iterator[tuple[int, ...]]:
    """Cuts that promise enough and are not blacklisted, those into most pieces first."""
    costs, overhead = _shares(bottleneck, pipeline)
    now = bottleneck.now
    for pieces in range(min(most, len(pipeline)), 1, -1):
        cut = best_cut(costs, pieces)
        shape = (_pieces(now.pipelines, {pipeline: cut}), now.replicas)
        enough = split_utility(costs, overhead, cut) - 1 >= threshold
        if enough and not bottleneck.refused(pipeline, shape):
            yield cut


def _shares(bottleneck: Bottleneck, pipeline: Pipeline) -> tuple[tuple[float, ...], float]:
    return cost_shares(bottleneck.seen, bottleneck.region.name, pipeline)


def _pieces(
    pipelines: Sequence[Pipeline], cuts: dict[Pipeline, tuple[int, ...]]
) -> tuple[Pipeline, ...]:
    """Pipelines after cuts of some of them."""
    return tuple(
        run[start:end]
        for run in pipelines
        for start, end in pairwise((0, *cuts.get(run, ()), len(run)))
    )


# Replicating


def expand(bottleneck: Bottleneck, step: int, stateless: bool) -> RegionChange | None:
    """Add replicas (algorithm 4); None where none may be added.

    Args:
        bottleneck: The region.
        step: How many at once; where so many are not possible or did not help, half of them.
        stateless: Whether regions without partitioned state may be replicated.
    """
    region, now = bottleneck.region, bottleneck.now
    if not region.replicable or not (stateless or region.kind is RegionKind.PARTITIONED):
        return None
    most = bottleneck.seen.most_replicas(region.name)
    room = min(most - now.replicas, bottleneck.spare_threads // len(now.pipelines))
    more = min(step, room)
    while more > 0:
        replicas = now.replicas + more
        shape = (now.pipelines, replicas)
        if not any(bottleneck.refused(pipeline, shape) for pipeline in bottleneck.pipelines):
            return RegionChange(
                bottleneck.plan.with_replicas(region.name, replicas).region(region.name),
                tuple((pipeline, shape) for pipeline in bottleneck.pipelines),
                f"{bottleneck.why}, {now.replicas} → {replicas} replicas promise "
                f"{replicas / now.replicas:.2f}× at most",
            )
        more //= 2
    return None


def with_region(plan: Plan, region: RegionPlan) -> Plan:
    """A plan in which one region runs so, exactly."""
    found = tuple(region if old.region == region.region else old for old in plan.regions)
    return replace(plan, regions=found)


PACE = Cadence(settle=3, periods=10, most=10)
"""Three seconds to settle, as Joker's runs need; then each decision looks at ten of its own."""


@dataclass(frozen=True)
class Organic:
    """Joker's policy.

    Attributes:
        actions: Which changes are tried, and in which order.
        busy: Busy share above which a pipeline is a bottleneck.
        utility: What a split has to promise: 0.2 for a fifth more.
        gain: Throughput that a change has to bring on top, or it is reverted.
        load_change: Part by which throughput or busy share has to differ for another load.
        pieces: Into how many pipelines one is split at most.
        step: How many replicas are added at once.
        stable: Periods without anything to do after which it is done.
        stateless: Whether regions without partitioned state are replicated.
        pace: How long it looks.

    Example:
        >>> Organic(actions=Actions.FISSION_FIRST, step=2).name
        'organic'
    """

    actions: Actions = Actions.FUSION_FIRST
    busy: float = 0.8
    utility: float = 0.2
    gain: float = 0.1
    load_change: float = 0.2
    pieces: int = 2
    step: int = 1
    stable: int = 3
    stateless: bool = True
    pace: Cadence = PACE
    name: str = "organic"

    def begin(self) -> Remembered:
        """Nothing is known."""
        return Remembered()

    def decide(self, memory: Remembered, seen: History) -> tuple[Remembered, Proposal | None]:
        """Algorithm 1, nothing under way: change all regions with bottlenecks."""
        memory = updated(cleared(memory, seen), seen, self.load_change)
        if memory.stable >= self.stable:
            return memory, None
        plan, changes = seen.plan, []
        for region in seen.topology.working:
            change = self._resolve(memory, seen, region, plan)
            if change is not None:
                plan = with_region(plan, change.region)
                changes.append(change)
        if not changes:
            return replace(memory, stable=memory.stable + 1), None
        attempt = Attempt(seen.plan, tuple(changes))
        return replace(memory, attempt=attempt, stable=0), Proposal(plan, _why(attempt))

    def judge(self, memory: Remembered, seen: History, trial: Trial) -> tuple[Remembered, Verdict]:
        """Algorithm 1, a change under way: keep it, or try something else where it did not help."""
        attempt = memory.attempt
        if attempt is None:
            return memory, Verdict(Outcome.KEPT, "nobody remembers why")
        nearest = seen.topology.nearest_to_sources(attempt.regions)
        gains = {name: _gain(trial.before, seen, name) for name in nearest}
        why = _gained(gains)
        stuck = next((name for name, gain in gains.items() if gain <= self.gain), None)
        if stuck is None:
            return finalized(memory, seen, attempt), Verdict(Outcome.KEPT, why)
        memory, again = self._again(memory, attempt, trial, stuck)
        return memory, Verdict(Outcome.REVERTED, why, again)

    def _again(
        self, memory: Remembered, attempt: Attempt, trial: Trial, stuck: str
    ) -> tuple[Remembered, Proposal | None]:
        """Another change for the region that is not resolved; None if there is none."""
        failed = [c for c in attempt.changes if c.region.region == stuck]
        others = tuple(c for c in attempt.changes if c.region.region != stuck)
        memory = blacklisted(replace(memory, attempt=None), failed)
        plan = with_region(trial.proposal.plan, attempt.base.region(stuck))
        region = trial.before.topology.region(stuck)
        change = self._resolve(memory, trial.before, region, plan)
        if change is None:
            return blacklisted(memory, others), None
        other = Attempt(attempt.base, (*others, change))
        proposal = Proposal(with_region(plan, change.region), _why(other))
        return replace(memory, attempt=other), proposal

    def _resolve(
        self, memory: Remembered, seen: History, region: Region, plan: Plan
    ) -> RegionChange | None:
        """Algorithm 2: a change for a region if it has a bottleneck."""
        busy = busy_pipelines(seen, region.name, self.busy)
        if not busy:
            return None
        bottleneck = Bottleneck(
            region,
            seen,
            plan,
            tuple(busy),
            f"region {region.name}: busy {max(busy.values()):.2f} > {self.busy:.2f}",
            lambda pipeline, shape: memory.refuses(region.name, pipeline, shape),
        )
        fusion = self.actions is not Actions.FISSION_ONLY
        fission = self.actions is not Actions.FUSION_ONLY
        cut = split(bottleneck, self.utility, self.pieces) if fusion else None
        if self.actions is not Actions.FISSION_FIRST and cut is not None:
            return cut
        return (expand(bottleneck, self.step, self.stateless) if fission else None) or cut


def _why(attempt: Attempt) -> str:
    return "; ".join(change.why for change in attempt.changes)


def _gain(before: History, now: History, region: str) -> float:
    was, has = region_rate(before, region), region_rate(now, region)
    if was <= 0:
        return float("inf") if has > 0 else 0.0
    return has / was - 1


def _gained(gains: dict[str, float]) -> str:
    """By how much throughput has grown, in words."""
    if len(gains) == 1:
        return f"gained {next(iter(gains.values())):.0%}".replace("%", " %")
    each = (f"{gain:.0%} at {name}".replace("%", " %") for name, gain in gains.items())
    return "gained " + ", ".join(each)


# What Joker's algorithm remembers: metrics of pipelines, blacklists, the change under way.
#
# Everything is a value: each function gives another memory and leaves the old one as it was.

PipelineOf = tuple[str, Pipeline]
"""A pipeline, with its region."""


@dataclass(frozen=True)
class Attempt:
    """A change of some regions that was proposed.

    Attributes:
        base: The plan before it.
        changes: What is done to each of these regions.
    """

    base: Plan
    changes: tuple[RegionChange, ...]

    @property
    def regions(self) -> frozenset[str]:
        """The adapting regions."""
        return frozenset(change.region.region for change in self.changes)


@dataclass(frozen=True)
class Remembered:
    """A memory.

    Attributes:
        metrics: By pipeline, rate of its region and its busy share when its load last changed.
        blacklist: By pipeline, shapes of its region that did not help it.
        attempt: What was proposed last, until it is judged.
        stable: Periods in a row in which there was nothing to do.
    """

    metrics: Mapping[PipelineOf, OfferedLoad] = field(default_factory=dict)
    blacklist: Mapping[PipelineOf, frozenset[Shape]] = field(default_factory=dict)
    attempt: Attempt | None = None
    stable: int = 0

    def refuses(self, region: str, pipeline: Pipeline, shape: Shape) -> bool:
        """Whether a shape did not help a pipeline before."""
        return shape in self.blacklist.get((region, pipeline), frozenset())


def region_rate(seen: History, region: str) -> float:
    """Tuples that a region took in per second: all of the window, each period the same."""
    first = seen.topology.region(region).steps[0]
    if first in seen.steps:
        return seen.steps[first].rows_in / max(seen.seconds, 1e-9)
    return seen.region_rate(region)


def readings(seen: History, regions: Iterable[str]) -> dict[PipelineOf, OfferedLoad]:
    """Throughput and busy share of all pipelines of some regions."""
    found = {}
    for name in regions:
        rate = region_rate(seen, name)
        runs = seen.plan.region(name).pipelines
        for run, busy in zip(runs, seen.busy(name), strict=True):
            found[name, run] = OfferedLoad(rate, busy)
    return found


def updated(memory: Remembered, seen: History, threshold: float) -> Remembered:
    """Algorithm 7: pipelines whose load has changed forget their blacklists."""
    now = readings(seen, [region.name for region in seen.topology.working])
    changed = {
        key
        for key, load in now.items()
        if key in memory.metrics and memory.metrics[key].differs(load, threshold)
    }
    old = {key: load for key, load in memory.metrics.items() if key not in changed}
    return replace(
        memory,
        metrics={key: old.get(key, load) for key, load in now.items()},
        blacklist={
            key: shapes
            for key, shapes in memory.blacklist.items()
            if key in now and key not in changed
        },
        stable=0 if changed else memory.stable,
    )


def blacklisted(memory: Remembered, changes: Iterable[RegionChange]) -> Remembered:
    """Algorithm 6: what did not help is not tried again."""
    known = dict(memory.blacklist)
    for change in changes:
        for pipeline, shape in change.tried:
            key = (change.region.region, pipeline)
            known[key] = known.get(key, frozenset()) | {shape}
    return replace(memory, blacklist=known)


def finalized(memory: Remembered, seen: History, attempt: Attempt) -> Remembered:
    """Algorithm 5: what helped stands; its pipelines have new metrics and clean blacklists."""
    adapted = {(c.region.region, pipeline) for c in attempt.changes for pipeline, _ in c.tried}
    return replace(
        memory,
        metrics={**memory.metrics, **readings(seen, attempt.regions)},
        blacklist={k: shapes for k, shapes in memory.blacklist.items() if k not in adapted},
        attempt=None,
    )


def cleared(memory: Remembered, seen: History) -> Remembered:
    """Forget a proposal that nobody judged.

    Where the plan is still the old one, a guard refused it or it could not be applied: then it is
    not to be proposed again. Where the plan is another one, somebody else has changed it.
    """
    attempt = memory.attempt
    if attempt is None:
        return memory
    refused = attempt.changes if attempt.base == seen.plan else ()
    return replace(blacklisted(memory, refused), attempt=None)
