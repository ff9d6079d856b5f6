"""Word count on Spark: ours, Spark SQL and the pandas way, in one JVM, on the same files.

Contenders take turns; a turn is a query from a fresh checkpoint over all batches, and its first
batch does not count. The counts that a turn ends in are checked. Generated lines have ten words;
words follow Zipf's law.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from harness import Report, Sample, interleave, main, ratios
from pyspark.sql import SparkSession
from spark_baselines import STORES, remove, run_pandas, run_sql, spark
from spark_ours import run_ours
from word_data import Pass, WordFiles, check_counts, write_words

CHANGES_BAR, EVERY_BAR = 2.5, 1.0
PANDAS_BAR = 15.0
Contender = Callable[[SparkSession, WordFiles, Path], Pass]

CONTENDERS: Mapping[str, Contender] = {
    "changes": partial(run_ours, emit="changes"),
    "every": partial(run_ours, emit="every"),
    "sql": run_sql,
}
# Each state store and number of partitions: shows that the fastest Spark SQL is the one compared.
SQL_VARIANTS: Mapping[str, Contender] = {
    f"sql_{store}_{partitions}": partial(run_sql, store=store, partitions=partitions)
    for store in STORES
    for partitions in (2, 4)
}


@dataclass(frozen=True)
class Setting:
    """One size of batches and of vocabulary; `label` names its figures.

    Attributes:
        words_a_batch: Words in a micro-batch.
        distinct: Size of the vocabulary.
        batches: Micro-batches in a turn, the first of which does not count.
        repetitions: Turns of each contender that count.
        claimed: Whether the bars stand here. One short turn tells too little for a verdict:
            on a busy machine Spark SQL beside itself gave 0.8 and 1.6.
        pandas_words: Words in a micro-batch of the pandas way, where it takes part. It pays for
            each distinct word of a batch, so small batches would wrong it: with five million
            words its rate is more than twice that with one.
    """

    words_a_batch: int
    distinct: int
    batches: int
    repetitions: int
    claimed: bool = False
    pandas_words: int | None = None

    @property
    def label(self) -> str:
        return f"{short(self.words_a_batch)}_{short(self.distinct)}"


FULL = (
    Setting(1_000_000, 10_000, batches=6, repetitions=5),
    Setting(1_000_000, 1_000_000, batches=4, repetitions=3),
    Setting(20_000_000, 1_000_000, batches=3, repetitions=2),
    Setting(20_000_000, 10_000, 3, repetitions=3, claimed=True, pandas_words=5_000_000),
)
QUICK = (
    Setting(1_000_000, 10_000, batches=3, repetitions=1, pandas_words=1_000_000),
    Setting(2_000_000, 10_000, batches=4, repetitions=1),
)
PANDAS_BATCHES = 2


def measure(quick: bool) -> Report:
    report = Report("word_count", "Word count on Spark, faster than Spark SQL's own")
    session = spark()
    turns = Turns(session)
    try:
        for setting in QUICK if quick else FULL:
            tell(report, setting, compare(turns, setting, CONTENDERS))
        if not quick:
            variants = compare(turns, FULL[0], SQL_VARIANTS)
            for name, sample in variants.items():
                report.add_sample(f"{name}_words_per_s_{FULL[0].label}", sample)
    finally:
        session.stop()
    return report


class Turns:
    """Runs contenders on a session, each time in a folder of its own, and checks their counts."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.numbers = count()

    def words_per_s(self, name: str, contender: Contender, files: WordFiles, root: Path) -> float:
        """One turn: the rate over all batches but the first."""
        work = root / f"{name}-{next(self.numbers)}"
        done = contender(self.session, files, work)
        check_counts(files, done.output, files.words if name == "every" else None)
        remove(work)
        warm = done.batch_seconds[1:]
        return len(warm) * files.words_a_batch / sum(warm)


def compare(
    turns: Turns, setting: Setting, contenders: Mapping[str, Contender]
) -> dict[str, Sample]:
    """Words per second of each contender, on one set of files that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="words-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        write = partial(write_words, distinct=setting.distinct)
        files = write(root / "in", batches=setting.batches, words_a_batch=setting.words_a_batch)
        cases = {
            name: partial(turns.words_per_s, name, contender, files, root)
            for name, contender in contenders.items()
        }
        if words := setting.pandas_words:
            fewer = write(root / "fewer", batches=PANDAS_BATCHES, words_a_batch=words)
            cases["pandas"] = partial(turns.words_per_s, "pandas", run_pandas, fewer, root)
        return interleave(cases, setting.repetitions)


def tell(report: Report, setting: Setting, samples: dict[str, Sample]) -> None:
    """Rates, ours as multiples of Spark's, and the bars on those.

    `every` writes each occurrence of a word in total order, Spark SQL each word once a batch.
    """
    label = setting.label
    for name in CONTENDERS:
        report.add_sample(f"{name}_words_per_s_{label}", samples[name])
    for name, limit in (("changes", CHANGES_BAR), ("every", EVERY_BAR)):
        vs_sql = ratios(samples[name], samples["sql"])
        report.add_sample(f"{name}_vs_sql_{label}", vs_sql)
        if setting.claimed:
            report.add_bar(f"{name}_vs_sql_{label}", vs_sql.median, limit)
    if setting.pandas_words:
        batch = short(setting.pandas_words)
        report.add_sample(
            f"pandas_words_per_s_{batch}_{short(setting.distinct)}", samples["pandas"]
        )
        vs_pandas = ratios(samples["changes"], samples["pandas"])
        report.add_sample(f"changes_vs_pandas_{label}", vs_pandas)
        if setting.claimed:
            report.add_bar(f"changes_vs_pandas_{label}", vs_pandas.median, PANDAS_BAR)


def short(number: int) -> str:
    """A number as in a figure's name: 10k, 1m."""
    return f"{number // 1_000_000}m" if number >= 1_000_000 else f"{number // 1_000}k"


if __name__ == "__main__":
    main(measure)
