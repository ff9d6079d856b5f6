"""A profile from observations: true costs of steps while they worked, and the work that is offered.

Time that a step waits for tuples does not count, so its cost does not depend on the load (DS2 calls
the inverse its true rate). That it waits for something else takes a thread, and no core. Tuples of
the sources are counted together: the profile takes one in, whoever read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from anabranch.adapt.history import History
from anabranch.graph import Role, StateKind
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile
from anabranch.planning.regions import Region, RegionKind, profiled_state

UNIT = "us"


def measured_profile(seen: History) -> Profile | None:
    """Return what steps cost and pass on; None while too little has come through."""
    read = {s.name: seen.rows_read(s.name) for s in seen.topology.sources}
    total = sum(read.values())
    if not total:
        return None
    operators, streams = [], []
    for region in seen.topology.regions:
        for name in region.steps:
            if region.kind is RegionKind.SOURCE:
                share = read[name] / total
                cost = _source_cost_us(seen, name, read[name])
                state = profiled_state(seen.topology.flow.graph.steps[name], region)
                operators.append(OperatorProfile(name, cost, 1.0, state, rate=share))
                continue
            operators.append(_operator(seen, name, region))
    for ends in seen.topology.streams:
        streams.append(StreamProfile(*ends, _selectivity(seen, *ends)))
    if not any(o.held > 0 for o in operators):
        return None
    overheads = Overheads(_handover_us(seen))
    return Profile(tuple(operators), tuple(streams), overheads, UNIT, app=seen.plan.flow)


def _handover_us(seen: History) -> float:
    """Return what threads spend outside of steps, per tuple that they take or give."""
    spent = tuples = 0.0
    for region in seen.plan.regions:
        shares = seen.overhead(region.region)
        for pipeline, share in zip(region.pipelines, shares, strict=True):
            first, last = seen.steps.get(pipeline[0]), seen.steps.get(pipeline[-1])
            if first is not None and last is not None:
                spent += share * region.replicas * seen.seconds
                tuples += first.rows_in + last.rows_out
    return spent * 1e6 / tuples if tuples else 0.0


def _source_cost_us(seen: History, source: str, rows: int) -> float:
    """Reading is seen as a whole: what all sources took, by rows."""
    if not rows:
        return 0.0
    steps = seen.steps.get(source)
    if steps is not None and steps.rows_in:
        return steps.busy_s * 1e6 / steps.rows_in
    total = sum(s.rows for each in seen.window for s in each.sources)
    return sum(each.times.scan_s for each in seen.window) * 1e6 / total


def _operator(seen: History, name: str, region: Region) -> OperatorProfile:
    step = seen.topology.flow.graph.steps[name]
    metrics = seen.steps.get(name)
    sink = step.role is Role.SINK
    state = profiled_state(step, region)
    key = () if sink or state is not StateKind.PARTITIONED else tuple(step.body.key)
    held = (metrics.cost_us or 0.0) if metrics else 0.0
    wait = metrics.waited_s * 1e6 / metrics.rows_in if metrics and metrics.rows_in else 0.0
    passed = 0.0 if sink or metrics is None else (metrics.selectivity or 0.0)
    keys = metrics.keys if metrics else None
    cost = max(0.0, held - wait)
    if seen.plan.region(region.name).replicas > 1:
        cost /= 1 + region.replicas_cost  # a profile has the cost of one replica
    return OperatorProfile(
        name,
        cost,
        passed,
        state,
        key,
        keys=keys or None,
        wait=wait,
        replicas_cost=region.replicas_cost,
    )


def _selectivity(seen: History, producer: str, consumer: str) -> float:
    """Tuples on a stream per tuple into its producer.

    A producer with one stream tells what it gave; what its consumer took in meanwhile depends on
    the queue between them. Where streams part, consumers tell how many came to them; where several
    meet there, each counts as much of that as its producer gave out over all its streams.
    """
    taken, rows = seen.steps.get(consumer), _rows_into(seen, producer)
    if taken is None or not rows:
        return 0.0
    if sum(1 for ends in seen.topology.streams if ends[0] == producer) == 1:
        return _rows_out_of(seen, producer) / rows
    given = {p: _rows_out_of(seen, p) for p, c in seen.topology.streams if c == consumer}
    share = given[producer] / (sum(given.values()) or 1.0)
    return share * taken.rows_in / rows


def _rows_into(seen: History, step: str) -> int:
    known = seen.steps.get(step)
    return seen.rows_read(step) if known is None else known.rows_in


def _rows_out_of(seen: History, step: str) -> int:
    known = seen.steps.get(step)
    return seen.rows_read(step) if known is None else known.rows_out


# Work there is to do, from true rates: what a region would handle if it never waited (DS2 §3).
#
# A true rate counts the time in which a thread worked and leaves out the time in which it waited,
# so it does not change with the load. What has to be served, divided by it, is how many replicas'
# work there is; the whole graph follows from the sources on, by measured selectivities.

ALL_WAITS = 0.1
"""A source to which less than this part of what it reads comes has all its rest waiting."""
UNKNOWN_RATE = 1e3
"""A source whose own work cannot be measured could read so many times what it does."""


@dataclass(frozen=True)
class OfferedWork:
    """Holds the rate that the sources bring, and the work that it makes.

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


def demanded(seen: History) -> OfferedWork | None:
    """Return the work that is offered; None while too little has come through."""
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
    return OfferedWork(rate, greedy, work, firsts)


def offered_per_s(seen: History, source: str) -> float | None:
    """Return the rate at which rows come to a source; None where only the run holds it back.

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


def useful_s(seen: History, region: str) -> float:
    """Seconds of work of a region's busiest pipeline, over all replicas, for one tuple in."""
    planned = seen.plan.region(region)
    spent = dict.fromkeys(planned.pipelines, 0.0)
    for each in seen.window:
        for pipeline in each.pipelines:
            if pipeline.region == region and pipeline.steps in spent:
                spent[pipeline.steps] += pipeline.busy_share * each.times.total_s
    rows = taken_in(seen, planned.pipelines[0][0])
    return max(spent.values()) * planned.replicas / rows if rows else 0.0


def selectivity(seen: History, producer: str, consumer: str) -> float:
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


def taken_in(seen: History, step: str) -> float:
    """Tuples that a step took in."""
    metrics = seen.steps.get(step)
    return 0.0 if metrics is None else float(metrics.rows_in)


def _downstream(seen: History) -> list[tuple[str, str]]:
    """Streams, each behind all that lead to its producer."""
    order = [step for region in seen.topology.regions for step in region.steps]
    return sorted(seen.topology.streams, key=lambda stream: order.index(stream[0]))


def _readable_per_s(seen: History, source: str, profile: Profile) -> float:
    """Return the rate that a source could read at if nothing held it back."""
    cost_s = profile.by_name[source].cost * 1e-6
    if cost_s > 0:
        return seen.plan.source(source).replicas / cost_s
    return UNKNOWN_RATE * seen.source_rate(source)
