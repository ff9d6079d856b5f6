"""Does the second core pay? Every application on one core and on two.

Each measurement is a process of its own that is bound to one core or to two, reads stored Parquet
files, writes Parquet as `--out` does, and runs a part of the input first to warm up. One core has
the best of a few batch sizes with one replica of everything; two cores have the best of a few plans
(`speedup_plans.py`). Plans are chosen by one short run each; then the best for one core and that
for two are measured in turn, and the speedup is the median of the ratios of neighbouring runs.

    python benchmarks/speedup.py --apps finance,linear-road --baseline results/one_core_before.json

Bytewax is run beside the word count in tuple style, in an environment of its own or by the
interpreter that BYTEWAX_PYTHON names.

With `--engine spark` the processes are drivers of `local[1]` and `local[2]`, one of each for an
application, since a session takes long to start and to warm up. Rates are those behind the first
micro-batch. `speedup_spark.py` is this for `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness import Report
from local import bytewax_python
from speedup_data import CASES, FILES, TUPLES, Case, rows_of
from speedup_plans import (
    NamedPlan,
    balanced,
    batch_sizes,
    plans_for_one,
    plans_for_two,
    spark_plans_for_one,
    spark_plans_for_two,
)
from speedup_report import BARS, DISTURBED, HEADER, BaselineDiffers, Row, compared, judge, line
from speedup_run import BoundProcess, MeasurementFailed, Outcome, Task, in_child, wait_for_quiet

from anabranch.flow import Flow

CORES = 2
REPETITIONS = 3
QUICK_PART = 4
TRIES = 3
BYTEWAX_WORDS = 1_500_000
"""Its rate does not depend on how many there are, and it is tried in six ways."""


@dataclass(frozen=True)
class Effort:
    """How much is run on an engine.

    Attributes:
        part: Of the rows of a case.
        short_files: How many files a run reads by which a plan is chosen.
        finalists: How many plans are run a second time before one is chosen.
        keeps: Whether a process serves all measurements on as many cores, of one case.
    """

    part: float
    short_files: int
    finalists: int
    keeps: bool


EFFORTS = {"local": Effort(1, 2, 3, keeps=False), "spark": Effort(0.5, 4, 2, keeps=True)}


@dataclass(frozen=True)
class Choice:
    """The best plan on some cores.

    Attributes:
        plan: The plan.
        outcome: What a short run of it gave.
    """

    plan: NamedPlan
    outcome: Outcome


class Bench:
    """Measures one case on one engine.

    Args:
        case: What is measured.
        engine: What runs it.
        root: Where its files are written.
        quick: Whether it is a quarter of the rows, measured once.
        repetitions: How often the best plans are measured otherwise.
        patience_s: How long to wait for idle cores before each full run.
    """

    def __init__(
        self,
        case: Case,
        engine: str,
        root: Path,
        *,
        quick: bool,
        repetitions: int,
        patience_s: float,
    ) -> None:
        self._case, self._engine, self._patience_s = case, engine, patience_s
        self._repetitions = 1 if quick else repetitions
        self._effort = EFFORTS[engine]
        self._kept: dict[int, BoundProcess] = {}
        rows = int(case.rows * self._effort.part) // (QUICK_PART if quick else 1)
        self.folder = case.write(root, max(FILES, rows))

    def measure(self, only_one_core: bool) -> Row:
        """Choose plans, then run them in turn."""
        reading = in_child(Task(self._case.name, str(self.folder), FILES))
        flow = self._case.flow(self.folder, self.folder / "out")
        one = self._best(self._for_one(flow), cores=1)
        two = None if only_one_core else self._best_for_two(self._for_two(flow, one))
        singles, doubles = [], []
        for _ in range(self._repetitions):
            singles.append(self._full(one.plan, 1))
            if two is not None:
                doubles.append(self._full(two.plan, CORES))
        row = Row(
            singles[0].rows,
            _median(singles, "rows_per_s"),
            max(each.rows_per_s for each in singles),
            max(each.rows / each.cpu_s for each in singles),
            one.plan.name,
            _median(singles, "rows_per_s") / reading.rows_per_s,
            _median(singles, "switches_per_s"),
            _median(singles, "kernel_share"),
            min(each.disturbed_share for each in singles),
            timed=any(kind.time is not None for kind in flow.resolve().types.values()),
        )
        if two is None:
            return row
        pairs = zip(singles, doubles, strict=True)
        return replace(
            row,
            two_cores_rows_per_s=_median(doubles, "rows_per_s"),
            two_cores_plan=two.plan.name,
            speedup=statistics.median(b.rows_per_s / a.rows_per_s for a, b in pairs),
            two_cores_switches_per_s=_median(doubles, "switches_per_s"),
            two_cores_kernel_share=_median(doubles, "kernel_share"),
            two_cores_disturbed_share=min(each.disturbed_share for each in doubles),
        )

    def _full(self, plan: NamedPlan, cores: int) -> Outcome:
        """A run over all rows; where others disturb it, the least disturbed of a few."""
        tried: list[Outcome] = []
        while len(tried) < TRIES and (not tried or tried[-1].disturbed_share > DISTURBED):
            wait_for_quiet(cores, self._patience_s)
            tried.append(self._run(plan, cores, FILES))
        return min(tried, key=lambda each: each.disturbed_share)

    def _for_one(self, flow: Flow) -> list[NamedPlan]:
        if self._engine == "spark":
            return spark_plans_for_one(flow, rows_of(flow))
        return plans_for_one(flow, batch_sizes(rows_of(flow)))

    def _for_two(self, flow: Flow, one: Choice) -> list[NamedPlan]:
        plan, busy_s = one.plan.plan, one.outcome.busy_s
        if self._engine == "spark":
            return spark_plans_for_two(flow, CORES, plan, busy_s)
        sizes, usual = batch_sizes(rows_of(flow)), plan.sources[0].batch_rows
        return plans_for_two(flow, CORES, sizes, usual, busy_s)

    def _best_for_two(self, plans: Sequence[NamedPlan]) -> Choice:
        best = self._best(plans, cores=CORES)
        even = balanced(best.plan, best.outcome.bucket_rows)
        if even is None:
            return best
        choice = self._best([even], cores=CORES)
        return max(best, choice, key=_rate)

    def _best(self, plans: Sequence[NamedPlan], cores: int) -> Choice:
        """The fastest plan by a short run of each; one that fails is left out, and said.

        The fastest few run once more, and count by their slower run: one disturbance must not
        decide.
        """
        tried = []
        for plan in plans:
            try:
                tried.append(Choice(plan, self._run(plan, cores, self._effort.short_files)))
            except MeasurementFailed as error:
                say(f"{self._case.name} on {cores}, {plan.name}: {error}")
                last = error
        if not tried:
            raise MeasurementFailed(f"no plan of {self._case.name} works: {last}")
        fastest = sorted(tried, key=_rate, reverse=True)[: self._effort.finalists]
        if len(fastest) > 1:
            files = self._effort.short_files
            again = [Choice(c.plan, self._run(c.plan, cores, files)) for c in fastest]
            fastest = [min(pair, key=_rate) for pair in zip(fastest, again, strict=True)]
        return max(fastest, key=_rate)

    def _run(self, plan: NamedPlan, cores: int, files: int) -> Outcome:
        place = self._case.name, str(self.folder), files
        task = Task(*place, cores, self._engine, plan.plan.to_json(), plan.options)
        if not self._effort.keeps:
            return in_child(task)
        process = self._kept.pop(cores, None) or BoundProcess(cores)
        try:
            outcome = process.measure(task)
        except BaseException:
            process.close()
            raise
        self._kept[cores] = process
        return outcome

    def close(self) -> None:
        """End the processes that were kept."""
        for process in self._kept.values():
            process.close()


def measure(options: argparse.Namespace, root: Path) -> tuple[dict[str, Row], Report]:
    """All cases that were asked for, and the bars that they are held against."""
    before = json.loads(options.baseline.read_text())["figures"] if options.baseline else {}
    found: dict[str, Row] = {}
    say(HEADER)
    for name in options.apps:
        bench = Bench(
            CASES[name],
            options.engine,
            root,
            quick=options.quick,
            repetitions=options.repetitions,
            patience_s=options.patience,
        )
        try:
            found[name] = bench.measure(options.only_one_core)
            if name in before:
                found[name] = compared(found[name], before[name])
            say(line(name, found[name]))
        except (MeasurementFailed, BaselineDiffers) as error:
            say(f"{name}: {error}")
        finally:
            bench.close()
            if options.data is None:
                shutil.rmtree(bench.folder)
    bytewax = None
    if TUPLES in found and not options.only_one_core and options.engine == "local":
        try:
            bytewax = bytewax_tuples_per_s(root)
        except (OSError, subprocess.SubprocessError) as error:
            say(f"no rate of Bytewax: {error}")
    failed = [name for name in options.apps if name not in found]
    return found, judge(found, bytewax, failed, BARS[options.engine])


def bytewax_tuples_per_s(root: Path) -> float:
    """The same count in Bytewax with two workers, from memory and without writing anything."""
    python = os.environ.get("BYTEWAX_PYTHON") or bytewax_python(root / "bytewax")
    script = str(Path(__file__).with_name("bytewax_count.py"))
    words = ["--words", str(BYTEWAX_WORDS), "--workers", str(CORES), "--repeat", "3"]
    command = [python, script, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return float(json.loads(done.stdout.splitlines()[-1])["tuples_per_s"])


def say(text: str) -> None:
    """On standard error, as long runs should be seen: standard output may be JSON."""
    print(text, file=sys.stderr, flush=True)


def _rate(choice: Choice) -> float:
    return choice.outcome.rows_per_s


def _median(outcomes: Sequence[Outcome], name: str) -> float:
    return statistics.median(getattr(each, name) for each in outcomes)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apps", type=lambda names: names.split(","), default=list(CASES))
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--quick", action="store_true", help="a quarter of the rows, once")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of the best plans")
    parser.add_argument("--only-one-core", action="store_true", help="for a baseline")
    parser.add_argument("--baseline", type=Path, help="what --only-one-core --json stored earlier")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds to wait for idle cores"
    )
    parser.add_argument("--data", type=Path, help="keep the input files in this folder")
    parser.add_argument("--json", nargs="?", const="-", help="a file for the figures, or none")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.apps if name not in CASES]:
        parser.error(f"{unknown} are none of {list(CASES)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="speedup-", ignore_cleanup_errors=True) as folder:
        root = options.data or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        found, report = measure(options, root)
    if options.json:
        name = Path(options.json).stem if options.json != "-" else report.name
        figures = {app: asdict(row) for app, row in found.items()} | report.figures
        told = json.loads(report.to_json()) | {"name": name, "figures": figures}
        text = json.dumps(told, indent=4) + "\n"
        sys.stdout.write(text) if options.json == "-" else Path(options.json).write_text(text)
    if options.json != "-":
        report.print()


if __name__ == "__main__":
    main()
