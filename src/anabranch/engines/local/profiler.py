"""The profiler: every second, what each pipeline, step, region and source did (Joker §4.1).

Processes report totals; an observation is the difference of two of them. Every value is that of its
period; whoever looks at several of them averages (`adapt/history.py`).

A step that waits for a service takes its worker and no processor. A worker that is in a step
without a processor may also wait for its turn; how long that takes follows from how much the other
processes work. What is beyond that it waited for something else.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.latency import Latencies
from anabranch.engines.local.meter import Measured, StepTotals, UnitReading
from anabranch.engines.skipped_rows import skipped_row
from anabranch.events import (
    BatchTimes,
    Observation,
    PipelineMetrics,
    RegionMetrics,
    SourceMetrics,
    StepMetrics,
)
from anabranch.graph import Role
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind
from anabranch.runtime.bucket_loads import Loads, bucket_rows, hottest_key
from anabranch.runtime.coordinator import Coordinator
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import UnitId

PERIOD_S = 1.0

UnitAt = tuple[int, UnitId]
"""A unit on a host: after a change of plan another host may have a unit of the same name."""


@dataclass
class _Work:
    """What was done in a period, by one unit or one step."""

    cpu_s: float = 0.0
    waited_s: float = 0.0
    rows_in: int = 0
    rows_out: int = 0

    @property
    def busy_s(self) -> float:
        return self.cpu_s + self.waited_s


class Profiler:
    """Turns the reports of processes into observations.

    Args:
        topology: What follows from the flow.
        coordinator: Knows the sources, and what was counted.
        latencies: What the sinks have noted.
    """

    def __init__(self, topology: Topology, coordinator: Coordinator, latencies: Latencies) -> None:
        self._topology, self._coordinator, self._latencies = topology, coordinator, latencies
        self._newest: dict[int, Measured] = {}
        self._before: dict[UnitAt, UnitReading] = {}
        self._process_s: dict[int, float] = {}
        self._loads: dict[str, list[Loads]] = defaultdict(list)
        self._queues: dict[str, dict[int, list[tuple[int, int]]]] = {}
        self._live: dict[UnitId, Mapping[str, Counters]] = {}
        self._memory: dict[int, int] = {}
        self._written_before = 0
        shared = (r for r in topology.regions.values() if r.kind is RegionKind.SHARED)
        self._shared = {step for region in shared for step in region.steps}
        self.number = 0
        self.looked_s = 0.0

    def note(self, host: int, measured: Measured) -> None:
        """Take a report."""
        self._newest[host] = measured
        queues: dict[str, tuple[int, int]] = {}
        for unit, reading in measured.units.items():
            if reading.counters:
                self._live[unit] = reading.counters
            if unit.pipeline == 0:
                jumbos, rows = queues.get(unit.region, (0, 0))
                queues[unit.region] = (jumbos + reading.queue[0], rows + reading.queue[1])
        for region, queue in queues.items():
            self._queues.setdefault(region, {}).setdefault(host, []).append(queue)
        for region, loads in measured.loads.items():
            self._loads[region].append(loads)
        if measured.memory_bytes is not None:
            self._memory[host] = measured.memory_bytes

    def follow(self, other: Profiler) -> None:
        """Go on after the last look of another session of the same run."""
        self.number, self.looked_s = other.number, other.looked_s

    def forget_counters(self, unit: UnitId) -> None:
        """Forget what a unit has counted in an epoch: the coordinator has it now."""
        self._live.pop(unit, None)

    def rows_written(self, at_home: Mapping[str, int]) -> int:
        """Tuples that have come to sinks so far."""
        total = sum(at_home.values())
        for host, measured in self._newest.items():
            total += sum(measured.rows_written.values()) if host else 0
        return total

    def look(self, at_s: float, plan: Plan, written: int) -> Observation:
        """Return what happened since the last look; `written` tuples have come to sinks so far."""
        elapsed_s = max(at_s - self.looked_s, 1e-9)
        self.looked_s = at_s
        steps, units = self._differences(elapsed_s)
        p50, p99, p999 = self._latencies.look((0.5, 0.99, 0.999))
        sources = tuple(
            self._source_metrics(name, plan, steps, units, elapsed_s)
            for name in self._coordinator.sources
        )
        rows_out, self._written_before = written - self._written_before, written
        observed = Observation(
            at_s,
            self.number,
            sum(source.rows for source in sources),
            rows_out,
            self._times(elapsed_s, steps),
            p50,
            p99,
            self._step_metrics(steps),
            self._pipeline_metrics(plan, steps, units, elapsed_s),
            self._region_metrics(plan, steps, units, elapsed_s),
            sources,
            p999,
            sum(self._memory.values()) if self._memory else None,
        )
        self.number += 1
        return observed

    def _differences(
        self, elapsed_s: float
    ) -> tuple[defaultdict[str, _Work], defaultdict[UnitId, _Work]]:
        """Return what steps and units did since the last look."""
        steps: defaultdict[str, _Work] = defaultdict(_Work)
        units: defaultdict[UnitId, _Work] = defaultdict(_Work)
        spent = {h: m.process_s - self._process_s.get(h, 0.0) for h, m in self._newest.items()}
        for host, measured in self._newest.items():
            others_s = sum(s for h, s in spent.items() if h != host)
            queued_s = turns_s(spent[host], others_s, elapsed_s)
            idle: dict[tuple[UnitId, str], float] = {}
            for unit, now in measured.units.items():
                old = self._before.get((host, unit), UnitReading({}, 0.0))
                units[unit].cpu_s += now.cpu_s - old.cpu_s
                for step, totals in now.steps.items():
                    before = old.steps.get(step, StepTotals())
                    work, came = steps[step], totals.rows_in - before.rows_in
                    cpu_s = totals.cpu_s - before.cpu_s
                    work.cpu_s += cpu_s
                    # Every replica of a shared region gets every tuple: the first one's count.
                    if step not in self._shared or unit.replica == 0:
                        work.rows_in += came
                    work.rows_out += totals.rows_out - before.rows_out
                    if unit.region not in self._coordinator.sources:
                        idle[unit, step] = max(0.0, totals.held_s - before.held_s - cpu_s)
                self._before[host, unit] = _copied(now)
            all_s = sum(idle.values())
            for (unit, step), idle_s in idle.items():
                if idle_s > 0:
                    waited_s = idle_s * max(0.0, 1 - queued_s / all_s)
                    steps[step].waited_s += waited_s
                    units[unit].waited_s += waited_s
            self._process_s[host] = measured.process_s
        return steps, units

    def _source_metrics(
        self,
        name: str,
        plan: Plan,
        steps: Mapping[str, _Work],
        units: Mapping[UnitId, _Work],
        elapsed_s: float,
    ) -> SourceMetrics:
        source = self._coordinator.sources[name]
        rows = steps[name].rows_out
        busy_s = sum(work.busy_s for unit, work in units.items() if unit.region == name)
        return SourceMetrics(
            name,
            rows,
            rows / elapsed_s,
            source.backlog(time.monotonic()),
            source.lag_ms,
            min(1.0, busy_s / (elapsed_s * plan.source(name).replicas)),
        )

    def _step_metrics(self, steps: Mapping[str, _Work]) -> tuple[StepMetrics, ...]:
        flow, found = self._topology.flow, []
        keys: dict[str, int] = {}
        for measured in self._newest.values():
            for reading in measured.units.values():
                for step, count in reading.keys.items():
                    keys[step] = keys.get(step, 0) + count
        for region in self._topology.regions.values():
            if region.kind is RegionKind.SOURCE:
                continue
            for step in region.steps:
                work, lost = steps[step], self._counted(step)
                found.append(
                    StepMetrics(
                        step,
                        work.rows_in,
                        work.rows_out,
                        work.busy_s,
                        keys.get(step),
                        waited_s=work.waited_s,
                        first_skipped=skipped_row(flow, lost.first),
                        **lost.counts(),
                    )
                )
        return tuple(found)

    def _counted(self, step: str) -> Counters:
        total = Counters()
        total.add(self._coordinator.counters[step])
        for counters in self._live.values():
            if step in counters:
                total.add(counters[step])
        return total

    def _pipeline_metrics(
        self,
        plan: Plan,
        steps: Mapping[str, _Work],
        units: Mapping[UnitId, _Work],
        elapsed_s: float,
    ) -> tuple[PipelineMetrics, ...]:
        found = []
        for region in plan.regions:
            whole_s = elapsed_s * region.replicas
            for number, pipeline in enumerate(region.pipelines):
                busy_s = sum(
                    work.busy_s
                    for unit, work in units.items()
                    if (unit.region, unit.pipeline) == (region.region, number)
                )
                busy = min(1.0, busy_s / whole_s)
                working = sum(steps[step].busy_s for step in pipeline) / whole_s
                waiting = sum(steps[step].waited_s for step in pipeline) / whole_s
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
        self,
        plan: Plan,
        steps: Mapping[str, _Work],
        units: Mapping[UnitId, _Work],
        elapsed_s: float,
    ) -> tuple[RegionMetrics, ...]:
        loads, self._loads = self._loads, defaultdict(list)
        queues, self._queues = self._queues, {}
        found = []
        for region in plan.regions:
            name = region.region
            by_host = queues.get(name, {}).values()
            rate = steps[region.pipelines[0][0]].rows_in / elapsed_s
            spent = [
                max((w.busy_s for u, w in units.items() if u[:2] == (name, r)), default=0.0)
                for r in range(region.replicas)
            ]
            found.append(
                RegionMetrics(
                    name,
                    region.replicas,
                    rate,
                    queue_jumbos=sum(fmean(jumbos for jumbos, _ in each) for each in by_host),
                    queue_rows=sum(fmean(rows for _, rows in each) for each in by_host),
                    replica_busy=tuple(min(1.0, each / elapsed_s) for each in spent),
                    bucket_rows=bucket_rows(loads[name]),
                    hottest_key=hottest_key(loads[name]),
                )
            )
        return tuple(found)

    def _times(self, elapsed_s: float, steps: Mapping[str, _Work]) -> BatchTimes:
        """Processor seconds by kind of work; nothing is loaded, saved or shuffled here."""
        flow = self._topology.flow
        sinks, readers = set(flow.names(Role.SINK)), set(flow.names(Role.SOURCE))
        others = [work.cpu_s for step, work in steps.items() if step not in sinks | readers]
        return BatchTimes(
            total_s=elapsed_s,
            fixed_s=0.0,
            scan_s=sum(steps[name].cpu_s for name in readers),
            shuffle_s=0.0,
            compute_s=sum(others),
            state_s=0.0,
            sink_s=sum(steps[name].cpu_s for name in sinks),
        )


def _copied(reading: UnitReading) -> UnitReading:
    """Return the totals as they are now: those of this process go on growing."""
    steps = {step: StepTotals(**vars(totals)) for step, totals in reading.steps.items()}
    return UnitReading(steps, reading.cpu_s)


def turns_s(own_s: float, others_s: float, elapsed_s: float) -> float:
    """Return how long a process waits until it is its turn, where others work so much beside it.

    Processors that others take a part of serve slower by that part, and nobody waits longer than
    the others work.

    Example:
        >>> turns_s(0.5, 0.0, 1.0)
        0.0
    """
    taken = others_s / (elapsed_s * len(usable_cpus()))
    return others_s if taken >= 1 else min(others_s, own_s * taken / (1 - taken))
