"""The local engine against what it is made of, and against a peer.

Word count beside the bare Arrow kernels on as many threads as there are workers, first on one core;
an operator that is called for every tuple beside Bytewax; the band join beside a plain NumPy loop.
Bytewax is not a dependency: the script makes an environment of its own for it, or uses the
interpreter named by BYTEWAX_PYTHON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from band_join_local import add_band_join
from harness import Report, interleave, main, seconds
from local_streams import (
    WORDS_A_LINE,
    Drop,
    Endless,
    start,
    word_count,
    word_count_plan,
    zipf_lines,
    zipf_words,
)

import anabranch as ab
from anabranch.engines.local.crew import shared_crew
from anabranch.flow import Flow
from anabranch.io import memory
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.planning.plan import Plan

BYTEWAX = "bytewax==0.21.1"
BATCH_ROWS = 65_536
LINES = 16 * BATCH_ROWS
ROUNDS, QUICK_ROUNDS = 3, 1
"""How often the lines are counted, by each core."""
TUPLES, QUICK_TUPLES = 1_000_000, 400_000
DISTINCT = 10_000
KERNELS_BAR, BYTEWAX_BAR = 0.7, 2.0


def measure(quick: bool) -> Report:
    report = Report("local", "The local engine adds little to the kernels that it runs")
    add_word_count(report, quick)
    add_tuples(report, quick)
    add_band_join(report, quick)
    return report


def add_word_count(report: Report, quick: bool) -> None:
    lines = zipf_lines(LINES, DISTINCT)
    with one_core():
        report.add_bar("word_count_over_kernels", _word_count(report, lines, 1, quick), KERNELS_BAR)
    report.add_figure("word_count_over_kernels_2_cores", _word_count(report, lines, 2, quick))


def _word_count(report: Report, lines: pa.RecordBatch, cores: int, quick: bool) -> float:
    """Add the rates of the kernels and of the engine; returns the share that the engine reaches."""
    rounds = cores * (QUICK_ROUNDS if quick else ROUNDS)
    words = rounds * lines.num_rows * WORDS_A_LINE
    cases = {
        "kernels": lambda: words / seconds(partial(run_kernels, lines, rounds, cores)),
        "ours": lambda: words / seconds(partial(run_word_count, lines, rounds, cores)),
    }
    samples = interleave(cases, 3 if quick else 9)
    unit = "core" if cores == 1 else "cores"
    report.add_sample(f"kernels_words_per_s_{cores}_{unit}", samples["kernels"])
    report.add_sample(f"word_count_words_per_s_{cores}_{unit}", samples["ours"])
    return samples["ours"].median / samples["kernels"].median


@contextmanager
def one_core() -> Iterator[None]:
    """Bind this process and the workers that it starts to one core."""
    shared_crew().close()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        shared_crew().close()
        os.sched_setaffinity(0, cores)


def run_kernels(lines: pa.RecordBatch, rounds: int, threads: int) -> None:
    """Split and count each batch, and forget the counts."""
    batches = [lines.slice(at, BATCH_ROWS) for at in range(0, lines.num_rows, BATCH_ROWS)]
    rest = iter(batches * rounds)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                batch = next(rest, None)
            if batch is None:
                return
            pc.value_counts(pc.list_flatten(pc.split_pattern(batch["line"], " ")))

    working = [threading.Thread(target=work) for _ in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()


def run_word_count(lines: pa.RecordBatch, rounds: int, workers: int) -> None:
    flow = word_count(Endless(lines), Drop())
    plan = word_count_plan(flow, BATCH_ROWS).with_replicas("split", workers)
    start(flow, plan, rows=rounds * lines.num_rows).wait()


@ab.partitioned(key="word", out="word: string, n: int64", schedule=Schedule.exactly(1))
def running_count(ctx):
    """One call for every occurrence of a word."""
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


def add_tuples(report: Report, quick: bool) -> None:
    tuples = QUICK_TUPLES if quick else TUPLES
    words = pa.record_batch({"word": zipf_words(tuples, DISTINCT)})
    with tempfile.TemporaryDirectory(prefix="bytewax-") as folder:
        python = os.environ.get("BYTEWAX_PYTHON") or bytewax_python(Path(folder))
        cases = {
            "ours": lambda: tuples / seconds(partial(run_tuples, words)),
            "bytewax": lambda: run_bytewax(python, tuples),
        }
        samples = interleave(cases, 2 if quick else 3)
    report.add_sample("tuple_style_tuples_per_s", samples["ours"])
    report.add_sample("bytewax_tuples_per_s", samples["bytewax"])
    ratio = samples["ours"].median / samples["bytewax"].median
    report.add_bar("tuple_style_over_bytewax", ratio, BYTEWAX_BAR)


def run_tuples(words: pa.RecordBatch) -> None:
    flow = Flow("running-count")
    sink = Drop()
    flow.source("words", memory(words)).apply("count", running_count).sink("out", sink)
    start(flow, Plan.sequential(flow).with_source("words", batch_rows=BATCH_ROWS)).wait()
    if sink.rows != words.num_rows:
        raise AssertionError(f"{sink.rows} results for {words.num_rows} tuples")


def bytewax_python(folder: Path) -> str:
    """An interpreter with Bytewax."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    packages = [BYTEWAX, "numpy", "pyarrow"]
    install = [python, "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(install, check=True, stdout=sys.stderr)
    return python


def run_bytewax(python: str, tuples: int) -> float:
    script = Path(__file__).with_name("bytewax_count.py")
    command = [python, str(script), "--words", str(tuples), "--distinct", str(DISTINCT)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["tuples_per_s"])


if __name__ == "__main__":
    main(measure)
