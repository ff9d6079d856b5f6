"""What a process of the local engine provides for its units: clock, storage, sinks, meters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from anabranch.engines.local.meter import Measured, Meter, UnitReading
from anabranch.engines.local.versions import Ages, SavedUnit, UnitStorage
from anabranch.errors import About, EngineError
from anabranch.io.sink import Receipt, Sink, SinkWriter, Stage
from anabranch.runtime.channel import Channel
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import UnitId
from anabranch.runtime.unit import Unit
from anabranch.state.positions import Jumbo

SMAPS = "/proc/self/smaps_rollup"


@dataclass(frozen=True)
class Prepared:
    """Rows of a sink that a run without a checkpoint makes visible now."""

    sink: str
    version: int
    receipt: Receipt
    ages: Ages


class SinkOutflow:
    """Prepares the rows of one sink; see `Outflow`.

    Args:
        name: The step of the sink.
        sink: The sink; nothing of it is used but its writers.
        schema: The columns.
        stage: Where prepared rows are kept.
        storage: Names attempts where there is a checkpoint; then rows wait for `take`.
        show: Takes rows that shall become visible at once, where there is none.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        schema: pa.Schema,
        stage: Stage,
        storage: UnitStorage | None,
        show: Callable[[Prepared], None],
    ) -> None:
        self._name, self._sink, self._schema, self._stage = name, sink, schema, stage
        self._storage, self._show = storage, show
        self._every_s = sink.traits.interval_s
        self._writer: SinkWriter | None = None
        self._ages: list[tuple[float, int]] = []
        self._shown_s = time.monotonic()
        self._shown = 0  # how often rows were shown
        self._epoch = 0
        self.rows = 0

    def enter(self, epoch: int) -> None:
        """Rows belong to another epoch from now on."""
        self._epoch = epoch

    def write(self, jumbo: Jumbo, born_s: float | None) -> None:
        """Prepare rows, and show them if it is time to."""
        if self._writer is None:
            name = f"{self._shown + 1:012d}-{uuid4().hex}"
            if self._storage is not None:
                name = self._storage.attempt(self._storage.version(self._epoch), self._name)
            self._writer = self._sink.writer(self._schema, name, self._stage)
        self._writer.write(jumbo.batch)
        self.rows += len(jumbo)
        self._ages.append((time.monotonic() if born_s is None else born_s, len(jumbo)))
        self.show_if_due()

    def end(self) -> None:
        """The stream is over."""
        self.show()

    def leave(self) -> int:
        """Another process goes on with the sink."""
        self.show()
        return self._shown

    def follow(self, written: int) -> None:
        """Go on with the versions of another process."""
        self._shown = max(self._shown, written)

    @property
    def waits(self) -> bool:
        """Whether rows have come that nobody was asked to make visible."""
        return bool(self._ages)

    def show_if_due(self) -> None:
        """Show rows that have waited long enough."""
        if self._ages and time.monotonic() - self._shown_s >= self._every_s:
            self.show()

    def show(self) -> None:
        """Let the rows so far become visible; with a checkpoint that happens with its version."""
        if self._storage is None:
            self._shown_s = time.monotonic()
            receipt, ages = self.take()
            if receipt is not None:
                self._shown += 1
                self._show(Prepared(self._name, self._shown, receipt, ages))

    def take(self) -> tuple[Receipt | None, Ages]:
        """Finish what was prepared so far."""
        writer, ages = self._writer, tuple(self._ages)
        self._writer, self._ages = None, []
        if writer is None:
            return None, ()
        try:
            return writer.prepare(), ages
        except BaseException:
            self._writer = writer
            raise

    def abort(self) -> None:
        """Remove what was prepared and not taken."""
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
        self.outflows: dict[str, SinkOutflow] = {}

    def now_s(self) -> float:
        """Seconds on the clock that all processes of a machine share."""
        return time.monotonic()

    def outflow(self, unit: UnitId) -> SinkOutflow:
        """Where the rows of a sink go."""
        name = unit.region
        if name not in self.outflows:
            self.outflows[name] = SinkOutflow(
                name,
                self._topology.flow.sinks()[name],
                self._topology.contexts[name].inputs[0].schema,
                self._stage,
                self._storage,
                self._show,
            )
        return self.outflows[name]

    def save(self, epoch: int, unit: Unit, waiting: Sequence[Jumbo | None]) -> SavedUnit:
        """Save a unit that is done with an epoch."""
        assert self._storage is not None
        files = self._storage.save(epoch, unit, waiting)
        outflow = self.outflows.get(unit.id.region)
        if outflow is None:
            return SavedUnit(files)
        receipt, ages = outflow.take()
        return SavedUnit(files, () if receipt is None else (receipt,), ages)

    def restore(self, unit: UnitId, channel: Channel, first: bool) -> Sequence[Jumbo | None]:
        """Bring back the state of a unit; its changes are noted from now on."""
        waiting: Sequence[Jumbo | None] = ()
        if self._storage is not None:
            self._storage.forget(unit)
            if first:
                inputs = self._topology.contexts[channel.region.steps[0]].inputs
                schemas = [given.schema for given in inputs]
                waiting = self._storage.restore(unit, channel, schemas)
            channel.track()
        return waiting

    def watch(self, unit: UnitId, steps: tuple[str, ...]) -> Meter | None:
        """The meter of a unit."""
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
        """What the units have done so far."""
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
            {name: outflow.rows for name, outflow in self.outflows.items()},
            time.process_time() - self._process_s,
            process_memory() if memory else None,
        )

    def shows_later(self) -> bool:
        """Whether rows have come to sinks that are not visible yet."""
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
    """The memory of this process: of pages shared with others, its part."""
    try:
        with open(SMAPS) as told:
            for line in told:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:  # another system
        return None
    return None
