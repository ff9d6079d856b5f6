"""`check`: does a flow give the same result however it is run?

Four questions: do two identical runs agree (chance, clocks, hidden state), does batching show
(operators that look at the batch they happen to be in), does the plan show (state or order that was
not declared), does another process show (the order of a set, the process id, local time, relative
paths). On a difference the input is cut down as far as it goes, and the step that got the same and
gave something else is named.

With an engine, the runs to compare with are that engine's: see `on_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from anabranch.columns.rows import python_rows
from anabranch.columns.schemas import without_dictionaries
from anabranch.engines.registry import require_results
from anabranch.errors import (
    BuildError,
    DeterminismError,
    EngineError,
    Subject,
    UnknownNameError,
    is_count,
)
from anabranch.flow import Flow
from anabranch.io import memory
from anabranch.io.reader import SourceReader
from anabranch.planning.plan import Plan
from anabranch.state.positions import LAST
from anabranch.testing.another_process import (
    TIME_LIMIT_S,
    TIME_LIMIT_S_PER_ROW,
    OtherProcess,
    Unsendable,
    cause,
    other_surroundings,
)
from anabranch.testing.compare import (
    Difference,
    Recorded,
    Seen,
    blame,
    difference,
    raised,
    run_recorded,
    run_sequential_recorded,
)
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.leaks import grown, held_outside
from anabranch.testing.on_engine import run_on_engine, small_batches
from anabranch.testing.random_plans import random_plan
from anabranch.testing.result import RunResult
from anabranch.testing.sequential import run_sequential

SHRINK_RUNS = 200
CASES = 40
CASES_ON = {"spark": 6}
"""Fewer on an engine where each costs seconds."""

PROCESSES = 2
"""One misses half of the sets of two texts, which keep their order under every second hash seed."""

Runner = Callable[[Flow], Recorded]


@dataclass(frozen=True)
class Finding:
    """A difference, on the smallest input found that shows it."""

    question: str
    how: str
    step: str | None
    difference: Difference
    input: Recording

    def __str__(self) -> str:
        """Return what differs, on which input, and who is to blame."""
        who = f"step {self.step!r}" if self.step else "no single step"
        rows = [
            f"  {name}: {row}" for name, all_rows in self.input.rows.items() for row in all_rows
        ]
        shown = rows[:20] + ([f"  … and {len(rows) - 20} more"] if len(rows) > 20 else [])
        return "\n".join(
            [
                f"{self.question}: {who} is most likely to blame",
                f"found by {self.how}; smallest input that shows it, {self.input.size} row(s):",
                *shown,
                str(self.difference),
            ]
        )


@dataclass(frozen=True)
class Question:
    """A run to compare with the sequential one.

    Attributes:
        text: What the flow depends on if the runs differ.
        how: The way in which it is run.
        run: Runs it that way.
        improve: Makes the most of a difference that was found.
        elsewhere: Whether the run is in another process.
    """

    text: str
    how: str
    run: Runner
    improve: Callable[[Flow, Finding, Runner], Finding]
    elsewhere: bool = False


@dataclass(frozen=True)
class Report:
    """The verdict of `check`.

    Attributes:
        flow: The name of the flow.
        rows: Rows of all sources that each run has read.
        runs: How many runs were compared with the sequential one.
        finding: The first difference.
        engine: Where the random plans were run; None for this thread.
        processes: How many of the runs were in another process.
        unsent: Why the flow was not run in another process although it should have been.
        leaks: Steps that put something into a variable outside of them, and the variables.
    """

    flow: str
    rows: int
    runs: int
    finding: Finding | None = None
    engine: str | None = None
    processes: int = 0
    unsent: str | None = None
    leaks: tuple[tuple[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether every run agreed."""
        return self.finding is None

    def __str__(self) -> str:
        """Return the verdict in words."""
        said = str(self.finding) if self.finding else self._agreement()
        if self.unsent is not None:
            said += "\nnot run in another process, because it cannot be sent to one: " + self.unsent
        for step, variable in self.leaks:
            said += (
                f"\nwarning: step {step!r} changes {variable!r}, which is outside of it: other "
                "processes have copies of that, as on Spark; write results to a sink"
            )
        return f"{self.flow}: {said}"

    def _agreement(self) -> str:
        kinds = ["random plans", "interleavings", "batchings", "plan changes"]
        if self.engine is not None:
            kinds = ["random plans", "batchings", f"plan changes on {self.engine}"]
        if self.processes:
            kinds.append("other processes")
        listed = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
        return f"{self.runs} {listed} over {self.rows} rows agree with the sequential run"

    def raise_if_different(self) -> None:
        """Raise a DeterminismError when the runs disagree."""
        if self.finding is not None:
            raise DeterminismError(
                self.finding.step or Subject("flow", self.flow),
                "the same result however it is run",
                str(self.finding),
                "declare the state and key it uses, or make it depend on its tuples alone",
            )


def check(
    flow: Flow,
    *,
    engine: str | None = None,
    cases: int | None = None,
    rows: int = 200,
    seed: int = 0,
    processes: int = PROCESSES,
) -> Report:
    """Compare the sequential run with many random plans, interleavings, batchings and changes.

    The sequential run is also repeated in fresh processes, each with another hash seed, time zone
    and working directory. A flow that cannot be sent there, because a function holds a lock, an
    open file or a generator, is checked without them; the report then says why.

    Args:
        flow: The application; its sinks are not written.
        engine: Run the random plans on this engine; when left out, they run in this thread, in an
            order drawn from the seed, which is fast and finds more.
        cases: How many random runs; 40, or 6 on Spark, where each takes seconds.
        rows: How many rows of each source to run on.
        seed: Decides every choice, so that a finding can be seen again.
        processes: How many other processes; each takes as long as `import anabranch`. 0 for none.

    Example:
        >>> from anabranch.apps import word_count
        >>> check(word_count.build(text="a b a"), cases=3, processes=0).ok
        True
    """
    if engine is not None:
        require_results(engine)
    if not is_count(processes, least=0):
        raise BuildError(
            Subject("argument", "processes"),
            "0 processes or more",
            repr(processes),
            "pass 0 for none",
        )
    recording = Recording.of(flow, rows)
    fed = recording.feed(flow)
    time_limit_s = TIME_LIMIT_S + TIME_LIMIT_S_PER_ROW * recording.size
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        others = [
            stack.enter_context(OtherProcess(surroundings, time_limit_s))
            for surroundings in islice(other_surroundings(seed, folder), processes)
        ]
        for other in others:
            other.begin(fed)  # it starts while the questions before are answered
        elsewhere = [_in_process(other, fed) for other in others]
        if engine is None:
            questions = chain([TWICE], _questions(flow, cases or CASES, seed), elsewhere)
        else:
            cases = cases or CASES_ON.get(engine, CASES)
            on_engine = _questions_on(engine, flow, recording, cases, seed)
            questions = chain([TWICE], elsewhere, on_engine)
        report = _asked(flow, fed, recording, questions)
    return replace(report, engine=engine)


def _asked(flow: Flow, fed: Flow, recording: Recording, questions: Iterable[Question]) -> Report:
    """Ask until a run differs."""
    outside = held_outside(fed)
    expected, left = run_sequential_recorded(fed)
    report = Report(flow.name, recording.size, runs=0, leaks=grown(outside))
    for question in questions:
        try:
            found, step = _compared(flow, fed, expected, left, question.run)
        except Unsendable as error:
            report = replace(report, unsent=str(error))
            continue
        processes = report.processes + question.elsewhere
        report = replace(report, runs=report.runs + 1, processes=processes)
        if found is not None:
            seen = Finding(question.text, question.how, step, found, recording)
            return replace(report, finding=question.improve(flow, seen, question.run))
    return report


def _compared(
    flow: Flow, fed: Flow, expected: RunResult, left: Seen, runner: Runner
) -> tuple[Difference | None, str | None]:
    """Return how another run differs, and which step is to blame; an error is a difference too."""
    try:
        got, right = runner(fed)
    except (EngineError, UnknownNameError, Unsendable):
        raise  # says nothing about the flow
    except Exception as error:
        return raised(error), getattr(error, "step", None)
    found = difference(flow, expected, got)
    return found, blame(flow, left, right) if found is not None else None


def _questions(flow: Flow, cases: int, seed: int) -> Iterator[Question]:
    """Batching first, which is simpler to explain, then random plans with changes and crashes."""
    rng = Random(seed)
    plain = Plan.sequential(flow)
    for number in range(seed, seed + max(1, cases // 4)):
        how = f"other batches (seed {number})"
        yield Question("depends on batching", how, _under(plain, number), _smaller)
    for number in range(seed, seed + cases):
        plan = random_plan(flow, rng)
        changes = [random_plan(flow, rng) for _ in range(rng.randint(0, 2))]
        how = "; ".join(plain.diff(plan)) or "one replica of everything"
        yield Question(
            "depends on the plan",
            f"{how} (seed {number}, {len(changes)} plan change(s))",
            _under(plan, number, changes, rng.randint(0, 1)),
            _smaller,
        )


def _under(plan: Plan, seed: int, changes: Sequence[Plan] = (), crashes: int = 0) -> Runner:
    def run(flow: Flow) -> Recorded:
        return run_recorded(
            lambda tap: run_interleaved(flow, plan, seed, changes=changes, crashes=crashes, tap=tap)
        )

    return run


def _questions_on(
    engine: str, flow: Flow, recording: Recording, cases: int, seed: int
) -> Iterator[Question]:
    """Yield the same questions to an engine: the plain plan first, then random ones with changes.

    An engine's run cannot be watched step by step, may take seconds, and may come out otherwise the
    next time, so the search for the smallest input and for the step to blame happens without the
    engine, where the same flaw shows in most cases.
    """

    def explained(flow: Flow, finding: Finding, _: Runner) -> Finding:
        questions = chain([TWICE], _questions(flow, CASES, seed))
        here = _asked(flow, recording.feed(flow), recording, questions).finding
        if here is None:
            return finding
        return replace(
            finding,
            step=here.step or finding.step,
            how=f"{finding.how}, and here by {here.how}",
            difference=here.difference,
            input=here.input,
        )

    rng = Random(seed)
    plain = Plan.sequential(flow)
    rows = max((table.num_rows for table in recording.tables.values()), default=1)
    for number in range(cases):
        plans = [plain]
        if number:
            plans = [random_plan(flow, rng) for _ in range(rng.randint(1, 3))]
        plans = [small_batches(plan, rows, rng, engine) for plan in plans]
        words = "; ".join(plain.diff(plans[0]))

        def run(
            flow: Flow, plans: Sequence[Plan] = tuple(plans), moments: int = seed + number
        ) -> Recorded:
            return run_on_engine(flow, engine, plans, seed=moments), {}

        yield Question(
            "depends on the plan" if number else "depends on batching",
            f"{engine} with {words} (seed {seed}, {len(plans) - 1} plan change(s))",
            run,
            explained,
        )


def _in_process(other: OtherProcess, recorded: Flow) -> Question:
    """Return the sequential run in another process; a difference is traced to a property of it."""

    def traced(flow: Flow, finding: Finding, runner: Runner) -> Finding:
        found = cause(flow, recorded, other)
        if found is not None:
            finding = replace(finding, question=f"depends on {found}")
        try:
            return _smaller(flow, finding, runner)
        except (EngineError, Unsendable):
            return finding  # the difference was real, whatever became of the process

    how = str(other.surroundings)
    return Question("differs in another process", how, other.run, traced, elsewhere=True)


def _smaller(flow: Flow, finding: Finding, runner: Runner) -> Finding:
    """Return the finding on the smallest input that shows it, if it can be shown again at all."""
    small = _shrink(flow, finding.input, runner)
    for _ in range(3):
        fed = small.feed(flow)
        expected, left = run_sequential_recorded(fed)
        found, step = _compared(flow, fed, expected, left, runner)
        if found is not None:
            return replace(finding, step=step or finding.step, difference=found, input=small)
    return finding  # hidden state or chance: seen once is enough


TWICE = Question(
    "differs between two identical runs", "running it twice", run_sequential_recorded, _smaller
)


def _shrink(flow: Flow, recording: Recording, runner: Runner) -> Recording:
    """Drop ever smaller runs of rows while the difference stays; the number of tries is bounded."""

    def differs(rows: list[tuple[str, int]]) -> bool:
        fed = recording.keep(rows).feed(flow)
        try:
            expected = run_sequential(fed)
        except Exception:
            return False  # the author's code does not take this input at all
        return _compared(flow, fed, expected, {}, runner)[0] is not None

    kept = recording.rows_named()
    size, tries = max(1, len(kept) // 2), 0
    while tries < SHRINK_RUNS:
        start, before = 0, len(kept)
        while start < len(kept) and tries < SHRINK_RUNS:
            tries += 1
            attempt = kept[:start] + kept[start + size :]
            if attempt and differs(attempt):
                kept = attempt
            else:
                start += size
        if size == 1 and len(kept) == before:
            break
        size = max(1, size // 2)
    return recording.keep(kept)


# A bounded piece of a flow's input, held in memory so that it can be cut down.

PATIENCE = 100  # reads without a row after which an endless source counts as idle


@dataclass(frozen=True)
class Recording:
    """Rows and heartbeats of every source of a flow, in order."""

    tables: dict[str, pa.Table]
    heartbeats: dict[str, dict[int, int]]

    @staticmethod
    def of(flow: Flow, rows: int) -> Recording:
        """Return at most `rows` rows of each source."""
        tables: dict[str, pa.Table] = {}
        beats: dict[str, dict[int, int]] = {}
        for name, source in flow.sources().items():
            reader = SourceReader(source, 0)
            batches: list[pa.RecordBatch] = []
            beats[name], taken, silent = {}, 0, 0
            while not reader.ended and taken < rows and silent < PATIENCE:
                jumbo, _ = reader.read(rows - taken)
                silent = 0 if jumbo is not None and len(jumbo) else silent + 1
                if jumbo is None:
                    continue
                batches.append(jumbo.batch)
                taken += len(jumbo)
                for mark in jumbo.marks:
                    if mark.passed < LAST:
                        beats[name][taken] = mark.passed
            schema = without_dictionaries(source.schema)
            tables[name] = pa.Table.from_batches(batches, schema=schema)
        return Recording(tables, beats)

    @property
    def size(self) -> int:
        """Return how many rows all sources have."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each source, to be shown."""
        return {name: python_rows(table) for name, table in self.tables.items()}

    def keep(self, wanted: list[tuple[str, int]]) -> Recording:
        """Only the rows named by (source, number)."""
        chosen = {name: [i for n, i in wanted if n == name] for name in self.tables}
        beats = {
            name: {sum(i < at for i in chosen[name]): passed for at, passed in b.items()}
            for name, b in self.heartbeats.items()
        }
        tables = {n: t.take(pa.array(chosen[n], pa.int64())) for n, t in self.tables.items()}
        return Recording(tables, beats)

    def rows_named(self) -> list[tuple[str, int]]:
        """Every row as (source, number)."""
        return [(name, i) for name, table in self.tables.items() for i in range(table.num_rows)]

    def feed(self, flow: Flow) -> Flow:
        """Return the same flow, reading this recording."""
        return flow.reading(
            {
                name: memory(table, heartbeats=self.heartbeats[name] or None)
                for name, table in self.tables.items()
            }
        )
