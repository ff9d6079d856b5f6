"""Calibration of Spark: what a batch, a stage, a task and a shuffled tuple cost on this machine.

A flow of a source, a partitioned operator and an ordered sink is one stage of one task with one
replica, and three stages with several: reader, replicas, sink. So the times of micro-batches with
few and many rows, narrow and wide, and with one, two and four replicas are sums of the same costs,
taken different numbers of times. The costs that fit best, none below 0, are found by least squares.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.engine import Options
from anabranch.engines.handle import Listener, Run
from anabranch.engines.measuring.busy_flows import SOURCE, busy_flow, replaying
from anabranch.engines.registry import engine_of
from anabranch.errors import EngineError, Subject
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.models.spark import SparkCosts
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Overheads, chain


@dataclass(frozen=True)
class BatchTrial:
    """Micro-batches of one kind.

    Attributes:
        rows: Tuples of each.
        replicas: Of the partitioned operator.
        row_bytes: Size of a tuple.
        seconds: How long they took.
    """

    rows: int
    replicas: int
    row_bytes: int
    seconds: tuple[float, ...]


def fit(trials: Sequence[BatchTrial], slots: int) -> SparkCosts:
    """The costs that explain the trials best, each trial by its median and in proportion.

    Args:
        trials: Of at least seven kinds.
        slots: How many tasks Spark runs at once.
    """
    from scipy.optimize import nnls  # slow to import, and only needed here

    seconds = np.array([statistics.median(trial.seconds) for trial in trials])
    shares = np.array([_amounts(trial, slots) for trial in trials])
    if np.linalg.matrix_rank(shares / shares.max(axis=0)) < shares.shape[1]:
        raise EngineError(
            Subject("engine", "spark"),
            f"trials that tell {shares.shape[1]} costs apart",
            f"{[(t.rows, t.replicas, t.row_bytes) for t in trials]} on {slots} slots",
            "try more replicas than slots, too",
        )
    # A part of the time of each trial, so that the long ones do not drown the short ones.
    found, _ = nnls(shares / seconds[:, None], np.ones(len(trials)))
    batch, stage, task, _, row, byte, written = (float(each) for each in found)
    return SparkCosts(batch, stage, task, row * 1e9, byte * 1e9, written * 1e9)


def _amounts(trial: BatchTrial, slots: int) -> list[float]:
    """How often each is paid, one after another: batch, stage, task, operator, row, byte, sink."""
    written = trial.rows * trial.row_bytes
    if trial.replicas == 1:
        return [1, 1, 1, trial.rows, 0, 0, written]
    waves = -(-trial.replicas // slots)
    share = waves / trial.replicas
    shuffled = trial.rows * (share + 1)  # to the replicas, and from them to the sink
    bytes_shuffled = shuffled * trial.row_bytes
    return [1, 3, 2 + waves, trial.rows * share, shuffled, bytes_shuffled, written]


def overheads(costs: SparkCosts) -> Overheads:
    """What planners that know no stages take: a shuffle is a way out of a region and one in.

    Restoring order behind replicas is part of the shuffle, so replication costs nothing on top.
    """
    return Overheads(thread_switch=costs.shuffle_row_ns / 2)


# Busy flows on Spark: how long micro-batches take under one plan after another.
#
# A tour is one run: plans take turns, a few micro-batches each, so that Spark is started once and a
# slow moment of the machine hits all of them alike. A change of plan is the next micro-batch; the
# first one under a plan moves state and does not count.

FEW_ROWS, MANY_ROWS = 2_000, 200_000
NARROW_COLUMNS, WIDE_COLUMNS = 1, 13
BYTES_A_COLUMN = 8
CHEAP_US = 0.01
LIMIT_S = 300.0

Look = TypeVar("Look")


@dataclass(frozen=True)
class Turn(Generic[Look]):
    """Some micro-batches under one plan.

    Attributes:
        plan: Name of the plan.
        seconds: Of each micro-batch, from the end of the one before to its own.
        before: What a look at the machine showed right before them.
        after: The same right behind them.
    """

    plan: str
    seconds: tuple[float, ...]
    before: Look
    after: Look


class Tour(Generic[Look]):
    """Hears a run and wishes for the plans of a tour, one after another.

    Args:
        plans: By name; each gets its turn in every round.
        rounds: How often all of them do, behind a first round that warms Spark up.
        batches: Micro-batches of a turn that count, behind a first one that does not.
        look: Called before and behind the micro-batches of a turn, while Spark has nothing to do.
    """

    def __init__(
        self, plans: Mapping[str, Plan], rounds: int, batches: int, look: Callable[[], Look]
    ) -> None:
        self._order = list(plans) * (1 + rounds)
        self._plans, self._batches, self._look = plans, batches, look
        self._turns: list[Turn[Look]] = []
        self._seconds: list[float] | None = None  # None while a plan's first batch is under way
        self._since = 0.0
        self.run: Run | None = None

    @property
    def first(self) -> Plan:
        """The plan to start with."""
        return self._plans[self._order[0]]

    @property
    def over(self) -> bool:
        """Whether all have had their turns."""
        return len(self._turns) >= len(self._order)

    @property
    def turns(self) -> list[Turn[Look]]:
        """All turns but those of the first round."""
        return self._turns[len(self._plans) :]

    def hear(self, event: Event) -> None:
        """A micro-batch is done: note its time, and say what the next one runs under."""
        if not isinstance(event, Observed) or self.over:
            return
        now = time.perf_counter()
        if self._seconds is None:
            self._seconds, self._before = [], self._look()
        else:
            self._seconds.append(now - self._since)
        if len(self._seconds) == self._batches:
            plan = self._order[len(self._turns)]
            self._turns.append(Turn(plan, tuple(self._seconds), self._before, self._look()))
            self._seconds = None
            if self.run is not None and not self.over:
                self.run.reconfigure(self._plans[self._order[len(self._turns)]])
        self._since = time.perf_counter()


def tour_spark(
    flow: Flow,
    plans: Mapping[str, Plan],
    rounds: int,
    look: Callable[[], Look],
    *,
    batches: int = 3,
    session: object = None,
) -> list[Turn[Look]]:
    """Micro-batches of each plan, round by round; see `Tour`."""
    tour = Tour(plans, rounds, batches, look)
    run = tour.run = start(flow, tour.first, tour.hear, session)
    try:
        until = time.monotonic() + LIMIT_S
        while not tour.over and time.monotonic() < until and not run.await_termination(0.05):
            pass
    finally:
        run.stop()
    return tour.turns


def start(flow: Flow, plan: Plan, listener: Listener, session: object) -> Run:
    """Start a run that no policy tunes."""
    engine = engine_of("spark", flow, plan, Options(session=session))
    run = Run(flow.name, engine, listener)
    engine.start(run.hear)
    return run


def spark_trials(session: object = None, rounds: int = 2) -> list[BatchTrial]:
    """Micro-batches that tell Spark's costs apart: rows, widths, stages, waves of tasks."""
    slots = len(usable_cpus())
    replicas = sorted({1, 2, slots, 2 * slots})  # one wave, and two: a stage is not a task
    return [
        *_trials(NARROW_COLUMNS, (FEW_ROWS, MANY_ROWS), replicas, session, rounds),
        *_trials(WIDE_COLUMNS, (MANY_ROWS,), (1, 2), session, rounds),
    ]


def _trials(
    columns: int, sizes: Sequence[int], replicas: Sequence[int], session: object, rounds: int
) -> list[BatchTrial]:
    pads = tuple(f"pad{number}" for number in range(columns - 1))
    count = OperatorProfile("count", CHEAP_US, state=StateKind.PARTITIONED, key=("key",))
    made = chain([OperatorProfile("pass", CHEAP_US, key=pads), count], unit="us")
    flow = replaying(busy_flow(made, None), max(sizes))
    plan = Plan.sequential(flow)
    cases = {
        f"{rows} rows, {copies} replicas": (rows, copies) for rows in sizes for copies in replicas
    }
    plans = {
        name: plan.with_source(SOURCE, batch_rows=rows).with_replicas("count", copies)
        for name, (rows, copies) in cases.items()
    }
    turns = tour_spark(flow, plans, rounds, lambda: None, session=session)
    # A row has its key, its number, and the columns that make it wide.
    width = BYTES_A_COLUMN * (columns + 1)
    return [
        BatchTrial(
            *case, width, tuple(s for turn in turns if turn.plan == name for s in turn.seconds)
        )
        for name, case in cases.items()
    ]
