"""A run's figures for Prometheus: counters and gauges folded from its events.

What nobody knows, such as the backlog of a source
that cannot tell, has no sample: a zero would be taken for a measurement.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from anabranch.errors import EngineError, Subject
from anabranch.events import (
    Decision,
    Event,
    Observation,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
)
from anabranch.planning.plan import Plan
from anabranch.view.addresses import url_of

MS = 1000.0
BATCH_PARTS = ("fixed", "scan", "shuffle", "compute", "state", "sink", "commit")
WORK_PARTS = ("scan", "compute", "sink")

Labels = tuple[str, ...]
Values = defaultdict[str, dict[Labels, float]]


class Metrics:
    """Hears the events of a run, from any thread, and tells them in the words of Prometheus.

    Another run that begins starts its counters at zero, as a process that starts again does.

    Example:
        >>> from anabranch.apps import word_count
        >>> plan = Plan.sequential(word_count.build())
        >>> metrics = Metrics()
        >>> metrics.hear(RunStarted("word-count", "local", plan.to_json(), -1))
        >>> print(str(metrics).splitlines()[-1])
        anabranch_region_replicas{flow="word-count",region="out"} 1.0
    """

    def __init__(self) -> None:
        """Know of no run."""
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(_Folded(self))
        self._begin(None)

    def _begin(self, started: RunStarted | None) -> None:
        self._started = started
        self._counts: Values = defaultdict(dict)
        self._gauges: Values = defaultdict(dict)
        self._latency: dict[str, float] = {}

    def hear(self, event: Event) -> None:
        """Take in an event; this is a listener for `start`."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._begin(event)
                self._gauges["anabranch_up"] = {(): 1}
                self._plan(Plan.from_json(event.plan))
                for name in ("anabranch_plan_changes", "anabranch_plan_change_pause_seconds"):
                    self._count(name, 0)
            elif isinstance(event, Observed):
                self._observed(event.observation)
            elif isinstance(event, Reconfiguration):
                self._count("anabranch_plan_changes", 1)
                self._count("anabranch_plan_change_pause_seconds", event.pause_ms / MS)
                self._plan(Plan.from_json(event.after))
            elif isinstance(event, Decision):
                self._count("anabranch_decisions", 1, event.policy, event.outcome)
            else:
                self._ended(event)

    def text(self) -> bytes:
        """All figures in the text format of Prometheus."""
        return generate_latest(self._registry)

    def __str__(self) -> str:
        return self.text().decode()

    def serve(self, port: int, address: str = "127.0.0.1") -> Endpoint:
        """Answer Prometheus at http://address:port/metrics until the endpoint is closed.

        Args:
            port: 0 takes one that is free.
            address: Where to listen; only this machine can ask unless told otherwise.
        """
        try:
            server, thread = start_http_server(port, address, self._registry)
        except OSError as error:
            raise EngineError(
                Subject("address", f"{address}:{port}"),
                f"a free port at {address}",
                f"{port}: {error.strerror or error}",
                "choose another, or 0 for one that is free",
            ) from error
        return Endpoint(server, thread)

    def _count(self, name: str, more: float, *labels: str) -> None:
        """More of what only grows, whatever rounding makes of a difference of two clocks."""
        counts = self._counts[name]
        counts[labels] = counts.get(labels, 0) + max(more, 0)

    def _count_up_to(self, name: str, total: float, *labels: str) -> None:
        counts = self._counts[name]
        counts[labels] = max(counts.get(labels, 0), total)

    def _plan(self, plan: Plan) -> None:
        self._gauges["anabranch_source_readers"] = {(s.source,): s.replicas for s in plan.sources}
        self._gauges["anabranch_region_replicas"] = {(r.region,): r.replicas for r in plan.regions}

    def _observed(self, seen: Observation) -> None:
        for source in seen.sources:
            self._count("anabranch_read_rows", source.rows, source.source)
        self._count("anabranch_written_rows", seen.rows_out)
        for step in seen.steps:
            self._count("anabranch_step_rows_in", step.rows_in, step.step)
            self._count("anabranch_step_rows_out", step.rows_out, step.step)
            self._count("anabranch_step_busy_seconds", step.busy_s, step.step)
            self._count_up_to("anabranch_skipped_rows", step.skipped, step.step)
            self._count_up_to("anabranch_late_rows", step.late, step.step)
        self._times(seen)
        self._now(seen)

    def _times(self, seen: Observation) -> None:
        if seen.in_batches:
            self._count("anabranch_batches", 1)
        name = "anabranch_batch_seconds" if seen.in_batches else "anabranch_cpu_seconds"
        for part in BATCH_PARTS if seen.in_batches else WORK_PARTS:
            self._count(name, getattr(seen.times, f"{part}_s"), part)

    def _now(self, seen: Observation) -> None:
        """What the newest observation says replaces what the one before said."""
        gauges = self._gauges
        gauges["anabranch_pipeline_busy_ratio"] = {
            (p.region, " · ".join(p.steps)): p.busy_share for p in seen.pipelines
        }
        gauges["anabranch_source_busy_ratio"] = _known(
            ((s.source,), s.busy_share) for s in seen.sources
        )
        if not seen.in_batches:  # nothing waits between steps where a batch is worked on whole
            gauges["anabranch_queue_rows"] = {(r.region,): r.queue_rows for r in seen.regions}
        gauges["anabranch_backlog_rows"] = _known(
            ((s.source,), s.backlog_rows) for s in seen.sources
        )
        gauges["anabranch_lag_seconds"] = _known(
            ((s.source,), None if s.lag_ms is None else s.lag_ms / MS) for s in seen.sources
        )
        gauges["anabranch_step_keys"] |= _known(((s.step,), s.keys) for s in seen.steps)
        told = {
            "0.5": seen.latency_p50_ms,
            "0.99": seen.latency_p99_ms,
            "0.999": seen.latency_p999_ms,
        }
        # No tuple takes no time: engines say 0 as long as they have seen none.
        self._latency = {quantile: ms / MS for quantile, ms in told.items() if ms}

    def _ended(self, event: RunEnded) -> None:
        """A run that is over has nothing that is true now; what it has counted stays."""
        self._count_up_to("anabranch_written_rows", event.rows_out)
        self._gauges = defaultdict(dict, {"anabranch_up": {(): 0}})
        self._latency = {}

    def families(self) -> list[Metric]:
        """All figures; nothing before a run has begun."""
        with self._lock:
            return [] if self._started is None else list(self._families(self._started))

    def _families(self, started: RunStarted) -> Iterator[Metric]:
        flow, engine = _in_utf8(started.flow), _in_utf8(started.engine)
        about = InfoMetricFamily("anabranch_run", "What runs, and on which engine.")
        about.add_metric([], {"flow": flow, "engine": engine})
        yield about
        for name, described in COUNTERS.items():
            labels = ("flow", *described.labels)
            counter = CounterMetricFamily(name, described.help, labels=labels)
            for values, value in self._counts[name].items():
                counter.add_metric((flow, *map(_in_utf8, values)), value)
            yield counter
        for name, described in GAUGES.items():
            gauge = GaugeMetricFamily(name, described.help, labels=("flow", *described.labels))
            for values, value in self._gauges[name].items():
                gauge.add_metric((flow, *map(_in_utf8, values)), value)
            yield gauge
        latency = SummaryMetricFamily(LATENCY, LATENCY_HELP)
        for quantile, seconds in self._latency.items():
            latency.add_sample(LATENCY, {"flow": flow, "quantile": quantile}, seconds)
        yield latency


class _Folded(Collector):
    """What Prometheus asks; beside `Metrics`, whose users should not see `collect`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return [family for family in self._metrics.families() if family.samples]


class Endpoint:
    """A port that answers Prometheus until it is closed, or the block ends that it is used in."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        """Hold a server that listens already."""
        self._server, self._thread = server, thread
        host, self.port = server.server_address[:2]
        self.url = f"{url_of(str(host), self.port)}/metrics"

    def close(self) -> None:
        """Stop listening; again does nothing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _known(values: Iterable[tuple[Labels, float | None]]) -> dict[Labels, float]:
    return {labels: value for labels, value in values if value is not None}


def _in_utf8(label: str) -> str:
    """A label that can be sent: half a character of UTF-16, which names may hold, cannot."""
    return label.encode(errors="backslashreplace").decode()


# What a run's figures are called for Prometheus, by its conventions.
#
# Base units (seconds, ratios, rows), the unit last in the name; `_total` is put behind counters,
# which only grow. The samples of a metric can be added up: rows into a step and rows out of it are
# two metrics. Every metric has the label `flow` besides those named here.


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
