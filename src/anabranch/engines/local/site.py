"""What a process of the local engine provides for its units: clock, storage, sinks, meters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa

from anabranch.engines.local.meter import Measured, Meter, UnitReading
from anabranch.engines.local.versions import SavedUnit, UnitStorage
from anabranch.errors import About, EngineError
from anabranch.io.sink import PositionRange, Sink, SinkWriter, Stage
from anabranch.planning.plan import RegionPlan
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import UnitId
from anabranch.runtime.ranges import Ranges
from anabranch.runtime.sink_order import Prepared, Segment
from anabranch.runtime.unit import Unit
from anabranch.state.positions import START, Jumbo, Root

SMAPS = "/proc/self/smaps_rollup"


class SinkOutflow:
    """Prepares the rows of one replica of a sink; see `Outflow`.

    Args:
        unit: The replica.
        sink: The sink; nothing of it is used but its writers.
        schema: The columns.
        stage: Where prepared rows are kept.
        storage: Names attempts where there is a checkpoint; then rows wait for `take`.
        show: Takes rows that shall become visible at once, where there is none.
    """

    def __init__(
        self,
        unit: UnitId,
        sink: Sink,
        schema: pa.Schema,
        stage: Stage,
        storage: UnitStorage | None,
        show: Callable[[Prepared], None],
    ) -> None:
        self._unit, self._sink, self._schema, self._stage = unit, sink, schema, stage
        self._storage, self._show = storage, show
        self._every_s = sink.traits.interval_s
        self._writer: SinkWriter | None = None
        self._ranges = Ranges(1, 1)
        self._range = 0
        self._first: tuple[int, ...] = ()
        self._last: tuple[int, ...] = ()
        self._ages: list[tuple[float, int]] = []
        self._segments: list[Segment] = []
        self._reached = self._reported = START
        self._shown_s = time.monotonic()
        self._generation = self._epoch = 0
        self.rows = 0

    def enter(self, epoch: int, plan: RegionPlan) -> None:
        """Take rows of another epoch from now on."""
        self._epoch, self._ranges = epoch, Ranges.of(plan)

    def write(self, jumbo: Jumbo, born_s: float | None) -> None:
        """Prepare rows; each range of positions is a segment of its own."""
        born_s = time.monotonic() if born_s is None else born_s
        if self._ranges.replicas == 1:
            self._write(jumbo.batch, born_s)
            return
        for number, piece in self._ranges.pieces(jumbo):
            if number != self._range:
                self._finish()
            self._range = number
            if self._writer is None:
                self._first = piece.positions.row(0)
            self._write(piece.batch, born_s)
            self._last = piece.positions.row(-1)

    def _write(self, batch: pa.RecordBatch, born_s: float) -> None:
        if self._writer is None:
            name = f"{self._epoch:012d}-{uuid4().hex}"
            if self._storage is not None:
                version = self._storage.version(self._epoch)
                name = self._storage.attempt(version, self._unit.region, self._unit.replica)
            self._writer = self._sink.writer(self._schema, name, self._stage)
        self._writer.write(batch)
        self.rows += batch.num_rows
        self._ages.append((born_s, batch.num_rows))

    def reach(self, frontier: Root) -> None:
        """Note that all rows before a position have been written; show them if it is time to."""
        self._reached = max(self._reached, frontier)
        self.show_if_due()

    def end(self) -> None:
        """Show what is left: the stream is over."""
        self.show()

    def leave(self) -> int:
        """Other replicas go on with the sink."""
        if self._storage is None:
            self._report(left=True)
        return self._generation

    def follow(self, generation: int) -> None:
        """Belong to the generation after this one."""
        self._generation = max(self._generation, generation + 1)
        self._reached = self._reported = START

    @property
    def waits(self) -> bool:
        """Return whether rows have come that nobody was asked to make visible."""
        return bool(self._ages or self._segments) or self._others_wait()

    def _others_wait(self) -> bool:
        """Return whether rows of other replicas may wait for a report of this one."""
        alone = self._ranges.replicas == 1 or self._storage is not None
        return not alone and self._reached != self._reported

    def show_if_due(self) -> None:
        """Show rows that have waited long enough."""
        if self.waits and time.monotonic() - self._shown_s >= self._every_s:
            self.show()

    def show(self) -> None:
        """Let the rows so far become visible; with a checkpoint that happens with its version."""
        if self._storage is None and self.waits:
            self._report()

    def _report(self, *, left: bool = False) -> None:
        self._shown_s, self._reported = time.monotonic(), self._reached
        place = self._unit.region, self._generation, self._unit.replica, self._ranges.replicas
        self._show(Prepared(*place, tuple(self.take()), self._reached, left))

    def take(self) -> list[Segment]:
        """Return what was prepared since the last time."""
        self._finish()
        taken, self._segments = self._segments, []
        return taken

    def _finish(self) -> None:
        """Prepare the rows of the segment so far."""
        if self._writer is None:
            return
        receipt = self._writer.prepare()
        if receipt is not None:
            if self._ranges.replicas > 1:
                receipt = replace(receipt, positions=PositionRange(self._first, self._last))
            self._segments.append(Segment(receipt, tuple(self._ages)))
        self._writer, self._ages = None, []

    def abort(self) -> None:
        """Remove what was prepared and not taken."""
        segments, self._segments = self._segments, []
        if segments:
            self._sink.abort([segment.receipt for segment in segments], self._stage)
        if self._writer is not None:
            self._writer.abort()
            self._writer = None


class LocalSite:
    """The process of some units; see `Site`.

    Args:
        topology: What follows from the flow.
        stage: Where prepared rows of sinks are kept.
        storage: The checkpoint; None where nothing is saved.
        show: Takes rows that shall become visible at once.
        enter: Called with the step that runs now.
        cpu_clock: Gives processor seconds: of the process where all of it works for the units,
            since files may be read by threads of Arrow; else of the thread.
        profile: Whether to measure.
    """

    def __init__(
        self,
        topology: Topology,
        stage: Stage,
        storage: UnitStorage | None,
        show: Callable[[Prepared], None],
        enter: Callable[[str | None], None],
        *,
        cpu_clock: Callable[[], float] = time.thread_time,
        profile: bool = True,
    ) -> None:
        self._cpu_clock = cpu_clock
        self._process_s = time.process_time()  # a worker may have done other jobs before
        self._topology, self._stage, self._storage = topology, stage, storage
        self._show, self._note, self._profile = show, enter, profile
        self._step: str | None = None
        self._meters: dict[UnitId, Meter] = {}
        self.outflows: dict[UnitId, SinkOutflow] = {}

    def now_s(self) -> float:
        """Seconds on the clock that all processes of a machine share."""
        return time.monotonic()

    def outflow(self, unit: UnitId) -> SinkOutflow:
        """Return where the rows of a sink go."""
        if unit not in self.outflows:
            self.outflows[unit] = SinkOutflow(
                unit,
                self._topology.flow.sinks()[unit.region],
                self._topology.contexts[unit.region].inputs[0].schema,
                self._stage,
                self._storage,
                self._show,
            )
        return self.outflows[unit]

    def save(self, epoch: int, unit: Unit, waiting: Sequence[Jumbo | None]) -> SavedUnit:
        """Save a unit that is done with an epoch."""
        assert self._storage is not None
        files = self._storage.save(epoch, unit, waiting)
        outflow = self.outflows.get(unit.id)
        return SavedUnit(files, () if outflow is None else tuple(outflow.take()))

    def restore(self, unit: Unit, first: bool) -> Sequence[Jumbo | None]:
        """Bring back the state of a unit; its changes are noted from now on."""
        waiting: Sequence[Jumbo | None] = ()
        if self._storage is not None:
            self._storage.forget(unit.id)
            if first:
                inputs = self._topology.contexts[unit.region.steps[0]].inputs
                waiting = self._storage.restore(unit, [given.schema for given in inputs])
            unit.channel.track()
        return waiting

    def watch(self, unit: UnitId, steps: tuple[str, ...]) -> Meter | None:
        """Return the meter of a unit."""
        if not self._profile and unit.region not in self._topology.flow.sources():
            return None
        meter = self._meters.get(unit)
        if meter is None or meter.steps != steps:
            old, meter = meter, Meter(steps, self._enter, self._cpu_clock)
            if old is not None:
                meter.totals |= old.totals
                meter.cpu_s = old.cpu_s
            self._meters[unit] = meter
        return meter

    def run(self, host: Host, unit: UnitId) -> None:
        """Let a unit run, and measure it as a whole."""
        began_s = self._cpu_clock()
        try:
            host.run(unit)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # SystemExit and the like are no way out of a step
            raise must_return(self._step or unit.region, error) from error
        finally:
            self._enter(None)
        if (meter := self._meters.get(unit)) is not None:
            meter.cpu_s += self._cpu_clock() - began_s

    def _enter(self, step: str | None) -> None:
        self._step = step
        self._note(step)

    def measured(self, host: Host, *, memory: bool = True) -> Measured:
        """Return what the units have done so far."""
        readings: dict[UnitId, UnitReading] = {}
        for name, meter in self._meters.items():
            unit = host.units.get(name)
            if unit is None:
                readings[name] = UnitReading(meter.totals, meter.cpu_s)
                continue
            kernels = unit.channel.kernels
            readings[name] = UnitReading(
                meter.totals,
                meter.cpu_s,
                unit.queued,
                unit.channel.keys(),
                {step: kernel.context.counters for step, kernel in kernels.items()},
            )
        return Measured(
            readings,
            {name: loads.look() for name, loads in host.loads.items()},
            self.rows_written(),
            time.process_time() - self._process_s,
            process_memory() if memory else None,
        )

    def rows_written(self) -> dict[str, int]:
        """Return how many rows have come to each sink."""
        found: Counter[str] = Counter()
        for unit, outflow in self.outflows.items():
            found[unit.region] += outflow.rows
        return dict(found)

    def shows_later(self) -> bool:
        """Return whether rows have come to sinks that are not visible yet."""
        return any(outflow.waits for outflow in self.outflows.values())

    def abort(self) -> None:
        """Remove what was prepared for sinks and never taken."""
        for outflow in self.outflows.values():
            outflow.abort()


def must_return(about: About, error: BaseException) -> EngineError:
    """Return the error about user code that tries to end the process."""
    return EngineError(
        about,
        "functions that return",
        f"{type(error).__name__}: {error}",
        "return from the function instead, or call stop() on the run",
    )


def process_memory() -> int | None:
    """Return the memory of this process: of pages shared with others, its part."""
    try:
        with open(SMAPS) as sizes:
            for line in sizes:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # another system
        return None
    return None
