"""A profile from what was seen: true costs of steps, measured while they worked.

Time that a step waits for tuples does not count, so its cost does not depend on the load (DS2 calls
the inverse its true rate). That it waits for something else takes a thread, and no core. Tuples of
the sources are counted together: the profile takes one in, whoever read it.
"""

from __future__ import annotations

from anabranch.adapt.seen import Seen
from anabranch.graph import Role, StateKind
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile
from anabranch.planning.regions import RegionKind

UNIT = "us"


def measured_profile(seen: Seen) -> Profile | None:
    """What steps cost and pass on; None while too little has come through to tell."""
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
                state = StateKind.STATELESS if region.replicable else StateKind.STATEFUL
                operators.append(OperatorProfile(name, cost, 1.0, state, rate=share))
                continue
            operators.append(_operator(seen, name))
    for ends in seen.topology.streams:
        streams.append(StreamProfile(*ends, _selectivity(seen, *ends)))
    if not any(o.held > 0 for o in operators):
        return None
    overheads = Overheads(_handover_us(seen))
    return Profile(tuple(operators), tuple(streams), overheads, UNIT, app=seen.plan.flow)


def _handover_us(seen: Seen) -> float:
    """What threads spend outside of steps, per tuple that they take or give."""
    spent = tuples = 0.0
    for region in seen.plan.regions:
        shares = seen.overhead(region.region)
        for pipeline, share in zip(region.pipelines, shares, strict=True):
            first, last = seen.steps.get(pipeline[0]), seen.steps.get(pipeline[-1])
            if first is not None and last is not None:
                spent += share * region.replicas * seen.seconds
                tuples += first.rows_in + last.rows_out
    return spent * 1e6 / tuples if tuples else 0.0


def _source_cost_us(seen: Seen, source: str, rows: int) -> float:
    """Reading is seen as a whole: what all sources took, by rows."""
    if not rows:
        return 0.0
    steps = seen.steps.get(source)
    if steps is not None and steps.rows_in:
        return steps.busy_s * 1e6 / steps.rows_in
    total = sum(s.rows for each in seen.window for s in each.sources)
    return sum(each.times.scan_s for each in seen.window) * 1e6 / total


def _operator(seen: Seen, name: str) -> OperatorProfile:
    step = seen.topology.flow.graph.steps[name]
    metrics = seen.steps.get(name)
    sink = step.role is Role.SINK
    state = StateKind.STATEFUL if sink else step.body.state
    key = () if sink or state is not StateKind.PARTITIONED else tuple(step.body.key)
    held = (metrics.cost_us or 0.0) if metrics else 0.0
    wait = metrics.waited_s * 1e6 / metrics.rows_in if metrics and metrics.rows_in else 0.0
    passed = 0.0 if sink or metrics is None else (metrics.selectivity or 0.0)
    keys = metrics.keys if metrics else None
    return OperatorProfile(
        name, max(0.0, held - wait), passed, state, key, keys=keys or None, wait=wait
    )


def _selectivity(seen: Seen, producer: str, consumer: str) -> float:
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


def _rows_into(seen: Seen, step: str) -> int:
    known = seen.steps.get(step)
    return seen.rows_read(step) if known is None else known.rows_in


def _rows_out_of(seen: Seen, step: str) -> int:
    known = seen.steps.get(step)
    return seen.rows_read(step) if known is None else known.rows_out
