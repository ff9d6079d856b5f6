"""Where the time of a batch goes: word count on Spark, batches of 1 and 20 million words.

Medians over the warm batches of one run each. Stages run one after another; within a stage the
slowest task counts. What is in no task is fixed: Spark's planning and scheduling, our log and
manifest. Spark's own log and commit come on top, as its progress tells them.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

from harness import Report, main
from spark_baselines import spark
from spark_ours import run_ours
from word_data import write_words

from anabranch.events import BatchTimes, Event, Observed

SIZES = {"1m": 1_000_000, "20m": 20_000_000}
DISTINCT = 10_000


def measure(quick: bool) -> Report:
    report = Report("time_split", "Most of a large batch is the work itself")
    session = spark()
    batches = 4 if quick else 8
    try:
        for label, words in SIZES.items():
            times = one_run(session, words, batches)
            for kind in asdict(times[0]):
                median = statistics.median(getattr(each, kind) for each in times)
                report.add_figure(f"{kind.removesuffix('_s')}_ms_{label}", 1000 * median)
    finally:
        session.stop()
    return report


def one_run(session: object, words: int, batches: int) -> list[BatchTimes]:
    """How the time of each warm batch was spent."""
    times: list[BatchTimes] = []

    def hear(event: Event) -> None:
        if isinstance(event, Observed):
            times.append(event.observation.times)

    with tempfile.TemporaryDirectory(prefix="split-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        files = write_words(root / "in", batches=batches, words_a_batch=words, distinct=DISTINCT)
        run_ours(session, files, root / "cold", emit="changes")
        run_ours(session, files, root / "warm", emit="changes", listener=hear)
    return times[1:]


if __name__ == "__main__":
    main(measure)
