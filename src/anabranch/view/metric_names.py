"""What a run's figures are called for Prometheus, by its conventions.

Base units (seconds, ratios, rows), the unit last in the name; `_total` is put behind counters,
which only grow. The samples of a metric can be added up: rows into a step and rows out of it are
two metrics. Every metric has the label `flow` besides those named here.
"""

from __future__ import annotations

from typing import NamedTuple


class Described(NamedTuple):
    """The labels of a metric beside the flow, and what it says."""

    labels: tuple[str, ...]
    help: str


COUNTERS = {
    "anabranch_read_rows": Described(("source",), "Rows read."),
    "anabranch_written_rows": Described((), "Rows written by all sinks."),
    "anabranch_step_rows_in": Described(("step",), "Rows into a step."),
    "anabranch_step_rows_out": Described(("step",), "Rows out of a step, over all its ports."),
    "anabranch_step_busy_seconds": Described(
        ("step",), "Time spent in a step, over all its replicas."
    ),
    "anabranch_skipped_rows": Described(
        ("step",), "Rows that were malformed or on which a step raised."
    ),
    "anabranch_late_rows": Described(("step",), "Rows that came too late."),
    "anabranch_batches": Described((), "Micro-batches done."),
    "anabranch_batch_seconds": Described(
        ("part",), "Where the time of micro-batches went; parallel tasks count with the slowest."
    ),
    "anabranch_cpu_seconds": Described(
        ("part",), "Processor time of threads by kind of work, where there are no batches."
    ),
    "anabranch_plan_changes": Described((), "Changes of the plan."),
    "anabranch_plan_change_pause_seconds": Described(
        (), "How long rows stood still for changes of the plan."
    ),
    "anabranch_decisions": Described(("policy", "outcome"), "Lines of the policy's journal."),
}

GAUGES = {
    "anabranch_up": Described((), "Whether the flow runs."),
    "anabranch_source_readers": Described(("source",), "Parallel readers in the plan in force."),
    "anabranch_source_busy_ratio": Described(
        ("source",), "Part of the time that a source is read, by average reader."
    ),
    "anabranch_region_replicas": Described(("region",), "Replicas in the plan in force."),
    "anabranch_pipeline_busy_ratio": Described(
        ("region", "pipeline"), "Part of the time that a pipeline works, by average replica."
    ),
    "anabranch_queue_rows": Described(("region",), "Rows that wait in front of a region."),
    "anabranch_backlog_rows": Described(("source",), "Rows that are known to wait to be read."),
    "anabranch_lag_seconds": Described(
        ("source",), "How long the rows read last had waited where they come from."
    ),
    "anabranch_step_keys": Described(("step",), "Keys that a step holds state for."),
}

LATENCY = "anabranch_latency_seconds"
LATENCY_HELP = (
    "From reading a row to its result being visible: a summary of what was seen last, "
    "without _sum and _count, since engines keep quantiles only."
)
