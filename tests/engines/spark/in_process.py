"""The Spark engine's batches without Spark: every stage of a job runs here, task after task.

Rows go from stage to stage by their target, as Spark's shuffle would take them, in an order drawn
from a seed. Attempts may be given up half-way, cached state may vanish, and the driver may be
killed between any two steps of its protocol.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from uuid import uuid4

import pyarrow as pa

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.sinks import Sinks
from anabranch.engines.spark.batches import Batches
from anabranch.engines.spark.intake import Intake, Share
from anabranch.engines.spark.job import outcome_of
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.sinks import spark_sinks
from anabranch.engines.spark.state_loader import remove_cache
from anabranch.engines.spark.task import TaskRun
from anabranch.engines.spark.task_inputs import Batch, JobResult, Program
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.offsets import Run
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.testing.result import RunResult

MOST_BATCHES = 400

Rows = list[pa.RecordBatch]


Task = Callable[[int, int, Rows], Rows]
"""What a task sends, by number of the stage, number of the task, and the rows that it gets."""


class Killed(Exception):
    """The driver is gone."""


def run_stages(layout: StageLayout, task: Task, rng: Random) -> JobResult:
    """One job: every row goes to its target, tasks and rows in an order drawn from `rng`."""
    inbox: dict[int, Rows] = {number: [] for number in range(layout.tasks[0])}
    for stage in range(layout.last_stage + 1):
        following = layout.tasks[stage + 1] if stage < layout.last_stage else 1
        sent: dict[int, Rows] = {number: [] for number in range(following)}
        tasks = list(inbox)
        rng.shuffle(tasks)
        for number in tasks:
            for row in single_rows(task(stage, number, inbox[number])):
                sent[target_of(row)].append(row)
        for rows in sent.values():
            rng.shuffle(rows)
        inbox = sent
    return outcome_of(sorted(inbox[0], key=lambda row: str(row.column(1)[0])))


def single_rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    """Each row in a batch of its own: small ones share a batch, whatever their targets."""
    return [batch.slice(number, 1) for batch in batches for number in range(batch.num_rows)]


def target_of(row: pa.RecordBatch) -> int:
    """The task of the next stage that a single row is for."""
    target: int = row.column(0)[0].as_py()
    return target


class InProcess:
    """Runs a flow in batches, with trouble drawn from a seed.

    Args:
        flow: Bounded; its sinks collect.
        directory: For the checkpoint.
        seed: Decides every choice.
        kills: How often the driver dies.
        trouble: Chance that a task is given up once before it succeeds, and that cached state is
            lost.
    """

    def __init__(
        self, flow: Flow, directory: Path, seed: int, kills: int = 0, trouble: float = 0.0
    ) -> None:
        self._flow, self._directory, self._rng = flow, directory, Random(seed)
        self._kills, self._trouble = kills, trouble
        self._attempt, self._elapsed_s = 0, 0.0
        self._runs: dict[int, dict[str, tuple[Run, ...]]] = {}  # by version
        self._cache = uuid4().hex
        self.events: list[str] = []
        self.loaded_bytes = 0

    def run(self, plans: list[Plan]) -> RunResult:
        """Run to the end, with each plan in turn from a batch drawn from the seed."""
        wishes = list(plans)
        try:
            for _ in range(20):
                try:
                    return self._life(wishes)
                except Killed:
                    self.events.append("killed")
            raise AssertionError("killed too often")
        finally:
            remove_cache(self._cache)
            shutil.rmtree(self._directory, ignore_errors=True)

    def _life(self, wishes: list[Plan]) -> RunResult:
        slots = self._rng.choice([None, 1, 2, 3])
        program = Program(self._flow, str(self._directory), self._cache, slots)
        self._program = pickle.loads(program.packed())  # what workers see
        checkpoint = Checkpoint.open(str(self._directory), self._flow)
        sinks = spark_sinks(program, checkpoint.storage, None)
        batches = Batches(program, checkpoint, sinks, None)
        self._starve(batches.intake)
        self._die_between(checkpoint, sinks)
        last = checkpoint.last
        version = 0 if last is None else last.version + 1
        plan = wishes[0]
        for number in range(version, version + MOST_BATCHES):
            if batches.ended():
                return self._result(checkpoint)
            if len(wishes) > 1 and self._rng.random() < 0.4:
                wishes.pop(0)
            done = None
            while done is None:
                self._elapsed_s += 1.0
                resized = self._resized(wishes[0])
                done = batches.next(number, resized, plan, self._elapsed_s, self._job)
            plan = done.plan
            self.events.append(f"batch {number}: {done.read}")
        raise AssertionError(f"no end after {MOST_BATCHES} batches: {self.events[-5:]}")

    def _resized(self, plan: Plan) -> Plan:
        for source in plan.sources:
            plan = plan.with_source(source.source, batch_rows=self._rng.choice([1, 2, 3, 7, 50]))
        return plan

    def _starve(self, intake: Intake) -> None:
        """Let sources have nothing due now and then; a batch in which none has any is not run."""
        share = intake._share

        def sometimes(name: str, plan: Plan, elapsed_s: float) -> Share | None:
            made = share(name, plan, elapsed_s)
            over = made is not None and made.over
            return None if not over and self._rng.random() < 0.15 else made

        intake._share = sometimes  # type: ignore[method-assign]

    def _die_between(self, checkpoint: Checkpoint, sinks: Sinks) -> None:
        """Let the driver die before or after a commit becomes visible."""
        publish, commit = checkpoint.publish, sinks.commit

        def dying_publish(manifest: object) -> None:
            self._perhaps_die("before the manifest")
            publish(manifest)  # type: ignore[arg-type]
            self._perhaps_die("behind the manifest")

        def dying_commit(manifest: object, require_owned: object) -> None:
            commit(manifest, require_owned)  # type: ignore[arg-type]
            self._perhaps_die("behind the commit")

        checkpoint.publish = dying_publish  # type: ignore[method-assign]
        sinks.commit = dying_commit  # type: ignore[method-assign]

    def _perhaps_die(self, where: str) -> None:
        if self._kills and self._rng.random() < 0.15:
            self._kills -= 1
            self.events.append(where)
            raise Killed(where)

    def _job(self, layout: StageLayout, batch: Batch) -> JobResult:
        batch = pickle.loads(pickle.dumps(batch))
        self._runs[batch.version] = {n: each.after.runs for n, each in batch.arrived.items()}
        if self._rng.random() < self._trouble:
            remove_cache(self._cache)
        outcome = run_stages(layout, partial(self._task, batch), self._rng)
        self.loaded_bytes += sum(r.state_loaded_bytes for r in outcome.reports)
        return outcome

    def _task(self, batch: Batch, stage: int, task: int, rows: Rows) -> Rows:
        self._attempt += 1
        if self._rng.random() < self._trouble:  # an attempt that is lost half-way
            run = TaskRun(self._program, batch, stage, task, str(self._attempt)).work(iter(rows))
            for _ in range(self._rng.randint(0, 3)):
                next(run, None)
            if self._rng.random() < 0.5:
                list(run)  # or at its very end, with everything written
            self._attempt += 1
        run = TaskRun(self._program, batch, stage, task, str(self._attempt)).work(iter(rows))
        return list(run)

    def _result(self, checkpoint: Checkpoint) -> RunResult:
        last = checkpoint.last
        assert last is not None
        steps = self._flow.graph.steps
        return RunResult(
            {name: steps[name].body.sink.table() for name in self._flow.names(Role.SINK)},
            {
                name: replace(Counters(), **last.counters.get(name, {}))
                for name in self._flow.names(Role.OPERATOR)
            },
            self.events,
            {
                name: [run for runs in self._runs.values() for run in runs.get(name, ())]
                for name, source in self._flow.sources().items()
                if source.interleaved
            },
        )
