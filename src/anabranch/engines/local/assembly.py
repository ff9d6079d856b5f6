"""All parts of a running flow: gates, sources, regions, sinks, wired as the flow says."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from anabranch.engines.local.gate import ElasticGate
from anabranch.engines.local.latency import Latencies
from anabranch.engines.local.outlet import Outlet
from anabranch.engines.local.probe import Probe
from anabranch.engines.local.region import RegionRun, StartThread
from anabranch.engines.local.sink import SinkRun
from anabranch.engines.local.source import SourceRun
from anabranch.errors import EngineError
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.planning.plan import Plan
from anabranch.planning.regions import Region, RegionKind, needs_order, region_edges, regions
from anabranch.state.positions import START

POLL_S = 0.002


class Assembly:
    """What runs.

    Args:
        flow: The application.
        plan: How it begins.
        limit: Read no more rows of each source than this.
        keeps: Whether sinks keep rows for checkpoints.
        told_end: Called when a sink has seen the end.
    """

    def __init__(
        self,
        flow: Flow,
        plan: Plan,
        limit: int | None,
        keeps: bool,
        told_end: Callable[[], None],
    ) -> None:
        self._flow, self._limit, self._keeps, self._told_end = flow, limit, keeps, told_end
        self._contexts = flow.contexts()
        self.latencies = Latencies()
        found = regions(flow)
        self.edges = region_edges(flow, found)
        self.gates = {r.name: self._gate(r) for r in found if r.kind is not RegionKind.SOURCE}
        self.sources: list[SourceRun] = []
        self.regions: list[RegionRun] = []
        self.sinks: list[SinkRun] = []
        for region in found:  # upstream first
            if region.kind is RegionKind.SOURCE:
                self.sources.append(self._source(region, plan))
            else:
                self.regions.append(self._region(region, plan))
        self.sinks = [run for run in self.regions if isinstance(run, SinkRun)]
        self._ended: set[str] = set()

    def region(self, name: str) -> RegionRun:
        """The region of a name."""
        return next(run for run in self.regions if run.region.name == name)

    def start(self, start: StartThread) -> None:
        """Start every thread, those that read last: nobody is missed."""
        for run in reversed(self.regions):
            run.start(start)
        for source in self.sources:
            source.start(start)

    def open_sinks(self) -> None:
        """Open every sink for a fresh start, without a checkpoint."""
        for sink in self.sinks:
            sink.open()

    def commit_sinks(self) -> None:
        """Make visible what was written."""
        for sink in self.sinks:
            sink.commit()

    def close_sinks(self) -> None:
        """Close every sink, whatever the others do; what was not made visible is gone."""
        with ExitStack() as closing:
            for run in reversed(self.sinks):
                closing.callback(run.close_sink)

    def close(self) -> None:
        """Let every thread end."""
        for source in self.sources:
            source.close()
        for run in self.regions:
            run.close()

    def read_no_more(self) -> None:
        """Let the readers end; the streams do not end by that."""
        for source in self.sources:
            source.dispenser.stop()
        self._hold_nobody_up(True)

    def hold(self) -> None:
        """Read nothing for a while."""
        for source in self.sources:
            source.dispenser.hold()
        self._hold_nobody_up(True)

    def go_on(self) -> None:
        """Read again."""
        self._hold_nobody_up(False)
        for source in self.sources:
            source.dispenser.go_on()

    def settle(self, given_up: Callable[[], bool]) -> bool:
        """Wait until all that is under way is finished; whether that came before giving up."""
        # Upstream first: who has nothing to do and gets nothing any more stays so.
        checks = [s.idle for s in self.sources] + [run.idle for run in self.regions]
        for idle in checks:
            while not idle():
                if given_up():
                    return False
                time.sleep(POLL_S)
        return True

    def all_ended(self) -> bool:
        """Whether every sink has seen the end."""
        return all(sink.ended for sink in self.sinks)

    def alive(self, region: str) -> bool:
        """Whether a region may move by itself: inside a step, or rows may come with time."""
        for source in self.sources:
            if source.name == region:
                reads = source.dispenser
                return reads.expectant or reads.asking or any(p.step for p in source.probes)
        probes = [p for replica in self.region(region).replicas for p in replica.probes]
        return any(probe.step is not None for probe in probes)

    def moves(self) -> int:
        """Grows with everything that is read, added or taken."""
        return sum(gate.moves for gate in self.gates.values())

    def caught_up(self) -> bool:
        """Whether all that could be read was read, worked on, and is visible."""
        readers = [source.dispenser for source in self.sources]
        waiting = all(each.over or (each.expectant and not each.grown()) for each in readers)
        resting = all(s.idle() for s in self.sources) and all(r.idle() for r in self.regions)
        all_shown = all(sink.all_shown for sink in self.sinks)
        return waiting and resting and all_shown and not any(map(self._holds_back, self.regions))

    def running(self) -> str | None:
        """A step that some thread is inside of, if any."""
        probes = [p for run in self.regions for replica in run.replicas for p in replica.probes]
        probes += [probe for source in self.sources for probe in source.probes]
        return next((probe.step for probe in probes if probe.step is not None), None)

    def rows_read(self) -> int:
        """Tuples read so far."""
        return sum(source.rows for source in self.sources)

    def rows_written(self) -> int:
        """Tuples written so far."""
        return sum(sink.rows for sink in self.sinks)

    def place_of(self, probe: Probe) -> str | None:
        """Where the plan wants a thread."""
        for run in self.regions:
            if run.region.name == probe.region and run.plan.placement:
                return run.plan.placement[probe.replica]
        return None

    def _holds_back(self, run: RegionRun) -> bool:
        """Whether rows wait in front of a region until a slower source gives as many.

        Rows in the order of event time wait for time: that they do so is their result for now.
        """
        inputs = self._contexts[run.region.steps[0]].inputs
        return all(given.time is None for given in inputs) and run.gate.length()[1] > 0

    def _hold_nobody_up(self, lenient: bool) -> None:
        for gate in self.gates.values():
            gate.hold_nobody_up(lenient)

    def _gate(self, region: Region) -> ElasticGate:
        ports = len(self._flow.graph.steps[region.steps[0]].inputs)
        ordered = needs_order(self._flow, region)
        return ElasticGate(ports, ordered=ordered, dealt=region.kind is RegionKind.STATELESS)

    def _outlet(self, region: Region) -> Outlet:
        ways = [(e, self.gates[e.consumer]) for e in self.edges if e.producer == region.name]
        together = region.kind in (RegionKind.STATELESS, RegionKind.SOURCE)
        return Outlet(ways, together=together)

    def _source(self, region: Region, plan: Plan) -> SourceRun:
        name = region.name
        source = self._flow.sources()[name]
        if source.pushed:
            raise EngineError(
                name,
                "a source that the local engine can read",
                f"{source!r}, whose rows Spark brings",
                "run with engine='spark'",
            )
        rank = self._flow.names(Role.SOURCE).index(name)
        own, outlet = plan.source(name), self._outlet(region)
        return SourceRun(name, source, rank, own, outlet, self._limit, self._keeps)

    def _region(self, region: Region, plan: Plan) -> RegionRun:
        own, gate = plan.region(region.name), self.gates[region.name]
        if region.kind is RegionKind.SINK:
            return SinkRun(
                self._flow,
                self._contexts,
                region,
                own,
                gate,
                self.latencies,
                self._keeps,
                self._told_end,
            )
        outlet = self._outlet(region)
        outlet.announce(range(own.replicas), START)
        return RegionRun(self._flow, self._contexts, region, own, gate, outlet)
