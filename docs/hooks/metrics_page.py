"""The page of metrics, from the names that the endpoint uses."""

from __future__ import annotations

from collections.abc import Mapping

from markup import cell, code, table

from anabranch.view.metrics import COUNTERS, GAUGES, LATENCY, LATENCY_HELP, Described

INTRODUCTION = """# Metrics

What [the endpoint for Prometheus](../how-to/prometheus.md) tells. Every metric has the label `flow`
besides those named here.
"""


def metrics_page() -> str:
    """Counters, gauges and the latency."""
    parts = [
        INTRODUCTION,
        "## Counters",
        _table(COUNTERS, "_total"),
        "## Gauges",
        _table(GAUGES, ""),
        "## Latency",
        f"{code(LATENCY)}, with the label `quantile`: {LATENCY_HELP}",
    ]
    return "\n\n".join(parts) + "\n"


def _table(metrics: Mapping[str, Described], ending: str) -> str:
    rows = [
        (code(name + ending), ", ".join(map(code, metric.labels)), cell(metric.help))
        for name, metric in metrics.items()
    ]
    return table(("metric", "labels", "what"), rows)
