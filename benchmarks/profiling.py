"""What observing costs on the local engine: processor seconds per million tuples, on and off."""

from __future__ import annotations

import statistics
from functools import partial

import pyarrow as pa
from harness import Report, Sample, main
from local_streams import Drop, processor_s, start, word_count, word_count_plan, zipf_lines

from anabranch.io import memory

LINES, QUICK_LINES = 1_000_000, 300_000
BATCH_ROWS = 8_192
PAIRS, QUICK_PAIRS = 30, 5
BAR = 0.02


def measure(quick: bool) -> Report:
    report = Report("profiling", "Observing costs next to nothing")
    lines = zipf_lines(QUICK_LINES if quick else LINES)
    run = partial(cpu_s_per_million, lines)
    run(profile=True)
    pairs = []
    for number in range(QUICK_PAIRS if quick else PAIRS):
        order = (True, False) if number % 2 else (False, True)
        found = {profile: run(profile=profile) for profile in order}
        pairs.append((found[True], found[False]))
    report.add_sample("cpu_s_per_million_on", Sample.of([on for on, _ in pairs]))
    report.add_sample("cpu_s_per_million_off", Sample.of([off for _, off in pairs]))
    report.add_figure("pairs", len(pairs))
    cost = statistics.median([on / off for on, off in pairs]) - 1
    report.add_sample("cost_share", Sample.of([on / off - 1 for on, off in pairs]))
    report.add_bar("cost_share", cost, BAR, at_least=False)
    return report


def cpu_s_per_million(lines: pa.RecordBatch, *, profile: bool) -> float:
    """Processor seconds of all processes for a million lines."""
    flow = word_count(memory(lines), Drop())
    before = processor_s()
    start(flow, word_count_plan(flow, BATCH_ROWS), profile=profile).wait()
    return (processor_s() - before) / lines.num_rows * 1e6


if __name__ == "__main__":
    main(measure)
