"""The Spark engine's batches without Spark, one at a time: what a test does between two of them."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.spark.batches import Batches, Done
from anabranch.engines.spark.layout import StageLayout
from anabranch.engines.spark.sinks import spark_sinks
from anabranch.engines.spark.state_loader import remove_cache
from anabranch.engines.spark.task import TaskRun
from anabranch.engines.spark.task_inputs import Batch, JobResult, Program
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from tests.engines.spark.in_process import Rows, run_stages


class OneByOne:
    """A run whose batches are made one by one, its tasks in this process.

    As a context it stops at the end: nothing is under way any more, and cached state is let go.

    Args:
        flow: The application.
        checkpoint: Where it begins, or goes on.
        plan: What its batches run under.
    """

    def __init__(self, flow: Flow, checkpoint: Path, plan: Plan) -> None:
        self.program = Program(flow, str(checkpoint), uuid4().hex)
        self.checkpoint = Checkpoint.open(self.program.checkpoint, flow)
        self.sinks = spark_sinks(self.program, self.checkpoint.storage, None)
        self.batches = Batches(self.program, self.checkpoint, self.sinks, None)
        self.plan = plan
        self._attempts = count()

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop."""
        self.sinks.close()
        remove_cache(self.program.cache)

    def next(self) -> Done:
        """One more batch."""
        last = self.checkpoint.last
        version = 0 if last is None else last.version + 1
        done = self.batches.next(version, self.plan, self.plan, 0.0, self.job)
        assert done is not None
        return done

    def to_the_end(self) -> None:
        """All batches that are left."""
        while not self.batches.ended():
            self.next()

    def job(self, layout: StageLayout, batch: Batch) -> JobResult:
        """What Spark would run."""
        program, batch = pickle.loads(self.program.packed()), pickle.loads(pickle.dumps(batch))
        return run_stages(layout, partial(self._task, program, batch), Random(batch.version))

    def _task(self, program: Program, batch: Batch, stage: int, task: int, rows: Rows) -> Rows:
        run: Any = TaskRun(program, batch, stage, task, str(next(self._attempts)))
        return list(run.work(iter(rows)))
