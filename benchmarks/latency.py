"""Latency of word count on the local engine at 80 % of its maximum rate, and a sink that is slow.

The maximum is measured first. Latency is from reading a line to the changes it caused being with
the sink. Then a sink a hundred times slower than the source for a minute: memory must stay.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from harness import Report, Sample, main
from local_streams import Drop, Endless, start, word_count, word_count_plan, zipf_lines

LINES = 500_000
BATCH_ROWS = 8_192
LOAD = 0.8
ROUNDS, QUICK_ROUNDS = 5, 1
MAXIMUM_S, PACED_S = 4.0, 12.0
SLOW_S, QUICK_SLOW_S = 60.0, 8.0
SLOWER = 100
P99_BAR_MS, GROWTH_BAR_MB = 20.0, 100.0


def measure(quick: bool) -> Report:
    report = Report("latency", "Milliseconds at 80 % load; back-pressure instead of memory")
    lines = zipf_lines(LINES)
    rounds = [one_round(lines) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
    for place, key in enumerate(("maximum_lines_per_s", "p50_ms", "p99_ms", "p999_ms")):
        report.add_sample(key, Sample.of([each[place] for each in rounds]))
    p99 = statistics.median([each[2] for each in rounds])
    report.add_bar("p99_ms", p99, P99_BAR_MS, at_least=False)
    rate = statistics.median([each[0] for each in rounds])
    growth = slow_sink(lines, rate, QUICK_SLOW_S if quick else SLOW_S)
    report.add_figure("slow_sink_growth_mb", growth)
    report.add_bar("slow_sink_growth_mb", growth, GROWTH_BAR_MB, at_least=False)
    return report


def one_round(lines) -> tuple[float, float, float, float]:
    """The maximum rate, and percentiles of the latency at a share of it."""
    flow = word_count(Endless(lines), Drop())
    engine = start(flow, word_count_plan(flow, BATCH_ROWS))
    time.sleep(1.0)
    before, began = engine.rows[0], time.monotonic()
    time.sleep(MAXIMUM_S)
    rate = (engine.rows[0] - before) / (time.monotonic() - began)
    engine.stop()
    flow = word_count(Endless(lines, LOAD * rate), Drop())
    engine = start(flow, word_count_plan(flow, BATCH_ROWS))
    time.sleep(PACED_S)
    read = engine.rows[0] / engine.seconds
    engine.stop()
    if read < 0.97 * LOAD * rate:
        raise AssertionError(f"{read:,.0f} lines/s were read, {LOAD * rate:,.0f} were due")
    return rate, *(engine.latency_ms(share) for share in (0.5, 0.99, 0.999))


def slow_sink(lines, rate: float, seconds: float) -> float:
    """Growth of the resident memory while the sink is the bottleneck, in MB."""
    flow = word_count(Endless(lines), Drop(sleep_s_a_row=SLOWER / rate))
    engine = start(flow, word_count_plan(flow, BATCH_ROWS))
    time.sleep(2.0)
    before, most = resident_mb(), 0.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.5)
        most = max(most, resident_mb())
    engine.stop()
    return most - before


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main(measure)
