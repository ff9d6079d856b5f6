"""The profiler: every second, what each pipeline, step, region and source did (Joker §4.1).

Counts and processor seconds come from probes, queue lengths from samples in between. Busy shares,
overheads and throughputs are averaged exponentially over half a minute, Joker's window; a change
of plan begins the average of its regions anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.engines.local.latency import Latencies
from anabranch.engines.local.probe import Probe
from anabranch.engines.local.region import RegionRun
from anabranch.engines.local.source import SourceRun
from anabranch.events import (
    BatchTimes,
    Observation,
    PipelineMetrics,
    RegionMetrics,
    SourceMetrics,
    StepMetrics,
)
from anabranch.plan.plan import Plan
from anabranch.plan.regions import RegionKind

PERIOD_S = 1.0
WINDOW_PERIODS = 30


class Average:
    """An exponential average over about so many periods; the first value counts whole.

    Example:
        >>> average = Average(periods=3)
        >>> average.add(1.0), average.add(0.0)
        (1.0, 0.5)
    """

    def __init__(self, periods: int = WINDOW_PERIODS) -> None:
        """Nothing seen."""
        self._weight = 2 / (periods + 1)
        self._value: float | None = None

    def add(self, value: float) -> float:
        """Take a value in; gives the average."""
        known = value if self._value is None else self._value
        self._value = known + self._weight * (value - known)
        return self._value


@dataclass
class Tally:
    """Sums over the threads of a pipeline, or of all pipelines that hold a step."""

    cpu_s: float = 0.0
    rows_in: int = 0
    rows_out: int = 0


@dataclass
class _Reading:
    """What one probe showed at the last look."""

    cpu_s: float = 0.0
    steps: dict[str, tuple[float, int, int]] = field(default_factory=dict)


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
        self._averages: dict[tuple[str, ...], Average] = {}
        self._queues: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._written = 0
        self.number = 0
        self.looked_s = 0.0

    def watch(self, probe: Probe) -> None:
        """A thread is about to start; other threads may be told of at the same time."""
        self._readings[probe] = _Reading()

    def sample(self) -> None:
        """Note how long the queues are."""
        for run in self._regions:
            self._queues[run.region.name].append(run.gate.length())

    def forget(self, regions: Iterable[str]) -> None:
        """These regions run under another plan: their averages begin anew."""
        changed = set(regions)
        self._averages = {k: v for k, v in self._averages.items() if k[0] not in changed}

    def look(self, at_s: float, plan: Plan, written: int) -> Observation:
        """What happened since the last look; `written` tuples have come to the sinks so far."""
        elapsed_s = max(at_s - self.looked_s, 1e-9)
        self.looked_s = at_s
        pipelines, steps = self._read_probes()
        p50, p99, p999 = self._latencies.look((0.5, 0.99, 0.999))
        sources = tuple(
            SourceMetrics(
                run.name,
                steps[run.name].rows_out,
                steps[run.name].rows_out / elapsed_s,
                run.dispenser.backlog(),
            )
            for run in self._sources
        )
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
            self._pipeline_metrics(plan, pipelines, steps, elapsed_s),
            self._region_metrics(plan, steps, elapsed_s),
            sources,
            p999,
        )
        self.number += 1
        return seen

    def _read_probes(self) -> tuple[Mapping[tuple[str, ...], Tally], Mapping[str, Tally]]:
        """What was done since the last look, by pipeline and by step."""
        pipelines: defaultdict[tuple[str, ...], Tally] = defaultdict(Tally)
        steps: defaultdict[str, Tally] = defaultdict(Tally)
        for probe, before in list(self._readings.items()):
            ended = probe.ended  # before the last look at it
            done = {s: (probe.cpu[s], probe.rows[s][0], probe.rows[s][1]) for s in probe.steps}
            now = _Reading(probe.cpu_s(), done)
            if ended:
                del self._readings[probe]
            else:
                self._readings[probe] = now
            pipelines[(probe.region, *probe.steps)].cpu_s += now.cpu_s - before.cpu_s
            for step, (cpu_s, rows_in, rows_out) in now.steps.items():
                old = before.steps.get(step, (0.0, 0, 0))
                steps[step].cpu_s += cpu_s - old[0]
                steps[step].rows_in += rows_in - old[1]
                steps[step].rows_out += rows_out - old[2]
        return pipelines, steps

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
                        tally.cpu_s,
                        keys.get(step),
                        lost.skipped,
                        lost.late,
                    )
                )
        return tuple(found)

    def _pipeline_metrics(
        self,
        plan: Plan,
        pipelines: Mapping[tuple[str, ...], Tally],
        steps: Mapping[str, Tally],
        elapsed_s: float,
    ) -> tuple[PipelineMetrics, ...]:
        found = []
        for region in plan.regions:
            for pipeline in region.pipelines:
                key = (region.region, *pipeline)
                whole_s = elapsed_s * region.replicas
                busy = min(1.0, pipelines[key].cpu_s / whole_s)
                working = sum(steps[step].cpu_s for step in pipeline) / whole_s
                found.append(
                    PipelineMetrics(
                        region.region,
                        pipeline,
                        self._average((*key, "busy"), busy),
                        self._average((*key, "overhead"), max(0.0, busy - working)),
                    )
                )
        return tuple(found)

    def _region_metrics(
        self, plan: Plan, steps: Mapping[str, Tally], elapsed_s: float
    ) -> tuple[RegionMetrics, ...]:
        found = []
        for region in plan.regions:
            name = region.region
            lengths = self._queues.pop(name, None) or [(0, 0)]
            rate = steps[region.pipelines[0][0]].rows_in / elapsed_s
            found.append(
                RegionMetrics(
                    name,
                    region.replicas,
                    self._average((name, "rate"), rate),
                    queue_jumbos=sum(jumbos for jumbos, _ in lengths) / len(lengths),
                    queue_rows=sum(rows for _, rows in lengths) / len(lengths),
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

    def _average(self, key: tuple[str, ...], value: float) -> float:
        return self._averages.setdefault(key, Average()).add(value)
