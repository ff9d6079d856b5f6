"""Latency of word count on the local engine at shares of its maximum rate, and a slow sink.

The maximum is measured first, one replica of each region. Latency is from the moment that a line
was due to the changes it caused being with the sink. Then a sink a hundred times slower than the
source for a minute: memory must stay.
"""

from __future__ import annotations

import time

import pyarrow as pa
from harness import Report, Sample, main
from local_streams import (
    Drop,
    Endless,
    memory_mb,
    start,
    word_count,
    word_count_plan,
    zipf_lines,
)

from anabranch.engines.local.engine import LocalEngine
from anabranch.planning.plan import Plan

LINES = 500_000
BATCH_ROWS = 4_096
LOADS = (0.8, 0.5)
BAR_LOAD = 0.8
ROUNDS, QUICK_ROUNDS = 5, 1
WARM_UP_S, MAXIMUM_S, PACED_S = 1.5, 3.0, 8.0
SLOW_S, QUICK_SLOW_S = 60.0, 5.0
SLOWER = 100
P99_BAR_MS, GROWTH_BAR_MB = 20.0, 100.0


def measure(quick: bool) -> Report:
    report = Report("latency", "Milliseconds under load; back-pressure instead of memory")
    lines = zipf_lines(LINES)
    rounds = [one_round(lines) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
    rates = Sample.of([rate for rate, _ in rounds])
    report.add_sample("maximum_lines_per_s", rates)
    for load in LOADS:
        for share, name in ((0.5, "p50"), (0.99, "p99"), (0.999, "p999")):
            found = Sample.of([at_load[load][share] for _, at_load in rounds])
            report.add_sample(f"{name}_ms_at_{load:.0%}_load", found)
            if (load, share) == (BAR_LOAD, 0.99):
                report.add_bar("p99_ms", found.median, P99_BAR_MS, at_least=False)
    growth = slow_sink(lines, rates.median, QUICK_SLOW_S if quick else SLOW_S)
    report.add_figure("slow_sink_growth_mb", growth)
    report.add_bar("slow_sink_growth_mb", growth, GROWTH_BAR_MB, at_least=False)
    return report


def one_round(lines: pa.RecordBatch) -> tuple[float, dict[float, dict[float, float]]]:
    """The maximum rate, and by load the percentiles of the latency, after a warm-up."""
    rate, _ = run(lines, None, MAXIMUM_S)
    at_load = {}
    for load in LOADS:
        read, engine = run(lines, load * rate, PACED_S)
        if read < 0.97 * load * rate:
            raise AssertionError(f"{read:,.0f} lines/s were read, {load * rate:,.0f} were due")
        at_load[load] = {share: engine.latency_ms(share) for share in (0.5, 0.99, 0.999)}
    return rate, at_load


def run(lines: pa.RecordBatch, rate: float | None, seconds: float) -> tuple[float, LocalEngine]:
    """Lines read per second, and the engine, which has stopped."""
    flow = word_count(Endless(lines, rate), Drop())
    engine = start(flow, Plan.sequential(flow).with_source("lines", batch_rows=BATCH_ROWS))
    time.sleep(WARM_UP_S)
    engine.latencies.forget()
    before, began = engine.rows[0], time.monotonic()
    time.sleep(seconds)
    read = (engine.rows[0] - before) / (time.monotonic() - began)
    engine.stop()
    return read, engine


def slow_sink(lines: pa.RecordBatch, rate: float, seconds: float) -> float:
    """Growth of the memory of all processes while the sink is the bottleneck, in MB."""
    flow = word_count(Endless(lines), Drop(sleep_s_a_row=SLOWER / rate))
    engine = start(flow, word_count_plan(flow, BATCH_ROWS))
    time.sleep(2.0)
    before, most = memory_mb(), 0.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.5)
        most = max(most, memory_mb())
    engine.stop()
    return most - before


if __name__ == "__main__":
    main(measure)
