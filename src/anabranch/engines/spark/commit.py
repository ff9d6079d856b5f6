"""The manifest of a batch, from what its tasks have told."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from anabranch.engines.checkpoint import bucket_ranges
from anabranch.engines.checkpoint.chain import StateFile, chain
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sinks import Sinks
from anabranch.engines.spark.intake import Intake
from anabranch.engines.spark.program import Batch, Outcome
from anabranch.operators.base import Counters


def next_manifest(
    last: Manifest | None,
    batch: Batch,
    outcome: Outcome,
    intake: Intake,
    sinks: Sinks,
) -> Manifest:
    """What this batch did, on top of what was before; the intake has taken it in already."""
    reports = outcome.reports
    saved = [told for report in reports for told in report["state"]]
    files = [_state_file(batch.version, told) for told in saved if told["file"] is not None]
    return Manifest(
        version=batch.version,
        token=batch.token,
        plan=batch.plan.to_json(),
        offsets=intake.offsets(),
        state=chain(() if last is None else last.state, files),
        latest=_latest(saved),
        sinks=sinks.named(batch.version, [told for report in reports for told in report["sinks"]]),
        counters=_counters({} if last is None else last.counters, reports),
        timers=_timers(reports),
        ended=intake.over,
    )


def _state_file(version: int, told: dict[str, Any]) -> StateFile:
    whole, size, crc = told["file"]
    return StateFile(
        told["name"],
        told["region"],
        told["replica"],
        version,
        whole,
        bucket_ranges.from_text(told["buckets"]),
        size,
        crc,
    )


def _latest(saved: list[dict[str, Any]]) -> dict[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for told in saved:
        found[told["region"]].append(told)
    return {
        region: tuple(
            (told["name"], bucket_ranges.from_text(told["buckets"]))
            for told in sorted(replicas, key=lambda t: int(t["replica"]))
        )
        for region, replicas in found.items()
    }


def _counters(
    before: dict[str, dict[str, int]], reports: list[dict[str, Any]]
) -> dict[str, dict[str, int]]:
    counted = {step: Counters.of(numbers) for step, numbers in before.items()}
    for report in reports:
        for step, numbers in report["counters"].items():
            counted.setdefault(step, Counters()).add(Counters.of(numbers))
    return {step: total.counts() for step, total in counted.items()}


def _timers(reports: list[dict[str, Any]]) -> dict[str, int | None]:
    due: dict[str, int | None] = {}
    for report in reports:
        for region, timer in report["timers"].items():
            known = due.get(region)
            due[region] = timer if known is None else known if timer is None else min(known, timer)
    return due
