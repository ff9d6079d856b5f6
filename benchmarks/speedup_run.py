"""Measurements of `speedup.py`, in processes of their own that may use some cores only.

A process gets a `Task` as JSON on each line of its standard input, and prints an `Outcome` for it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from operator import add
from pathlib import Path
from typing import Any

from papers.processor_time import cores_busy_s, usage

HERE = Path(__file__).parent
TIMEOUT_S = 300
READ_ROWS = 1 << 16
WARM_BATCHES = 24
"""Before the first measurement on Spark: on one core the JVM needed 250 ms of processor time for a
batch at first and 120 ms after fifty, since it compiles what runs often."""
QUIET_SHARE = 0.1
CHILD = "import os; os.sched_setaffinity(0, {cores}); import speedup_run; speedup_run.main()"
"""Bound before anything is imported, so that no library counts cores that it may not use."""


@dataclass(frozen=True)
class Task:
    """What to measure.

    Attributes:
        case: Name of the case.
        folder: Its files.
        files: How many of them are read.
        cores: On how many cores.
        engine: What runs it.
        plan: A plan as JSON; empty to read the input alone.
        options: Further arguments of `ab.start`.
    """

    case: str
    folder: str
    files: int
    cores: int = 1
    engine: str = "local"
    plan: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What was measured.

    Attributes:
        rows: Rows that were read.
        rows_per_s: The rate after a warm-up.
        cores: Cores that the process could use.
        cpu_s: Seconds of all processors, in this process and those below it.
        kernel_share: Part of that time that was the system's.
        switches_per_s: Context switches a second.
        disturbed_share: Part of the time of its cores that went to other processes.
        busy_s: Seconds by step.
        bucket_rows: By region of several replicas, the tuples that came to each bucket.
    """

    rows: int
    rows_per_s: float
    cores: int
    cpu_s: float = 0.0
    kernel_share: float = 0.0
    switches_per_s: float = 0.0
    disturbed_share: float = 0.0
    busy_s: Mapping[str, float] = field(default_factory=dict)
    bucket_rows: Mapping[str, list[int]] = field(default_factory=dict)


class MeasurementFailed(Exception):
    """The process ended without an outcome."""


class BoundProcess:
    """A process that is bound to the first few cores and measures one task after another.

    What a measurement has warmed up, such as a session of Spark, serves the next one. A process
    whose measurement fails is over. Its temporary files go with it.
    """

    def __init__(self, cores: int) -> None:
        bound = first_cores(cores)
        if len(bound) < cores:
            raise MeasurementFailed(f"{cores} cores are needed, there are {len(bound)}")
        paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        # Its name is short, since paths of sockets are limited.
        self._scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD.format(cores=bound)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "TMPDIR": self._scratch.name,
                "SPARK_LOCAL_DIRS": self._scratch.name,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> BoundProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def measure(self, task: Task) -> Outcome:
        """Measure a task; raises MeasurementFailed with the last line of what went wrong."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._kill()

        timer = threading.Timer(TIMEOUT_S, give_up)
        timer.start()
        try:
            with suppress(BrokenPipeError):
                print(json.dumps(asdict(task)), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        if answer:
            return Outcome(**json.loads(answer))
        if late.is_set():
            raise MeasurementFailed(f"no outcome after {TIMEOUT_S} s")
        ended = f"ended with {self._process.wait(TIMEOUT_S)} and said nothing"
        self._complaints.seek(0)
        raise MeasurementFailed((self._complaints.read().strip() or ended).splitlines()[-1])

    def close(self) -> None:
        """End the process, and whatever it started."""
        self._kill()
        self._process.communicate()
        self._complaints.close()
        self._scratch.cleanup()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def in_child(task: Task) -> Outcome:
    """Measure in a process of its own."""
    with BoundProcess(task.cores) as process:
        return process.measure(task)


def main() -> None:
    """Measure what each line of standard input asks for; only the first task warms up."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    warm = False
    for line in sys.stdin:
        task = Task(**json.loads(line))
        out = tempfile.mkdtemp(prefix="speedup-out-", dir=Path(task.folder).parent)
        try:
            if task.plan and not warm:
                warm_up(task, Path(out))
                warm = True
            outcome = run(task, Path(out)) if task.plan else read(task, Path(out))
        finally:
            shutil.rmtree(out, ignore_errors=True)
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


def read(task: Task, out: Path) -> Outcome:
    """Read the input from its start to its end, and do nothing with it."""
    from speedup_data import CASES

    sources = CASES[task.case].flow(Path(task.folder), out, task.files).sources()
    rows, start_s = 0, time.perf_counter()
    for source in sources.values():
        for part in source.parts():
            at = 0
            while (chunk := source.read(part, at, READ_ROWS)) is not None:
                at += chunk.batch.num_rows
            rows += at
    return Outcome(rows, rows / (time.perf_counter() - start_s), usable_cores())


def warm_up(task: Task, out: Path) -> None:
    """Run the first file of each source; on Spark in many batches."""
    from speedup_data import CASES, rows_of
    from speedup_plans import in_batches

    import anabranch as ab

    flow = CASES[task.case].flow(Path(task.folder), out / "warm", 1)
    given = arguments(task)
    if task.engine == "spark":
        given["plan"] = in_batches(given["plan"], rows_of(flow), WARM_BATCHES)
    ab.run(flow, **given)


def arguments(task: Task) -> dict[str, Any]:
    """Arguments of `ab.run`."""
    from anabranch.planning.plan import Plan

    given: dict[str, Any] = {"engine": task.engine, "plan": Plan.from_json(task.plan)}
    if task.engine == "spark":
        from anabranch.engines.spark.session import active

        given["master"] = f"local[{task.cores},4]"
        if active() is None:
            given["conf"] = {
                "spark.driver.memory": "4g",
                "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={tempfile.gettempdir()}",
            }
    return given | dict(task.options)


def run(task: Task, out: Path) -> Outcome:
    """Run all files of a task."""
    from speedup_data import CASES, rows_of

    import anabranch as ab
    from anabranch.events import Event, Observed

    seen: list[tuple[float, int]] = []
    busy_s: Counter[str] = Counter()
    bucket_rows: dict[str, list[int]] = {}

    def note(event: Event) -> None:
        if isinstance(event, Observed):
            found = event.observation
            if not found.is_empty:
                seen.append((found.at_s, found.rows_in))
                for each in found.sources:
                    passed_s = found.at_s - (seen[-2][0] if len(seen) > 1 else 0.0)
                    busy_s[each.source] += (each.busy_share or 0.0) * passed_s
            for step in found.steps:
                busy_s[step.step] += step.busy_s - step.waited_s
            for region in found.regions:
                if region.replicas > 1 and region.bucket_rows:
                    before = bucket_rows.get(region.region, [0] * len(region.bucket_rows))
                    bucket_rows[region.region] = list(map(add, before, region.bucket_rows))

    flow = CASES[task.case].flow(Path(task.folder), out / "run", task.files)
    before, busy_before_s, start_s = usage(), cores_busy_s(), time.perf_counter()
    result = ab.run(flow, listener=note, **arguments(task))
    spent, all_s = usage() - before, cores_busy_s() - busy_before_s
    elapsed_s = time.perf_counter() - start_s
    expected = sum(rows_of(flow).values())
    if not result.ended or result.rows_in != expected:
        raise AssertionError(f"{result.rows_in} rows were read, {expected} were due")
    rate = result.rate_per_s
    if task.engine == "spark":  # a query's first batch is slower
        if len(seen) < 2:
            raise AssertionError("one batch read all rows: none is left behind the first")
        rate = sum(rows for _, rows in seen[1:]) / (seen[-1][0] - seen[0][0])
    cpu_s = spent.user_s + spent.kernel_s
    return Outcome(
        expected,
        rate,
        usable_cores(),
        cpu_s,
        spent.kernel_s / cpu_s,
        spent.switches / elapsed_s,
        max(0.0, all_s - cpu_s) / (elapsed_s * usable_cores()),
        dict(busy_s),
        bucket_rows,
    )


def usable_cores() -> int:
    """How many cores this process is bound to."""
    return len(os.sched_getaffinity(0))


def wait_for_quiet(cores: int, patience_s: float) -> None:
    """Wait until the cores that a measurement would use are idle for a second, or for so long."""
    bound = first_cores(cores)
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        before = cores_busy_s(bound)
        time.sleep(1)
        if cores_busy_s(bound) - before <= QUIET_SHARE * cores:
            return


def first_cores(count: int) -> list[int]:
    """The cores that a measurement on so many uses."""
    return sorted(os.sched_getaffinity(0))[:count]
