"""What Joker does to one region: split bottleneck pipelines, or add replicas (algorithms 2 to 4).

All functions are pure: from what was seen of a region to the change that should resolve it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from anabranch.adapt.guards import threads
from anabranch.adapt.seen import Seen
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.planning.regions import Region, RegionKind

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
class Change:
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
    seen: Seen
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


def busy_pipelines(seen: Seen, region: str, threshold: float) -> dict[Pipeline, float]:
    """Pipelines whose threads are busier than a threshold, with their busy shares."""
    runs = seen.plan.region(region).pipelines
    return {
        run: busy for run, busy in zip(runs, seen.busy(region), strict=True) if busy > threshold
    }


# Splitting


def cost_shares(seen: Seen, region: str, pipeline: Pipeline) -> tuple[tuple[float, ...], float]:
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


def split(bottleneck: Bottleneck, threshold: float, pieces: int) -> Change | None:
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
    return Change(
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


def expand(bottleneck: Bottleneck, step: int, stateless: bool) -> Change | None:
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
            return Change(
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
