"""Time of a micro-batch on Spark: a fixed cost, and the waves of its stages one after another.

The stages of a batch do not overlap. Within a stage Spark runs as many tasks at once as it has
slots and gives the next task to the slot that is free first, so equal tasks run in waves. A task
costs something to launch, and what it gets from the stage before has to be shuffled. The
pipelines of a task are threads that work at the same time; where order has to be restored first,
the next of its regions begins when the one before is done, in a phase of its own. In a phase the
slowest thread decides, once the first jumbo tuple has come through the others; with few jumbo
tuples there is little to overlap. And all threads together cannot have more than the machine has.

The caller says what each task does; how a plan becomes stages and tasks is the engine's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

from anabranch.planning.typed_json import Amount


@dataclass(frozen=True)
class SparkCosts:
    """What Spark takes on a machine, whatever the operators do.

    Attributes:
        batch_s: Per micro-batch: planning, log, commit.
        stage_s: Per stage.
        task_s: Per task: launching it, its worker, its report.
        shuffle_row_ns: Per tuple that goes from one stage to the next.
        shuffle_byte_ns: Per byte of such tuples.
        sink_byte_ns: Per byte that goes to a sink by way of the driver, as all do but files.
    """

    batch_s: Amount
    stage_s: Amount = 0.0
    task_s: Amount = 0.0
    shuffle_row_ns: Amount = 0.0
    shuffle_byte_ns: Amount = 0.0
    sink_byte_ns: Amount = 0.0

    def shuffle_s(self, rows: float, row_bytes: float = 0.0) -> float:
        """Time to hand tuples over to the next stage, by one task."""
        return rows * (self.shuffle_row_ns + row_bytes * self.shuffle_byte_ns) / 1e9


@dataclass(frozen=True)
class TaskPhase:
    """What the threads of a task do at the same time.

    Attributes:
        threads: Seconds of work of each.
        jumbos: Jumbo tuples that the work comes in; endless where their number does not matter.
    """

    threads: tuple[float, ...]
    jumbos: float = inf

    @property
    def elapsed_s(self) -> float:
        """How long it takes if every thread has a core.

        The slowest thread works all the time but while the first jumbo tuple comes to it and the
        last one goes on from it.
        """
        slowest = max(self.threads, default=0.0)
        return slowest + (sum(self.threads) - slowest) / max(self.jumbos, 1.0)


@dataclass(frozen=True)
class Task:
    """What one task does.

    Attributes:
        phases: One after another.
        shuffled_rows: Tuples that it takes over from the stage before.
        row_bytes: Size of one of them.
    """

    phases: tuple[TaskPhase, ...]
    shuffled_rows: float = 0.0
    row_bytes: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """How long it takes if every thread has a core."""
        return sum(phase.elapsed_s for phase in self.phases)

    @property
    def work_s(self) -> float:
        """What all its threads work."""
        return sum(sum(phase.threads) for phase in self.phases)


@dataclass(frozen=True)
class Slots:
    """Where tasks run.

    Attributes:
        tasks: How many run at once.
        cores: What the threads of all of them have at once, in cores that work alone; by default
            one for each task.
    """

    tasks: int
    cores: float = field(default=0.0)

    @property
    def capacity(self) -> float:
        """Cores at work at most."""
        return self.cores or float(self.tasks)


def batch_s(costs: SparkCosts, stages: Sequence[Sequence[Task]], slots: Slots) -> float:
    """Seconds of a micro-batch.

    Example:
        >>> costs = SparkCosts(batch_s=0.2, stage_s=0.05)
        >>> four_tasks = [Task((TaskPhase((0.3,)),))] * 4
        >>> round(batch_s(costs, [four_tasks], Slots(2)), 3)
        0.85
    """
    return costs.batch_s + sum(stage_s(costs, stage, slots) for stage in stages)


def stage_s(costs: SparkCosts, tasks: Sequence[Task], slots: Slots) -> float:
    """Seconds of one stage: its waves, but never less than all its work on all cores."""
    own = [costs.task_s + costs.shuffle_s(t.shuffled_rows, t.row_bytes) for t in tasks]
    elapsed = [o + t.elapsed_s for o, t in zip(own, tasks, strict=True)]
    work = sum(own) + sum(t.work_s for t in tasks)
    return costs.stage_s + max(waves_s(elapsed, slots.tasks), work / slots.capacity)


def waves_s(tasks: Sequence[float], slots: int) -> float:
    """When the last task ends, if each begins on the slot that is free first.

    Example:
        >>> waves_s([1.0, 1.0, 1.0], slots=2)
        2.0
    """
    free = [0.0] * max(1, slots)
    heapify(free)
    for seconds in tasks:
        heappush(free, heappop(free) + seconds)
    return max(free)
