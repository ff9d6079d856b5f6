"""Batches whose tasks judge slices of a clock: the driver checks the verdicts before it publishes.

A task cannot know what the slices of other tasks show, so it assumes what the clock remembered when
the batch began (`runtime/early_verdicts.py`). No result of a batch is visible before its manifest
is published, so a job whose verdicts turn out to be wrong is run once more: by the exact entry
states, or with every clock in one task where the rows themselves have to be seen in their order. An
error of a job may stem from a wrong verdict, too; only an error of a job with serial clocks counts.
Where verdicts are wrong in one batch after the other, batches with serial clocks follow, more of
them each time.

Where the verdicts are right, the driver knows what the clock remembers after the batch. It writes
that as the state of the clock's replica 0, in the form in which tasks write and read state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

from anabranch.engines.checkpoint.sinks import OutboxStage
from anabranch.engines.checkpoint.state_files import state_name, write_state
from anabranch.engines.checkpoint.storage import Storage
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.task_inputs import Batch, JobResult, Program
from anabranch.engines.spark.task_report import StateSaved, StateWritten
from anabranch.errors import AnabranchError
from anabranch.operators.timed import Facts, TimedKernel
from anabranch.runtime.channel import Channel
from anabranch.runtime.early_verdicts import Checked, check, entry_state

Job = Callable[[StageLayout, Batch], JobResult]

DRIVER = "driver"
"""Stands in names of state files where a task puts the number of its attempt."""
BUCKETS = (0,)
"""The memory of a clock is in one bucket."""
MOST_SERIAL = 16
"""At most so many batches have serial clocks before slices are judged once more."""


@dataclass(frozen=True)
class Ran:
    """The job of a batch whose results count.

    Attributes:
        layout: Its stages and tasks.
        outcome: What its tasks reported.
        discarded: How many jobs of the batch do not count, because of wrong verdicts.
    """

    layout: StageLayout
    outcome: JobResult
    discarded: int = 0


class ClockChecks:
    """Runs the jobs of batches until their verdicts are right.

    Args:
        program: The flow.
        storage: The checkpoint.
    """

    def __init__(self, program: Program, storage: Storage) -> None:
        self._program, self._storage = program, storage
        self._assumed: dict[str, Facts] = {}  # by clock; whatever it is, the check finds it out
        self._wrong_in_a_row = self._serial_batches = 0

    def run(self, batch: Batch, job: Job) -> Ran:
        """Run a batch; several times if need be."""
        layout = self._program.layout(batch)
        clocks = {clock.region.name: clock.replicas for clock in layout.clocks_in_slices()}
        if not clocks:
            return Ran(layout, job(layout, batch))
        if self._serial_batches:
            self._serial_batches -= 1
            return self._run_serially(batch, job, discarded=0)
        ran = self._run_in_slices(batch, job, layout, clocks)
        self._wrong_in_a_row = self._wrong_in_a_row + 1 if ran.discarded else 0
        if self._wrong_in_a_row > 1:
            self._serial_batches = min(2 ** (self._wrong_in_a_row - 2), MOST_SERIAL)
        return ran

    def _run_in_slices(
        self, batch: Batch, job: Job, layout: StageLayout, clocks: Mapping[str, int]
    ) -> Ran:
        """Run a batch by assumed entry states, and once more if they were wrong.

        Args:
            batch: The batch.
            job: Runs a job of it.
            layout: Its stages and tasks.
            clocks: By clock that judges slices, how many tasks it has.
        """
        entries: dict[str, Sequence[Facts]] = {
            name: [self._assumed.get(name, {})] * tasks for name, tasks in clocks.items()
        }
        for attempt in range(2):
            outcome = self._results_of(job, layout, replace(batch, entries=entries))
            if outcome is None:
                return self._run_serially(batch, job, discarded=attempt + 1)
            kernels = {name: self._channel(batch, name) for name in clocks}
            found = {name: self._checked(kernels[name], outcome) for name in clocks}
            checked = {name: each for name, each in found.items() if each is not None}
            if len(checked) == len(clocks) and all(each.right for each in checked.values()):
                saved = [self._saved(batch, name, channel) for name, channel in kernels.items()]
                return Ran(layout, _with_state(outcome, saved), discarded=attempt)
            self._abort(outcome)
            if len(checked) < len(clocks):
                break
            entries = {name: each.entries for name, each in checked.items()}
        return self._run_serially(batch, job, discarded=attempt + 1)

    def _run_serially(self, batch: Batch, job: Job, discarded: int) -> Ran:
        """Run a batch with one task for each clock; its errors count."""
        batch = replace(batch, serial_clocks=True)
        layout = self._program.layout(batch)
        return Ran(layout, job(layout, batch), discarded)

    def _results_of(self, job: Job, layout: StageLayout, batch: Batch) -> JobResult | None:
        """Return what tasks reported; None where one of them has failed, perhaps by a verdict."""
        try:
            return job(layout, batch)
        except AnabranchError:
            return None

    def _channel(self, batch: Batch, clock: str) -> Channel:
        """Return a replica of a clock that remembers nothing."""
        program = self._program
        plan = batch.plan.region(clock)
        return Channel(program.flow, program.contexts, program.regions[clock], plan, replica=0)

    def _checked(self, channel: Channel, outcome: JobResult) -> Checked | None:
        """Check what the tasks of a clock have reported."""
        name = channel.region.name
        tasks = sorted((r for r in outcome.reports if name in r.clocks), key=lambda r: r.task)
        return check(_kernel(channel), [report.clocks[name] for report in tasks])

    def _saved(self, batch: Batch, clock: str, channel: Channel) -> StateSaved:
        """Write what a clock remembers, and assume it in the next batch."""
        self._assumed[clock] = entry_state(_kernel(channel))
        name = state_name(batch.version, clock, 0, batch.token, DRIVER)
        sections = {
            (step, number): payload
            for step, payloads in channel.snapshot().items()
            for number, payload in enumerate(payloads)
        }
        written = StateWritten(True, *write_state(self._storage, name, sections))
        return StateSaved(clock, 0, name, BUCKETS, written)

    def _abort(self, outcome: JobResult) -> None:
        """Remove what tasks have prepared for sinks; state files are swept later."""
        for report in outcome.reports:
            for name, receipts in report.sinks.items():
                with suppress(Exception):  # whatever stays is swept later
                    self._program.sinks[name].abort(receipts, OutboxStage(self._storage))


def _kernel(channel: Channel) -> TimedKernel:
    [kernel] = channel.kernels.values()
    return cast(TimedKernel, kernel)


def _with_state(outcome: JobResult, saved: Sequence[StateSaved]) -> JobResult:
    """Add state that the driver has written to what a task reports."""
    first, *others = outcome.reports
    return JobResult([replace(first, state=(*first.state, *saved)), *others])
