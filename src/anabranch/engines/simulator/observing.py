"""Observing: every virtual second, what a real engine would tell of the run.

Values mean what they mean in the local engine: busy shares are processor time of the second,
latencies count from reading. Steps that the profile does not name cost nothing: a
source reads what its consumer takes, a sink takes what its producer gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.engines.simulator.shares import Floats
from anabranch.engines.simulator.simulation import Simulation
from anabranch.engines.simulator.totals import Key, OperatorTotals, PipelineTotals, whole
from anabranch.events import (
    BatchTimes,
    HotKey,
    Observation,
    PipelineMetrics,
    RegionMetrics,
    SourceMetrics,
    StepMetrics,
)
from anabranch.planning.profile import OperatorProfile
from anabranch.runtime.bucket_loads import LEAST_SHARE

SAMPLE_S = 0.05
PERIOD_S = 1.0

Pipelines = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Watched:
    """A region as observations show it: its name, its steps by pipeline, its replicas."""

    region: str
    pipelines: Pipelines
    replicas: int


@dataclass(frozen=True)
class Names:
    """What an application calls things that the profile does not name.

    Attributes:
        sources: For each source, the operator that reads or takes what it reads.
        sinks: For each sink that the profile does not name, the operator that it takes from.
    """

    sources: Mapping[str, str]
    sinks: Mapping[str, str] = field(default_factory=dict)


class Observer:
    """Turns totals into observations.

    Args:
        simulation: The run.
        names: What things are called.
    """

    def __init__(self, simulation: Simulation, names: Names) -> None:
        self._run, self._names = simulation, names
        self._before: dict[str, OperatorTotals] = {}
        self._threads: dict[Key, PipelineTotals] = {}
        self._queues: dict[str, list[float]] = {}
        self._written = 0
        self.number = 0
        self.looked_s = 0.0

    def sample(self) -> None:
        """Note how long the queues are."""
        for region in self._run.network.regions:
            self._queues.setdefault(region.spec.name, []).append(float(region.queue[0].sum()))

    def look(self, regions: Sequence[Watched]) -> Observation:
        """What happened since the last look, in the regions of the plan."""
        now_s = self._run.now_s
        elapsed_s = max(now_s - self.looked_s, 1e-9)
        self.looked_s = now_s
        steps, done = self._steps(), self._look_at_threads(regions)
        sources = tuple(self._source(name, elapsed_s, steps, done) for name in self._names.sources)
        p50, p99, p999 = self._run.waits.latencies.look((0.5, 0.99, 0.999))
        found = Observation(
            now_s,
            self.number,
            sum(source.rows for source in sources),
            self._rows_out(),
            self._times(elapsed_s, steps),
            p50,
            p99,
            tuple(steps[s] for r in regions for p in r.pipelines for s in p),
            self._pipelines(regions, done, elapsed_s),
            tuple(self._region(region, done, steps, elapsed_s) for region in regions),
            sources,
            p999,
        )
        self.number += 1
        return found

    def rows(self) -> tuple[int, int]:
        """Tuples read and written so far."""
        read = sum(whole(source.read) for source in self._run.intake.sources.values())
        totals, profile = self._run.totals.operators, self._run.profile
        last = [profile.by_name[name] for name in self._last_operators()]
        return read, sum(whole(_written(each, totals[each.name])) for each in last)

    def _last_operators(self) -> list[str]:
        profile = self._run.profile
        return [o.name for o in profile.operators if not profile.out_of(o.name)]

    def _rows_out(self) -> int:
        """Tuples written since the last look."""
        before, self._written = self._written, self.rows()[1]
        return self._written - before

    def _steps(self) -> dict[str, StepMetrics]:
        found = {}
        for operator in self._run.profile.operators:
            now = self._run.totals.operators[operator.name]
            then = self._before.get(operator.name, OperatorTotals())
            self._before[operator.name] = OperatorTotals(now.rows_in, now.rows_out, now.busy_s)
            found[operator.name] = StepMetrics(
                operator.name,
                whole(now.rows_in) - whole(then.rows_in),
                whole(now.rows_out) - whole(then.rows_out),
                now.busy_s - then.busy_s,
                operator.keys,
            )
        for sink, producer in self._names.sinks.items():
            given = found[producer]
            emits = self._run.profile.by_name[producer].selectivity > 0
            rows = given.rows_out if emits else given.rows_in
            found[sink] = StepMetrics(sink, rows, rows, 0.0)
        return found

    def _source(
        self,
        name: str,
        elapsed_s: float,
        steps: dict[str, StepMetrics],
        done: Mapping[Key, PipelineTotals],
    ) -> SourceMetrics:
        operator = self._names.sources[name]
        rows, source = steps[operator].rows_in, self._run.intake.sources[operator]
        backlog = None if source.greedy else whole(source.backlog)
        readers, spent = self._readers().get(name), done.get((name, (name,)))
        busy = None
        if readers is not None and spent is not None:
            busy = min(1.0, spent.busy_s / (elapsed_s * readers))
        return SourceMetrics(name, rows, rows / elapsed_s, backlog, busy_share=busy)

    def _readers(self) -> dict[str, int]:
        """How many there are of each source that has threads of its own."""
        specs = [run.spec for run in self._run.network.regions]
        return {
            spec.name: spec.choice.replicas
            for spec in specs
            if spec.name in self._names.sources and spec.choice.pipelines == ((spec.name,),)
        }

    def _look_at_threads(self, regions: Sequence[Watched]) -> dict[Key, PipelineTotals]:
        """What each pipeline has done since the last look, and each source's readers."""
        found = {}
        keys = [(region.region, pipeline) for region in regions for pipeline in region.pipelines]
        for key in dict.fromkeys([*keys, *((name, (name,)) for name in self._readers())]):
            now = self._run.totals.pipelines[key]
            then = self._threads.get(key, PipelineTotals())
            self._threads[key] = replace(now)
            found[key] = PipelineTotals(
                now.busy_s - then.busy_s,
                now.overhead_s - then.overhead_s,
                _since(now.by_replica_s, then.by_replica_s),
            )
        return found

    def _pipelines(
        self, regions: Sequence[Watched], done: Mapping[Key, PipelineTotals], elapsed_s: float
    ) -> tuple[PipelineMetrics, ...]:
        found = []
        for region in regions:
            for pipeline in region.pipelines:
                spent, whole_s = done[region.region, pipeline], elapsed_s * region.replicas
                busy = min(1.0, spent.busy_s / whole_s)
                overhead = min(busy, spent.overhead_s / whole_s)
                found.append(PipelineMetrics(region.region, pipeline, busy, overhead))
        return tuple(found)

    def _region(
        self,
        region: Watched,
        done: Mapping[Key, PipelineTotals],
        steps: dict[str, StepMetrics],
        elapsed_s: float,
    ) -> RegionMetrics:
        lengths = self._queues.pop(region.region, None) or [0.0]
        waiting = sum(lengths) / len(lengths)
        rows = steps[region.pipelines[0][0]].rows_in
        threads = [done[region.region, pipeline].by_replica_s for pipeline in region.pipelines]
        bucket_rows, hottest_key = self._loads(region, rows)
        return RegionMetrics(
            region.region,
            region.replicas,
            rows / elapsed_s,
            queue_jumbos=waiting / self._run.scenario.jumbo_tuples,
            queue_rows=waiting,
            replica_busy=_busiest(threads, region.replicas, elapsed_s),
            bucket_rows=bucket_rows,
            hottest_key=hottest_key,
        )

    def _loads(self, region: Watched, rows: int) -> tuple[tuple[int, ...], HotKey | None]:
        """Tuples by bucket and the hottest key, as engines know them that deal out by bucket."""
        known = {run.spec.name: run.keys for run in self._run.network.regions}
        keys = known.get(region.region)
        if keys is None or region.replicas == 1 or not rows:
            return (), None
        buckets = np.rint(rows * keys.buckets).astype(np.int64)
        share = keys.hottest or 0.0
        return tuple(buckets.tolist()), HotKey("key 0", share) if share >= LEAST_SHARE else None

    def _times(self, elapsed_s: float, steps: dict[str, StepMetrics]) -> BatchTimes:
        readers = {name for name in self._names.sources if name in steps}
        scan_s = sum(steps[name].busy_s for name in readers)
        rest_s = sum(step.busy_s for name, step in steps.items() if name not in readers)
        return BatchTimes(elapsed_s, 0.0, scan_s, 0.0, rest_s, 0.0, 0.0)


def _since(now: Floats, then: Floats) -> Floats:
    """What was added to sums that begin anew with another number of replicas."""
    same = now.shape == then.shape and bool((now >= then).all())
    return now - then if same else now


def _busiest(threads: Sequence[Floats], replicas: int, elapsed_s: float) -> tuple[float, ...]:
    """Busy share of each replica, in its busiest thread."""
    known = [spent for spent in threads if len(spent) == replicas]
    most = np.max(known, axis=0) if known else np.zeros(replicas)
    return tuple(np.minimum(1.0, most / elapsed_s).tolist())


def _written(operator: OperatorProfile, totals: OperatorTotals) -> float:
    """What a last operator writes: what comes out of it; of a sink, what comes in."""
    return totals.rows_out if operator.selectivity > 0 else totals.rows_in


def observations(
    simulation: Simulation,
    observer: Observer,
    regions: Sequence[Watched],
    seconds: float,
    period_s: float = PERIOD_S,
) -> Iterator[Observation]:
    """Let virtual time pass under one plan, and look every period; ends early with the stream."""
    until = simulation.now_s + seconds
    while simulation.now_s < until - 1e-9 and not simulation.ended:
        look_s = min(until, observer.looked_s + period_s)
        simulation.advance(min(look_s - simulation.now_s, SAMPLE_S))
        observer.sample()
        if simulation.now_s >= look_s - 1e-9 or simulation.ended:
            yield observer.look(regions)
