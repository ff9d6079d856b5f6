"""Profiling: what each step of a flow costs and passes on, measured on its own data.

`profile_flow` rehearses every step by itself and gives a `Profile`, which planners, models and the
simulator take. Costs are microseconds per tuple that comes in (of a source: per tuple that it
reads), at the median over calls; what was warming up does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch.engines.measuring.clock import clock_ghz
from anabranch.engines.measuring.rehearsal import Sample, Stopwatch, rehearse
from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow
from anabranch.graph import Output, Role, StateKind
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile
from anabranch.planning.regions import regions

ROWS = 200_000
FEW_CALLS = 5
BATCH_ROWS = 16_384
UNEVEN = 1.5
"""A mean above the median by this factor is told."""
WARM_UP_SHARE = 0.2
"""Part of the calls, from the first on, that do not count: caches fill, state begins."""

_STATES = {
    StateKind.STATELESS: StateKind.STATELESS,
    StateKind.PARTITIONED: StateKind.PARTITIONED,
    StateKind.STATEFUL: StateKind.STATEFUL,
    StateKind.SHARED: StateKind.SHARED,
}


@dataclass(frozen=True)
class Measured:
    """A profile, and in words what it could not tell."""

    profile: Profile
    notes: tuple[str, ...] = ()


def profile_flow(flow: Flow, rows: int = ROWS, plan: Plan | None = None) -> Profile:
    """What each step of a flow costs, passes on and remembers.

    Args:
        flow: The application; its sinks are not written.
        rows: Read no more rows of each source than this.
        plan: Says how many rows a jumbo tuple has; 16384 when left out, as on the local engine.

    Example:
        >>> from anabranch.apps import word_count
        >>> profile = profile_flow(word_count.build(text="to be or not to be"))
        >>> [(o.name, o.state.value) for o in profile.operators][:2]
        [('lines', 'stateless'), ('split', 'stateless')]
        >>> profile.by_name["split"].selectivity
        6.0
    """
    return measure_flow(flow, rows, plan).profile


def measure_flow(
    flow: Flow, rows: int = ROWS, plan: Plan | None = None, watch: Stopwatch | None = None
) -> Measured:
    """The same, with what could not be measured."""
    if rows < 1:
        raise BuildError(
            Subject("argument", "rows"),
            "rows of 1 or more",
            str(rows),
            "give a sample to measure on",
        )
    sources = flow.names(Role.SOURCE)
    batch_rows = {n: plan.source(n).batch_rows if plan else BATCH_ROWS for n in sources}
    samples = rehearse(flow, rows, batch_rows, watch)
    read = sum(samples[name].rows_in for name in sources)
    if not read:
        raise BuildError(
            Subject("flow", flow.name),
            "sources with rows",
            "none",
            "give it data to be profiled on",
        )
    operators = tuple(_operator(flow, name, sample, read) for name, sample in samples.items())
    streams = _streams(flow, samples)
    moved = _with_traffic(operators, streams)
    profile = Profile(moved, streams, unit="us", ghz=clock_ghz(), app=flow.name)
    notes = [*_notes(samples.values()), *_uneven(samples), *_cut_short(samples, sources, rows)]
    return Measured(profile, tuple(notes))


def _uneven(samples: Mapping[str, Sample]) -> Iterator[str]:
    """Steps whose median hides much of their work, as where windows close now and then."""
    for name, sample in samples.items():
        counted = sample.calls[int(len(sample.calls) * WARM_UP_SHARE) :]
        rows = sum(tuples for tuples, _ in counted)
        mean = sum(spent for _, spent in counted) / rows / 1000 if rows else 0.0
        if mean > UNEVEN * costs_us(sample.calls)[0]:
            yield f"{name}: calls differ; {mean:.4g} µs at the mean, which may be the better cost"


def _cut_short(samples: Mapping[str, Sample], sources: Sequence[str], rows: int) -> Iterator[str]:
    if len(sources) > 1 and any(samples[name].rows_in >= rows for name in sources):
        yield "sources were cut short: their rates against each other are those of the sample"


def _operator(flow: Flow, name: str, sample: Sample, read: int) -> OperatorProfile:
    step = flow.graph.steps[name]
    body = step.body
    median, p99 = costs_us(sample.calls)
    keys, hottest = _keys(sample)
    is_source, is_sink = step.role is Role.SOURCE, step.role is Role.SINK
    return OperatorProfile(
        name,
        cost=median,
        selectivity=sum(sample.rows_out) / sample.rows_in if sample.rows_in else 0.0,
        state=_state(flow, name),
        key=() if is_source or is_sink else tuple(body.key),
        max_replicas=_most_replicas(flow, name, keys),
        tuple_bytes=sample.bytes_in / sample.rows_in if sample.rows_in else 0.0,
        rate=max(sample.rows_in, 1) / read if is_source else 1.0,
        cost_p99=p99,
        keys=keys,
        hottest_key_share=hottest,
    )


def costs_us(calls: Sequence[tuple[int, int]]) -> tuple[float, float | None]:
    """Microseconds per tuple over calls of (tuples, nanoseconds): at the median, at 99 of 100.

    Each call weighs as much as it has tuples, so that a short last one does not count for a whole.

    Example:
        >>> costs_us([(10, 90_000), (10, 10_000), (10, 20_000), (10, 30_000), (1, 99_000)])
        (2.0, 99.0)
    """
    counted = calls[int(len(calls) * WARM_UP_SHARE) :]
    if not counted:
        return 0.0, None
    each = np.array([spent / rows / 1000 for rows, spent in counted])
    order = np.argsort(each)
    weight = np.cumsum(np.array([rows for rows, _ in counted], dtype=np.float64)[order])
    median, p99 = (each[order][np.searchsorted(weight, s * weight[-1])] for s in (0.5, 0.99))
    return float(median), float(p99)


def _state(flow: Flow, name: str) -> StateKind:
    step = flow.graph.steps[name]
    if step.role is Role.SOURCE:
        region = next(r for r in regions(flow) if r.name == name)
        return StateKind.STATELESS if region.replicable else StateKind.STATEFUL
    if step.role is Role.SINK:
        return StateKind.STATEFUL
    return _STATES[step.body.state]


def _most_replicas(flow: Flow, name: str, keys: int | None) -> int | None:
    """Where the flow or its data bound replicas: parts of a source, buckets, distinct keys."""
    step = flow.graph.steps[name]
    if step.role is Role.SINK:
        return 1
    if step.role is Role.SOURCE:
        source = flow.sources()[name]
        parts = source.parts()
        if source.one_reader:
            return 1
        return None if all(source.extent(p).seekable for p in parts) else max(1, len(parts))
    if step.body.state is StateKind.PARTITIONED:
        return max(1, min(flow.buckets, keys or flow.buckets))
    if step.body.state is StateKind.SHARED:
        return int(step.body.own_buckets or flow.buckets)
    return None


def _keys(sample: Sample) -> tuple[int | None, float | None]:
    """Distinct keys, and the share of the most frequent one."""
    if not sample.keys:
        return None, None
    _, counts = np.unique(np.concatenate(sample.keys), return_counts=True)
    return len(counts), float(counts.max() / counts.sum())


def _streams(flow: Flow, samples: dict[str, Sample]) -> tuple[StreamProfile, ...]:
    """Tuples on every stream per tuple into its producer; several between two steps add up."""
    shares: dict[tuple[str, str], float] = {}
    for name, sample in samples.items():
        for port, rows in enumerate(sample.rows_out):
            for consumer, _ in flow.graph.consumers(Output(name, port)):
                share = rows / sample.rows_in if sample.rows_in else 0.0
                shares[name, consumer] = shares.get((name, consumer), 0.0) + share
    return tuple(StreamProfile(*ends, share) for ends, share in shares.items())


def _with_traffic(
    operators: Sequence[OperatorProfile], streams: Sequence[StreamProfile]
) -> tuple[OperatorProfile, ...]:
    """Operators that move at least what they read and what they write, once."""
    sizes = {operator.name: operator.tuple_bytes for operator in operators}
    written: dict[str, float] = dict.fromkeys(sizes, 0.0)
    for stream in streams:
        # A stream that several consumers read is written once; the widest of them tells its size.
        out = stream.selectivity * sizes[stream.consumer]
        written[stream.producer] = max(written[stream.producer], out)
    return tuple(replace(o, memory_bytes=o.tuple_bytes + written[o.name]) for o in operators)


def _notes(samples: Iterable[Sample]) -> Iterator[str]:
    yield "memory traffic is not read (no counters): tuples in and out stand for it"
    for sample in samples:
        if sample.note is not None:
            yield f"{sample.step}: {sample.note}"
        elif not sample.rows_in:
            yield f"{sample.step}: no tuple reached it, so its cost is not known; 0 stands for it"
        elif len(sample.calls) < FEW_CALLS:
            yield f"{sample.step}: {len(sample.calls)} call(s) only; more rows would tell more"
