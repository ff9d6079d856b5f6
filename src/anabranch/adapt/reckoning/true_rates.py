"""Work there is to do, from true rates: what a region would handle if it never waited (DS2 §3).

A true rate counts the time in which a thread worked and leaves out the time in which it waited, so
it does not change with the load. What has to be served, divided by it, is how many replicas' work
there is; the whole graph follows from the sources on, by measured selectivities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from anabranch.adapt.reckoning.measured import measured_profile
from anabranch.adapt.seen import Seen
from anabranch.graph import Role
from anabranch.planning.profile import Profile

ALL_WAITS = 0.1
"""A source to which less than this part of what it reads comes has all its rest waiting."""
UNKNOWN_RATE = 1e3
"""A source whose own work cannot be measured could read so many times what it does."""


@dataclass(frozen=True)
class Demand:
    """What the sources bring, and how much work it is.

    Attributes:
        rate_per_s: Tuples to be read per second, of all sources.
        greedy: Whether nothing but the run itself holds some source back.
        work: By region, replicas that would be at work all the time.
        rows_per_s: By region, tuples to be taken in per second.
    """

    rate_per_s: float
    greedy: bool
    work: Mapping[str, float]
    rows_per_s: Mapping[str, float]

    def true_rate(self, region: str) -> float:
        """Tuples that one replica of a region handles per second of work."""
        work = self.work[region]
        return self.rows_per_s[region] / work if work > 0 else inf


def demanded(seen: Seen) -> Demand | None:
    """What there is to do; None while too little has come through to tell."""
    profile = measured_profile(seen)
    if profile is None:
        return None
    greedy = False
    rows: dict[str, float] = {}
    for source in seen.topology.sources:
        offered = offered_per_s(seen, source.name)
        if offered is None:
            greedy, offered = True, _readable_per_s(seen, source.name, profile)
        rows[source.name] = offered
    rate = sum(rows.values())
    for producer, consumer in _downstream(seen):
        passed = rows[producer] * selectivity(seen, producer, consumer)
        rows[consumer] = rows.get(consumer, 0.0) + passed
    firsts = {r.region: rows[r.pipelines[0][0]] for r in seen.plan.regions}
    work = {name: per_s * useful_s(seen, name) for name, per_s in firsts.items()}
    return Demand(rate, greedy, work, firsts)


def offered_per_s(seen: Seen, source: str) -> float | None:
    """What comes to a source; None where nothing but the run holds it back.

    So it is where nobody knows what waits, and where nothing comes but much waits: what is left of
    a file has to be read as fast as possible, not as slowly as nothing comes.
    """
    told = [s for each in seen.window for s in each.sources if s.source == source]
    first, last = told[0].backlog_rows, told[-1].backlog_rows
    if first is None or last is None:
        return None
    passed = seen.now.at_s - seen.window[0].at_s
    if passed <= 0:
        return seen.source_rate(source)
    # What was read and what piled up in the same time, which begins after the first period.
    read = sum(each.rows for each in told[1:])
    offered = (read + last - first) / passed
    return None if last and offered < ALL_WAITS * read / passed else max(0.0, offered)


def useful_s(seen: Seen, region: str) -> float:
    """Seconds of work of a region's busiest pipeline, over all replicas, for one tuple in."""
    planned = seen.plan.region(region)
    spent = dict.fromkeys(planned.pipelines, 0.0)
    for each in seen.window:
        for pipeline in each.pipelines:
            if pipeline.region == region and pipeline.steps in spent:
                spent[pipeline.steps] += pipeline.busy_share * each.times.total_s
    rows = taken_in(seen, planned.pipelines[0][0])
    return max(spent.values()) * planned.replicas / rows if rows else 0.0


def selectivity(seen: Seen, producer: str, consumer: str) -> float:
    """Tuples on a stream per tuple into its producer.

    A producer's own counts are taken where they can be: what its consumer takes in meanwhile
    depends on the queue between them. Only where a producer has several ports, which it counts
    together, does the consumer tell.
    """
    step = seen.topology.flow.graph.steps[producer]
    if step.role is Role.SOURCE:
        return 1.0
    came = taken_in(seen, producer)
    if not came:
        return 0.0
    if len(step.body.out_ports) == 1:
        return seen.steps[producer].rows_out / came
    return taken_in(seen, consumer) / came


def taken_in(seen: Seen, step: str) -> float:
    """Tuples that a step took in."""
    metrics = seen.steps.get(step)
    return 0.0 if metrics is None else float(metrics.rows_in)


def _downstream(seen: Seen) -> list[tuple[str, str]]:
    """Streams, each behind all that lead to its producer."""
    order = [step for region in seen.topology.regions for step in region.steps]
    return sorted(seen.topology.streams, key=lambda stream: order.index(stream[0]))


def _readable_per_s(seen: Seen, source: str, profile: Profile) -> float:
    """What a source could read if nobody held it back: its own true rate."""
    cost_s = profile.by_name[source].cost * 1e-6
    if cost_s > 0:
        return seen.plan.source(source).replicas / cost_s
    return UNKNOWN_RATE * seen.source_rate(source)
