"""Stela: replicas for congested regions whose results reach the most sinks unhindered.

Xu, Peng, Gupta, Stela: enabling stream processing systems to scale-in and scale-out on-demand, IC2E
2016, as the stepwise profiling paper (§6.1.3) runs it: on a given machine, several attempts in a
round with projected rates between them, no scaling in, and nothing is ever taken back. A region's
effective throughput percentage (ETP) is the part of all sinks' throughput that comes to sinks which
can be reached from it without passing another congested region.

Deviations:
- A region is congested when more would come to it than it can handle. Storm had no back-pressure,
  so more did come; here the rate of the sources is projected through true rates (what a region
  handles per second of work), and no region is hindered by those behind it.
- A source that could always read more is taken to bring what it can read, and no more than twice
  what it reads now, while some region is saturated; else what it reads.
- Stela's sinks are the last operators; ours are steps of their own. A sink's throughput is what the
  regions that feed it handle, so that an aggregate that emits little is not worth little.
- A region whose ETP is 0 is not scaled: nothing of it would come to a sink.
- Attempts in a round are the paper's worker nodes, of two cores each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.adapt.estimates.headroom import one_more
from anabranch.adapt.estimates.measured import measured_profile, offered_per_s, useful_s
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind

CORES_PER_NODE = 2
MORE = 2.0
"""How many times what it reads a source is taken to bring, if nothing held it back."""
PACE = Cadence(settle=2, periods=3, most=10)


@dataclass(frozen=True)
class Projection:
    """Rates of all regions, as they would be without back-pressure.

    Attributes:
        coming: Tuples that would come into each region per second.
        handled: Tuples of them that it handles.
        congested: Regions to which more comes than they handle.
    """

    coming: Mapping[str, float]
    handled: Mapping[str, float]
    congested: frozenset[str]


def project(
    names: Sequence[str],
    streams: Sequence[RegionStream],
    offered: Mapping[str, float],
    able: Mapping[str, float],
    congestion: float = 1.0,
) -> Projection:
    """Follow the tuples from the sources on.

    Args:
        names: Regions, upstream first.
        streams: Between them.
        offered: Tuples a second, by source.
        able: Tuples a second that each region can handle; those left out handle any number.
        congestion: How many times as much as it can handle makes a region congested.

    Example:
        >>> streams = [
        ...     RegionStream("lines", "split", 1, 1.0),
        ...     RegionStream("split", "count", 9, 9.0),
        ... ]
        >>> found = project(
        ...     ["lines", "split", "count"],
        ...     streams,
        ...     {"lines": 100.0},
        ...     {"split": 80.0, "count": 900.0},
        ... )
        >>> found.handled["count"], sorted(found.congested)
        (720.0, ['split'])
    """
    coming: dict[str, float] = {}
    handled: dict[str, float] = {}
    for name in names:
        into = [s for s in streams if s.consumer == name]
        coming[name] = offered.get(name, 0.0) + sum(handled[s.producer] * s.gain for s in into)
        handled[name] = min(coming[name], able.get(name, coming[name]))
    over = frozenset(n for n in names if n in able and coming[n] > congestion * able[n])
    return Projection(coming, handled, over)


def effective_share(
    region: str, streams: Sequence[RegionStream], sinks: Mapping[str, float], found: Projection
) -> float:
    """The ETP of a region.

    Args:
        region: Which one.
        streams: Between regions.
        sinks: Throughput of each sink.
        found: Who is congested.
    """
    total = sum(sinks.values())
    reached, waiting = set[str](), [region]
    while waiting:
        name = waiting.pop()
        below = {s.consumer for s in streams if s.producer == name}
        fresh = below - found.congested - reached
        reached |= fresh
        waiting += fresh
    return sum(sinks[name] for name in reached & sinks.keys()) / total if total > 0 else 0.0


@dataclass(frozen=True)
class Stela:
    """Grows the congested regions that matter most; judges nothing and gives nothing back.

    Attributes:
        attempts: Replicas that a round may add; None for one for each two cores.
        congestion: How many times as much as it can handle makes a region congested.
        saturated: Busy share from which on a region may hold a source back.
        pace: How long it looks.

    Example:
        >>> Stela().name
        'stela'
    """

    attempts: int | None = None
    congestion: float = 1.1
    saturated: float = 0.8
    pace: Cadence = PACE
    name: str = "stela"

    def begin(self) -> None:
        """It remembers nothing."""

    def decide(self, memory: None, seen: History) -> tuple[None, Proposal | None]:
        """Several replicas at once, each where it promises most with those before in place."""
        streams, offered = region_streams(seen), self._offered(seen)
        able = _able(seen)
        plan, words = seen.plan, list[str]()
        for _ in range(self.attempts or max(1, seen.limits.cores // CORES_PER_NODE)):
            found = project(seen.topology.names, streams, offered, able, self.congestion)
            best = self._target(seen, plan, streams, found)
            if best is None:
                break
            name, share, plan = best
            replicas = plan.region(name).replicas
            words.append(
                f"region {name}: handles {able[name]:,.0f} tuples/s, more would come, "
                f"ETP {share:.2f}, {replicas - 1} → {replicas} replicas"
            )
            able = {**able, name: able[name] * replicas / (replicas - 1)}
        return None, Proposal(plan, "; ".join(words), trial=False) if words else None

    def judge(self, memory: None, seen: History, trial: Trial) -> tuple[None, Verdict]:
        """Whatever was done stays."""
        return None, Verdict(Outcome.KEPT)

    def _offered(self, seen: History) -> dict[str, float]:
        """Tuples a second that each source would give if nothing held it back."""
        full = any(max(seen.busy(r.region)) >= self.saturated for r in seen.plan.regions)
        profile = measured_profile(seen)
        found = {}
        for source in seen.plan.sources:
            known, read = offered_per_s(seen, source.source), seen.source_rate(source.source)
            if known is None:
                cost_s = profile.by_name[source.source].cost * 1e-6 if profile else 0.0
                able = source.replicas / cost_s if cost_s > 0 else read * MORE
                known = max(read, min(able, read * MORE)) if full else read
            found[source.source] = known
        return found

    def _target(
        self, seen: History, plan: Plan, streams: Sequence[RegionStream], found: Projection
    ) -> tuple[str, float, Plan] | None:
        """The congested region of the highest ETP that can grow, its ETP, and the grown plan."""
        sinks = {
            r.name: sum(found.handled[above] for above in seen.topology.upstream(r.name))
            for r in seen.topology.regions
            if r.kind is RegionKind.SINK
        }
        best: tuple[str, float, Plan] | None = None
        for region in seen.topology.working:
            if region.name in found.congested:
                share = effective_share(region.name, streams, sinks, found)
                grown = one_more(seen, plan, region.name)
                if grown is not None and share > (best[1] if best else 0.0):
                    best = region.name, share, grown
        return best


def _able(seen: History) -> dict[str, float]:
    """Tuples a second that each region can handle; none for those that cost nothing."""
    found = {}
    for region in seen.plan.regions:
        cost_s = useful_s(seen, region.region)
        if cost_s > 0:
            found[region.region] = region.replicas / cost_s
    return found


# Streams between regions as they were seen: who feeds whom, and how many tuples go there.


@dataclass(frozen=True)
class RegionStream:
    """A stream from one region into another.

    Attributes:
        producer: The region that it leaves; a source is one, too.
        consumer: The region that it enters.
        rows: Tuples that were on it in the window.
        gain: The same per tuple that came into its producer.
    """

    producer: str
    consumer: str
    rows: float
    gain: float


def taken_in(seen: History, region: str) -> int:
    """Tuples that came into a region in the window; into a source, those that it read."""
    found = seen.topology.region(region)
    if found.kind is RegionKind.SOURCE:
        return seen.rows_read(region)
    step = seen.steps.get(found.steps[0])
    return step.rows_in if step else 0


def region_streams(seen: History) -> tuple[RegionStream, ...]:
    """All streams between regions, those of the most upstream consumers first.

    A region that one other feeds tells how much came from there. Where several streams meet, each
    has the part that its producer's results are of the results of all those producers.
    """
    found = []
    for consumer in seen.topology.names:
        producers = seen.topology.upstream(consumer)
        made = {name: _given_out(seen, name) for name in producers}
        total = sum(made.values())
        for name in producers:
            part = made[name] / total if total else 1 / len(producers)
            rows = taken_in(seen, consumer) * part
            came = taken_in(seen, name)
            found.append(RegionStream(name, consumer, rows, rows / came if came else 0.0))
    return tuple(found)


def _given_out(seen: History, region: str) -> int:
    found = seen.topology.region(region)
    if found.kind is RegionKind.SOURCE:
        return taken_in(seen, region)
    step = seen.steps.get(found.steps[-1])
    return step.rows_out if step else 0
