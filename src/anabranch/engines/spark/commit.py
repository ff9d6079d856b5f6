"""The manifest of a batch, from the reports of its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from anabranch.engines.checkpoint.chain import StateFile, chain
from anabranch.engines.checkpoint.manifest import Latest, Manifest
from anabranch.engines.spark.intake import Intake
from anabranch.engines.spark.program import Batch, Outcome
from anabranch.engines.spark.task_report import StateSaved, TaskReport
from anabranch.io.sink import Receipt
from anabranch.operators.base import Counters


def next_manifest(
    last: Manifest | None,
    batch: Batch,
    outcome: Outcome,
    intake: Intake,
) -> Manifest:
    """What this batch did, on top of what was before; the intake has taken it in already."""
    reports = outcome.reports
    saved = [each for report in reports for each in report.state]
    return Manifest(
        version=batch.version,
        token=batch.token,
        plan=batch.plan.to_json(),
        offsets=intake.offsets(),
        state=chain(() if last is None else last.state, _state_files(batch.version, saved)),
        latest=_latest(saved),
        sinks=_receipts(reports),
        counters=_counters({} if last is None else last.counters, reports),
        timers=_timers(reports),
        ended=intake.over,
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
    found: defaultdict[str, tuple[Receipt, ...]] = defaultdict(tuple)
    for report in reports:
        for sink, receipt in report.sinks.items():
            if receipt is not None:
                found[sink] += (receipt,)
    return dict(found)


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
