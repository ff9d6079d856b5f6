"""Every application on both engines, and some of them beside PySpark, on the same files.

Rates are rows read per second; on Spark over all micro-batches but the first, on threads over the
whole run. Applications run under the plan with one replica of everything and under that with as
many as there are cores, beside PySpark under a few more; the best one counts, as it would for a
policy. PySpark's versions have the best of two state stores and of two numbers of partitions, and
of the queries where there are several. Both sides find their best by one run each, behind one that
warms up. Contenders take turns in one JVM, each from a fresh checkpoint; the median of the ratios
of each round counts.
`APPS_ONLY=finance,linear-road` in the environment measures those alone. What Spark says in SQL is
in `word_count.py` and `spark_sql.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import TypeVar

import apps_agreement as agreement
import apps_baselines as baselines
import pyarrow.parquet as pq
from apps_agreement import Check
from apps_baselines import SETTINGS, Settings, Version, one_query
from apps_data import AppFiles, write_files
from harness import Report, interleave, main, ratios
from pyspark.sql import SparkSession
from spark_baselines import CORES, spark
from speedup_plans import in_batches, spark_plans_for_two

import anabranch as ab
from anabranch.apps import APPS
from anabranch.engines.spark.layout import with_ranges
from anabranch.flow import Flow
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from anabranch.planning.starting import side_by_side

Candidate = TypeVar("Candidate")

PYTHON_BAR = 3.0
MOST_ROWS = 2_000_000


@dataclass(frozen=True)
class Contest:
    """An application beside its PySpark version.

    Attributes:
        name: Of the application.
        build: Makes its flow.
        theirs: The PySpark version; the best of them where there are several.
        rows: Rows of all sources in a micro-batch.
        bar: How many times as fast ours shall be.
        checks: By sink, whether both found the same.
        label: What the figures are called after the application's name.
    """

    name: str
    build: Callable[..., Flow]
    theirs: tuple[Version, ...]
    rows: int
    bar: float
    checks: Mapping[str, Check]
    label: str = "pyspark"


CONTESTS = (
    Contest(
        "word-count",
        APPS["word-count"].build,
        (one_query(baselines.word_count_pandas, "update"),),
        200_000,
        PYTHON_BAR,
        {"out": agreement.word_count},
    ),
    Contest(
        "spike-detection",
        APPS["spike-detection"].build,
        (one_query(baselines.spike_detection, "append"),),
        2_000_000,
        PYTHON_BAR,
        {"out": agreement.spike_detection},
    ),
    Contest(
        "finance",
        APPS["finance"].build,
        (one_query(baselines.finance, "append"),),
        1_000_000,
        PYTHON_BAR,
        {"out": agreement.finance},
    ),
)
BATCHES, REPETITIONS = 4, 3


def measure(quick: bool) -> Report:
    report = Report("apps", "Every application, on both engines and beside PySpark")
    session = spark()
    try:
        for contest in CONTESTS:
            if wanted(contest.name):
                compare(report, session, contest, quick)
        if not quick:
            for name in APPS:
                if wanted(name):
                    rate(report, session, name)
    finally:
        session.stop()
    return report


def wanted(name: str) -> bool:
    """Whether an application is among those that APPS_ONLY names; all are where it names none."""
    only = [each for each in os.environ.get("APPS_ONLY", "").split(",") if each]
    return not only or name in only


# --- beside PySpark ---------------------------------------------------------------------------


def compare(report: Report, session: SparkSession, contest: Contest, quick: bool) -> None:
    """Both versions in turn, on the same files; what they wrote must agree."""
    rows = contest.rows // 10 if quick else contest.rows
    batches, repetitions = (2, 1) if quick else (BATCHES, REPETITIONS)
    with tempfile.TemporaryDirectory(prefix="apps-", ignore_cleanup_errors=True) as folder:
        files = write_files(contest.build, Path(folder, "in"), rows * batches, batches)
        turns = Turns(session, files, Path(folder))
        plans = all_plans_of(files, files.flow(Path(folder)))
        samples = interleave(
            {
                "ours": partial(turns.ours, best(plans, turns.ours)),
                "theirs": partial(
                    turns.theirs, best([*product(contest.theirs, SETTINGS)], turns.theirs)
                ),
            },
            repetitions,
            warm_up=0,  # plans and settings have been tried
        )
        turns.require_agreement(contest.checks)
    key = contest.name.replace("-", "_")
    report.add_sample(f"{key}_ours_rows_per_s_{contest.label}", samples["ours"])
    report.add_sample(f"{key}_{contest.label}_rows_per_s", samples["theirs"])
    times = ratios(samples["ours"], samples["theirs"])
    report.add_sample(f"{key}_vs_{contest.label}", times)
    report.add_bar(f"{key}_vs_{contest.label}", times.median, contest.bar)


def best(candidates: Sequence[Candidate], rate: Callable[[Candidate], float]) -> Candidate:
    """The fastest by one run each; the first of all warms up, and does not count."""
    rate(candidates[0])
    return max(candidates, key=rate)


class Turns:
    """Runs contenders on one set of files, each time in a folder of its own."""

    def __init__(self, session: SparkSession, files: AppFiles, root: Path) -> None:
        self.session, self.files, self.root = session, files, root
        self._numbers = count()
        self._last: dict[str, Path] = {}

    def ours(self, plan: Plan) -> float:
        """Rows a second on Spark, without the first batch."""
        work = self._work("ours")
        flow = self.files.flow(work / "out")
        plan = with_ranges(flow, plan)
        handle = ab.start(flow, plan=plan, session=self.session, checkpoint=work / "checkpoint")
        handle.await_termination()
        told = handle.engine.query.recentProgress[: self.files.batches]
        return self._rate([each["durationMs"]["triggerExecution"] / 1000 for each in told])

    def theirs(self, version: tuple[Version, Settings]) -> float:
        """Rows a second of a PySpark version, without the first batch."""
        run, settings = version
        return self._rate(run(self.session, self.files, settings, self._work("theirs")))

    def require_agreement(self, checks: Mapping[str, Check]) -> None:
        """Stops when the two found something else in their last turns."""
        for sink, agree in checks.items():
            ours = read_back(self._last["ours"] / "out" / sink).to_pandas()
            theirs = pq.read_table(self._last["theirs"] / sink, partitioning=None).to_pandas()
            if not agree(ours, theirs):
                raise AssertionError(f"{sink}: ours is\n{ours}\nand theirs\n{theirs}")

    def _rate(self, seconds: list[float]) -> float:
        if len(seconds) != self.files.batches:
            raise AssertionError(f"{len(seconds)} batches, due were {self.files.batches}")
        rows = sum(map(self.files.batch_rows, self.files.rows))
        return rows * len(seconds[1:]) / sum(seconds[1:])

    def _work(self, who: str) -> Path:
        if who in self._last:
            shutil.rmtree(self._last[who], ignore_errors=True)
        work = self.root / f"{who}-{next(self._numbers)}"
        self._last[who] = work
        return work


# --- every application on both engines --------------------------------------------------------


def rate(report: Report, session: SparkSession, name: str) -> None:
    """Rows a second of an application, of the size that it runs by default."""
    usual = APPS[name].parameters["rows"].default
    key = name.replace("-", "_")
    with tempfile.TemporaryDirectory(prefix="apps-", ignore_cleanup_errors=True) as folder:
        rows = min(usual, MOST_ROWS)
        files = write_files(APPS[name].build, Path(folder, "in"), rows, batches=3)
        turns = Turns(session, files, Path(folder))
        flow = files.flow(Path(folder, "local"))
        local = max(on_threads(files, plan, Path(folder)) for plan in plans_of(files, flow))
        report.add_figure(f"{key}_local_rows_per_s", local)
        spark_rate = max(turns.ours(plan) for plan in plans_of(files, flow))
        report.add_figure(f"{key}_spark_rows_per_s", spark_rate)


def on_threads(files: AppFiles, plan: Plan, folder: Path) -> float:
    """Rows a second on threads of this process."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        flow = files.flow(Path(out))
        for source in plan.sources:
            plan = plan.with_source(source.source, batch_rows=1 << 16)
        return ab.run(flow, engine="local", plan=plan).rate_per_s


def plans_of(files: AppFiles, flow: Flow) -> list[Plan]:
    """One of everything, and as many as there are cores; a batch is a batch of files."""
    plans = [Plan.sequential(flow), side_by_side(flow, CORES)]
    return [in_batches(plan, files.rows, files.batches) for plan in plans]


def all_plans_of(files: AppFiles, flow: Flow) -> list[Plan]:
    """One of everything, and the plans that a second core is tried with on Spark."""
    one = in_batches(Plan.sequential(flow), files.rows, files.batches)
    return [one, *(each.plan for each in spark_plans_for_two(flow, CORES, one, {}))]


if __name__ == "__main__":
    main(measure)
