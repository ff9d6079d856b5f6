"""The profiler: every second, what each pipeline, step, region and source did (Joker §4.1).

Counts and processor seconds come from probes, queue lengths from samples in between. Every value is
that of its second; whoever looks at several of them averages (`adapt/history.py`).

A step that waits for a service takes its thread and no processor. A thread that stands in a step
without a processor may also wait for its turn; how long that takes follows from how much the other
threads of the process work. What is beyond that it waited for something else.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.runtime.bucket_loads import Loads, hottest_key
from anabranch.engines.local.latency import Latencies
from anabranch.engines.local.probe import Probe
from anabranch.engines.local.region import RegionRun
from anabranch.engines.local.source import SourceRun
from anabranch.engines.skipped_rows import skipped_row
from anabranch.events import (
    BatchTimes,
    Observation,
    PipelineMetrics,
    RegionMetrics,
    SourceMetrics,
    StepMetrics,
)
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind

PERIOD_S = 1.0


@dataclass
class Tally:
    """Sums over the threads of a pipeline, or of all pipelines that hold a step."""

    cpu_s: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    waited_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Seconds that threads were taken up."""
        return self.cpu_s + self.waited_s


@dataclass
class _Done:
    """What was done between two looks.

    Attributes:
        threads: Busy seconds by region, pipeline and replica.
        steps: By step.
    """

    threads: defaultdict[tuple[str, tuple[str, ...], int], float]
    steps: defaultdict[str, Tally]

    def pipeline_s(self, region: str, pipeline: tuple[str, ...]) -> float:
        """Busy seconds of a pipeline, over all replicas."""
        return sum(s for (r, p, _), s in self.threads.items() if (r, p) == (region, pipeline))

    def replica_s(self, region: str, replica: int) -> float:
        """Busy seconds of a replica's busiest thread."""
        known = [s for (r, _, n), s in self.threads.items() if (r, n) == (region, replica)]
        return max(known, default=0.0)


@dataclass
class _Reading:
    """What one probe showed at the last look."""

    cpu_s: float = 0.0
    steps: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)


class Profiler:
    """Turns probes into observations.

    Args:
        regions: The regions that run steps.
        sources: The sources.
        latencies: What the sinks have noted.
    """

    def __init__(
        self,
        regions: Sequence[RegionRun],
        sources: Sequence[SourceRun],
        latencies: Latencies,
    ) -> None:
        self._regions, self._sources, self._latencies = regions, sources, latencies
        self._readings: dict[Probe, _Reading] = {}  # by thread, what the last look showed
        self._queues: dict[str, list[tuple[int, int]]] = defaultdict(list)
        shared = (run.region for run in regions if run.region.kind is RegionKind.SHARED)
        self._shared = {step for region in shared for step in region.steps}
        self._readers = {run.name for run in sources}
        self._written, self._process_s = 0, time.process_time()
        self.number = 0
        self.looked_s = 0.0

    def watch(self, probe: Probe) -> None:
        """A thread is about to start; other threads may be told of at the same time."""
        self._readings[probe] = _Reading()

    def sample(self) -> None:
        """Note how long the queues are."""
        for run in self._regions:
            self._queues[run.region.name].append(run.gate.length())

    def look(self, at_s: float, plan: Plan, written: int) -> Observation:
        """What happened since the last look; `written` tuples have come to the sinks so far."""
        elapsed_s = max(at_s - self.looked_s, 1e-9)
        self.looked_s = at_s
        done = self._read_probes(elapsed_s)
        steps = done.steps
        p50, p99, p999 = self._latencies.look((0.5, 0.99, 0.999))
        sources = tuple(self._source_metrics(run, plan, done, elapsed_s) for run in self._sources)
        rows_out, self._written = written - self._written, written
        seen = Observation(
            at_s,
            self.number,
            sum(source.rows for source in sources),
            rows_out,
            self._times(elapsed_s, steps),
            p50,
            p99,
            self._step_metrics(steps),
            self._pipeline_metrics(plan, done, elapsed_s),
            self._region_metrics(plan, done, elapsed_s),
            sources,
            p999,
        )
        self.number += 1
        return seen

    def _read_probes(self, elapsed_s: float) -> _Done:
        """What was done since the last look, so many seconds ago."""
        found = _Done(defaultdict(float), defaultdict(Tally))
        steps = found.steps
        process_s, before_s = time.process_time(), self._process_s
        self._process_s = process_s
        for probe, before in list(self._readings.items()):
            ended = probe.ended  # before the last look at it
            done = {s: (probe.cpu[s], probe.rows[s][0], probe.rows[s][1]) for s in probe.steps}
            now = _Reading(probe.cpu_s(), done, probe.held_s())
            if ended:
                del self._readings[probe]
            else:
                self._readings[probe] = now
            found.threads[probe.region, probe.steps, probe.replica] += now.cpu_s - before.cpu_s
            for step, (cpu_s, rows_in, rows_out) in now.steps.items():
                old = before.steps.get(step, (0.0, 0, 0))
                steps[step].cpu_s += cpu_s - old[0]
                came = rows_in - old[1]
                # Every replica of a shared region sees every tuple, which is still one tuple.
                seen = steps[step].rows_in
                steps[step].rows_in = max(seen, came) if step in self._shared else seen + came
                steps[step].rows_out += rows_out - old[2]
            if probe.region in self._readers:
                continue  # a reader that waits has nothing to read
            waits = _waits(before, now, process_s - before_s, elapsed_s)
            for step, waited_s in waits.items():
                steps[step].waited_s += waited_s
                found.threads[probe.region, probe.steps, probe.replica] += waited_s
        return found

    def _source_metrics(
        self, run: SourceRun, plan: Plan, done: _Done, elapsed_s: float
    ) -> SourceMetrics:
        rows = done.steps[run.name].rows_out
        whole_s = elapsed_s * plan.source(run.name).replicas
        return SourceMetrics(
            run.name,
            rows,
            rows / elapsed_s,
            run.dispenser.backlog(),
            run.lag_ms,
            min(1.0, done.pipeline_s(run.name, (run.name,)) / whole_s),
        )

    def _step_metrics(self, steps: Mapping[str, Tally]) -> tuple[StepMetrics, ...]:
        found = []
        for run in self._regions:
            keys, counters = run.keys(), run.counters()
            for step in run.region.steps:
                tally, lost = steps[step], counters[step]
                found.append(
                    StepMetrics(
                        step,
                        tally.rows_in,
                        tally.rows_out,
                        tally.busy_s,
                        keys.get(step),
                        waited_s=tally.waited_s,
                        first_skipped=skipped_row(run.flow, lost.first),
                        **lost.counts(),
                    )
                )
        return tuple(found)

    def _pipeline_metrics(
        self, plan: Plan, done: _Done, elapsed_s: float
    ) -> tuple[PipelineMetrics, ...]:
        found = []
        for region in plan.regions:
            for pipeline in region.pipelines:
                whole_s = elapsed_s * region.replicas
                busy = min(1.0, done.pipeline_s(region.region, pipeline) / whole_s)
                working = sum(done.steps[step].busy_s for step in pipeline) / whole_s
                waiting = sum(done.steps[step].waited_s for step in pipeline) / whole_s
                found.append(
                    PipelineMetrics(
                        region.region,
                        pipeline,
                        busy,
                        max(0.0, busy - working),
                        min(busy, waiting),
                    )
                )
        return tuple(found)

    def _region_metrics(
        self, plan: Plan, done: _Done, elapsed_s: float
    ) -> tuple[RegionMetrics, ...]:
        loads = {run.region.name: run.loads.look() for run in self._regions if run.loads}
        found = []
        for region in plan.regions:
            name = region.region
            lengths = self._queues.pop(name, None) or [(0, 0)]
            rate = done.steps[region.pipelines[0][0]].rows_in / elapsed_s
            spent = [done.replica_s(name, replica) for replica in range(region.replicas)]
            load = loads.get(name, Loads())
            found.append(
                RegionMetrics(
                    name,
                    region.replicas,
                    rate,
                    queue_jumbos=sum(jumbos for jumbos, _ in lengths) / len(lengths),
                    queue_rows=sum(rows for _, rows in lengths) / len(lengths),
                    replica_busy=tuple(min(1.0, each / elapsed_s) for each in spent),
                    bucket_rows=load.bucket_rows,
                    hottest_key=hottest_key([load]),
                )
            )
        return tuple(found)

    def _times(self, elapsed_s: float, steps: Mapping[str, Tally]) -> BatchTimes:
        """Processor seconds by kind of work; nothing is loaded, saved or shuffled here."""
        sinks = {r.region.name for r in self._regions if r.region.kind is RegionKind.SINK}
        readers = {run.name for run in self._sources}
        others = [t.cpu_s for step, t in steps.items() if step not in sinks | readers]
        return BatchTimes(
            total_s=elapsed_s,
            fixed_s=0.0,
            scan_s=sum(steps[name].cpu_s for name in readers),
            shuffle_s=0.0,
            compute_s=sum(others),
            state_s=0.0,
            sink_s=sum(steps[name].cpu_s for name in sinks),
        )


def _waits(before: _Reading, now: _Reading, process_s: float, elapsed_s: float) -> dict[str, float]:
    """How long each step of a thread waited for something else than its turn.

    Args:
        before: What was read at the last look.
        now: What was read at this one.
        process_s: Processor seconds of the whole process in between.
        elapsed_s: Seconds in between.
    """
    idle = {}
    for step, held_s in now.held.items():
        cpu_s = now.steps[step][0] - before.steps.get(step, (0.0, 0, 0))[0]
        idle[step] = max(0.0, held_s - before.held.get(step, 0.0) - cpu_s)
    all_s, own_s = sum(idle.values()), now.cpu_s - before.cpu_s
    queued_s = turns_s(own_s, max(0.0, process_s - own_s), elapsed_s)
    return {step: s * max(0.0, 1 - queued_s / all_s) for step, s in idle.items() if s > 0}


def turns_s(own_s: float, others_s: float, elapsed_s: float) -> float:
    """How long a thread waits until it is its turn, where others work so much beside it.

    A processor (or the interpreter) that others take a part of serves slower by that part, and
    nobody waits longer than the others work.

    Example:
        >>> turns_s(0.5, 0.5, 1.0), turns_s(0.25, 1.5, 1.0), turns_s(0.01, 0.5, 1.0)
        (0.5, 1.5, 0.01)
    """
    taken = others_s / elapsed_s
    return others_s if taken >= 1 else min(others_s, own_s * taken / (1 - taken))
