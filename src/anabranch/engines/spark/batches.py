"""Micro-batches, one after another: what makes them exactly once.

Batch n: log the plan and what is read → one job, whose tasks write state and sink files under
names of their own → the manifest says which of them count → they become visible. A batch that has
a log is run as the log says; one that has its manifest already is only made visible again. Who runs
the job is a parameter: Spark, or a test. Where tasks judge slices of clocks, `clocks.py` has the
job run again until their verdicts are right.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.identity import require_same_parts
from anabranch.engines.checkpoint.manifest import BatchLog, Latest, Manifest
from anabranch.engines.checkpoint.restoring import files_of
from anabranch.engines.checkpoint.sinks import Sinks
from anabranch.engines.checkpoint.state_files import StateFile, chain
from anabranch.engines.spark.clocks import ClockChecks, Job
from anabranch.engines.spark.intake import Intake, Share, shares_from_json, shares_to_json
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.state_loader import sweep
from anabranch.engines.spark.task_inputs import Batch, JobResult, Program, SavedRegion
from anabranch.engines.spark.task_report import StateSaved, TaskReport
from anabranch.errors import StateError, Subject
from anabranch.io.sink import Receipt
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan

CLEAN_EVERY = 8


@dataclass(frozen=True)
class Done:
    """A micro-batch that has happened.

    Attributes:
        plan: What it ran under.
        before: What the batch before it ran under.
        layout: Its stages and tasks.
        outcome: What its tasks told.
        read: Tuples by source.
        manifest: What it committed.
        seconds: From the decision what to read to the results being visible.
        began: When that was, on the monotonic clock.
        discarded: How many jobs of it do not count, because of wrong verdicts of clocks.
    """

    plan: Plan
    before: Plan
    layout: StageLayout
    outcome: JobResult
    read: dict[str, int]
    manifest: Manifest
    seconds: float
    began: float
    discarded: int = 0


class Batches:
    """The batches of one run, on the driver; batch n of Spark makes version `batch_zero` + n.

    Args:
        program: The flow.
        checkpoint: Where logs, manifests and state are.
        sinks: Where results go.
        limit_rows: Read no more of each source than this.
    """

    def __init__(
        self, program: Program, checkpoint: Checkpoint, sinks: Sinks, limit_rows: int | None
    ) -> None:
        self._program, self._checkpoint, self._sinks = program, checkpoint, sinks
        self._clocks = ClockChecks(program, checkpoint.storage)
        self.intake = Intake(program, limit_rows)
        last = checkpoint.last
        ended = last is not None and last.ended
        require_same_parts(checkpoint.storage, program.sources, ended=ended)
        if last is not None:
            self.intake.restore(last.offsets)
        self.batch_zero = _batch_zero(last)
        checkpoint.require_newest()
        sinks.open(last)

    def ended(self) -> bool:
        """Whether the end of all sources has been worked on."""
        last = self._checkpoint.last
        return last is not None and last.ended

    def happened(self, version: int) -> bool:
        """Whether a batch has its manifest."""
        return self._checkpoint.manifest(version) is not None

    def next(
        self, version: int, wish: Plan, before: Plan, elapsed_s: float, job: Job
    ) -> Done | None:
        """Run a batch, or make it visible if it has happened; None when there is nothing to do."""
        happened = self._happened(version)
        if happened is not None:
            self._sinks.commit(happened, self._checkpoint.require_owned)
            return None
        began = time.monotonic()
        log = self._checkpoint.log(version)
        if log is not None:
            plan, shares = Plan.from_json(log.plan), shares_from_json(log.intake)
        else:
            decided = self.intake.decide(wish, elapsed_s)
            if decided is None:
                return None
            plan, shares = wish, decided
            content = shares_to_json(shares)
            self._checkpoint.write_log(
                BatchLog(version, self._checkpoint.token, plan.to_json(), content)
            )
        last = self._checkpoint.last
        batch = self._described(version, plan, shares, last)
        ran = self._clocks.run(batch, job)
        read = self.intake.advance(shares, ran.outcome.reports)
        manifest = next_manifest(last, batch, ran.outcome, self.intake, self.batch_zero)
        self._checkpoint.publish(manifest)
        self._sinks.commit(manifest, self._checkpoint.require_owned)
        seconds = time.monotonic() - began
        self._clean(manifest)
        ended = (read, manifest, seconds, began, ran.discarded)
        return Done(plan, before, ran.layout, ran.outcome, *ended)

    def _happened(self, version: int) -> Manifest | None:
        """The manifest of a batch that is asked for again, which can only be the last one."""
        last = self._checkpoint.last
        known = -1 if last is None else last.version
        happened = self._checkpoint.manifest(version)
        lost = self.intake.pushed and version > known + 1  # rows that Spark takes for done
        if version < known or lost or (happened is not None and version > known):
            raise StateError(
                Subject("checkpoint", self._checkpoint.storage.location),
                f"batch {known} again, or one that has not happened",
                f"batch {version}"
                + (", which another run committed meanwhile" if happened is not None else ""),
                "start again, with one run at a time; if that does not help, Spark's own part of "
                "the checkpoint is lost: start afresh in a new checkpoint directory",
            )
        return happened

    def _described(
        self, version: int, plan: Plan, shares: dict[str, Share], last: Manifest | None
    ) -> Batch:
        state = {}
        if last is not None:
            for region in self._program.regions:
                state[region] = SavedRegion(
                    tuple(last.latest.get(region, ())),
                    files_of(last.state, region),
                    foreign=last.batch_zero is None,
                )
        return Batch(
            version,
            self._checkpoint.token,
            plan,
            {name: share.slices for name, share in shares.items()},
            self.intake.offsets(),
            frozenset(name for name, share in shares.items() if share.over),
            state,
            {name: s.record for name, s in shares.items() if s.record is not None},
            {name: s.arrived for name, s in shares.items() if s.arrived is not None},
        )

    def _clean(self, manifest: Manifest) -> None:
        """Remove what nobody will ask for any more."""
        self._sinks.clean(manifest)
        if manifest.version % CLEAN_EVERY == 0 or manifest.ended:
            self._checkpoint.clean()
            self._sinks.sweep(manifest)
        names = [name for replicas in manifest.latest.values() for name, _ in replicas]
        sweep(self._program.cache, names)


def _batch_zero(last: Manifest | None) -> int:
    """The version of batch 0 of Spark, which counts anew after versions of another engine."""
    if last is None:
        return 0
    return last.version + 1 if last.batch_zero is None else last.batch_zero


# The manifest of a batch, from the reports of its tasks.


def next_manifest(
    last: Manifest | None,
    batch: Batch,
    outcome: JobResult,
    intake: Intake,
    batch_zero: int,
) -> Manifest:
    """What this batch did, on top of what was before; the intake has taken it in already."""
    reports = outcome.reports
    # After versions of another engine everything was written whole: see SavedRegion.
    before = () if last is None or last.batch_zero is None else last.state
    # What waits at sinks is in files of gates, whose labels are others: see restoring.py.
    sinks = {name for report in reports for name in report.sinks}
    before = tuple(file for file in before if file.region not in sinks)
    saved = [each for report in reports for each in report.state]
    return Manifest(
        version=batch.version,
        token=batch.token,
        plan=batch.plan.to_json(),
        offsets=intake.offsets(),
        state=chain(before, _state_files(batch.version, saved)),
        latest=_latest(saved),
        sinks=_receipts(reports),
        counters=_counters({} if last is None else last.counters, reports),
        timers=_timers(reports),
        ended=intake.over,
        batch_zero=batch_zero,
    )


def _state_files(version: int, saved: Sequence[StateSaved]) -> list[StateFile]:
    return [
        StateFile(
            each.name,
            each.region,
            each.replica,
            version,
            each.file.whole,
            each.buckets,
            each.file.size,
            each.file.crc,
        )
        for each in saved
        if each.file is not None
    ]


def _receipts(reports: Sequence[TaskReport]) -> dict[str, tuple[Receipt, ...]]:
    """Return what was prepared for each sink, in the order of the stream."""
    found: defaultdict[str, list[Receipt]] = defaultdict(list)
    for report in reports:
        for sink, receipts in report.sinks.items():
            found[sink] += receipts
    return {s: tuple(sorted(each, key=lambda r: r.place)) for s, each in found.items() if each}


def _latest(saved: Sequence[StateSaved]) -> Latest:
    found: defaultdict[str, list[StateSaved]] = defaultdict(list)
    for each in saved:
        found[each.region].append(each)
    return {
        region: tuple((s.name, s.buckets) for s in sorted(replicas, key=lambda s: s.replica))
        for region, replicas in found.items()
    }


def _counters(
    before: Mapping[str, Mapping[str, int]], reports: Sequence[TaskReport]
) -> dict[str, dict[str, int]]:
    counted = {step: Counters.of(numbers) for step, numbers in before.items()}
    for report in reports:
        for step, lost in report.counters.items():
            counted.setdefault(step, Counters()).add(lost)
    return {step: total.counts() for step, total in counted.items()}


def _timers(reports: Sequence[TaskReport]) -> dict[str, int | None]:
    due: dict[str, int | None] = {}
    for report in reports:
        for region, timer in report.timers.items():
            known = due.get(region)
            due[region] = timer if known is None else known if timer is None else min(known, timer)
    return due
