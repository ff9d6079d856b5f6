"""Calibration of Spark: what a batch, a stage, a task and a shuffled tuple cost on this machine.

A flow of a source, a partitioned operator and an ordered sink is one stage of one task with one
replica, and three stages with several: reader, replicas, sink. So the times of micro-batches with
few and many rows, narrow and wide, and with one, two and four replicas are sums of the same costs,
taken different numbers of times. The costs that fit best, none below 0, are found by least squares.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.errors import EngineError, Subject
from anabranch.planning.models.spark import SparkCosts
from anabranch.planning.profile import Overheads


@dataclass(frozen=True)
class Trial:
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


def fit(trials: Sequence[Trial], slots: int) -> SparkCosts:
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


def _amounts(trial: Trial, slots: int) -> list[float]:
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
