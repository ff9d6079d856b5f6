"""How fast Linear Road is: the average speed of a segment, exactly.

LAV is a mean of means of means, so it is a fraction with a denominator that no unit fits. It is
kept as what it is made of: for each of the last five minutes the sum of the vehicles' averages and
their number. The averages are counted in parts of a mile an hour so small that up to 24 reports of
one vehicle from one segment in one minute can be divided by their number (the benchmark has two);
of more, the average is rounded down to such a part.

A segment whose LAV is the speed of free traffic costs nothing, one a hair below it does. So where
floating-point numbers cannot tell the two apart, fractions do.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.grouped_rows import Runs
from anabranch.operators.base import Kernel, KernelContext, Outputs
from anabranch.operators.keyed.keyed import KeyedBatch, KeyedBatchKernel, KeyedState
from anabranch.state.positions import FIRST, LAST, Ints, Jumbo, Root

MINUTE = 60
SEGMENT = ["xway", "dir", "segment"]
PARTS_A_MPH = lcm(*range(1, 25))
"""Of a mile an hour; a thousand of them for a million vehicles fit 64 bits."""

UNCERTAIN = 1e-6  # miles an hour: far more than what floating-point numbers lose here


class VehicleSpeed(KeyedBatch):
    """By how much a report changes the averages and the vehicles of its segment and minute.

    A vehicle counts once in a segment and minute, with the average of all its reports from there,
    also when it went to another segment in between. What a minute needed is forgotten with it.
    """

    def __init__(self, keeps: Sequence[str]) -> None:
        """Name the columns that later steps need."""
        super().__init__(
            _changes,
            ["vid", "at"],
            "minute: int64, reports: int64, speeds: int64",
            "speed_change: int64, car_change: int64",
            keeps,
        )

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return VehicleSpeedKernel(context, self)


class VehicleSpeedKernel(KeyedBatchKernel):
    """A keyed batch function whose state ends with the minute."""

    _swept = FIRST

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Work on a batch, then forget the minutes to which no report can come any more."""
        out = super().step(inputs, frontier)
        minute = frontier.time // MINUTE
        if minute > self._swept and frontier.time < LAST:
            self._swept = minute
            table = self._store.table
            slots = table.live()
            table.remove(slots[table.get("minute", slots) < minute])
        return out


def _changes(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
    runs = Runs(state.codes, state.groups)
    ends = runs.starts + runs.counts - 1
    time, speed = (batch[n].to_numpy()[runs.order].astype(np.int64) for n in ("time", "speed"))
    minute = time // MINUTE
    within = Stretches(runs, minute, state["minute"], state["reports"])
    speeds, reports = within.sums(speed, state["speeds"]), within.lengths
    change = _average(speeds, reports) - _average(speeds - speed, reports - 1)
    state["minute"], state["reports"], state["speeds"] = minute[ends], reports[ends], speeds[ends]
    rows = np.empty(len(runs), np.int64)
    rows[runs.order] = np.arange(len(runs))
    return {"speed_change": change[rows], "car_change": (reports == 1)[rows].astype(np.int64)}


def _average(speeds: Ints, reports: Ints) -> Ints:
    """In parts of a mile an hour; of no reports, nothing."""
    whole, rest = np.divmod(speeds, np.maximum(reports, 1))
    average: Ints = PARTS_A_MPH * whole + PARTS_A_MPH * rest // np.maximum(reports, 1)
    return average


class Velocity:
    """LAV of each row, from the minutes that had vehicles.

    Example:
        >>> third = PARTS_A_MPH // 3
        >>> velocity = Velocity(1)
        >>> velocity.add(np.array([81 * PARTS_A_MPH + third]), np.array([2]))
        >>> velocity.add(np.array([79 * PARTS_A_MPH - third]), np.array([2]))
        >>> velocity.add(np.array([0]), np.array([0]))  # a minute without vehicles
        >>> lav, below = velocity.against(Fraction(40))
        >>> lav.tolist(), below.tolist()
        ([40.0], [False])
    """

    def __init__(self, rows: int) -> None:
        """Of no minute yet."""
        self._minutes: list[tuple[Ints, Ints]] = []
        self._sum = np.zeros(rows)
        self.known = np.zeros(rows, np.int64)

    def add(self, totals: Ints, cars: Ints) -> None:
        """One more minute: by row the sum of averages, and of how many vehicles; 0 for none."""
        self._minutes.append((totals, cars))
        self._sum += np.where(cars > 0, totals / np.maximum(cars, 1), 0.0)
        self.known += cars > 0

    def against(self, speed: Fraction) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """LAV in miles an hour, 0 where no minute is known; whether it is known and below a speed.

        Floats tell most of them apart. Those they cannot are few facts of many rows.
        """
        lav = self._sum / np.maximum(self.known, 1) / PARTS_A_MPH
        below = (lav < float(speed)) & (self.known > 0)
        near = np.flatnonzero((np.abs(lav - float(speed)) < UNCERTAIN) & (self.known > 0))
        if len(near):
            facts = [column[near] for minute in self._minutes for column in minute]
            distinct, codes = np.unique(np.stack(facts, axis=1), axis=0, return_inverse=True)
            exact = [_exact(row[0::2], row[1::2]) for row in distinct.tolist()]
            lav[near] = np.array([float(each) for each in exact])[codes.reshape(-1)]
            below[near] = np.array([each < speed for each in exact])[codes.reshape(-1)]
        return lav, below


def _exact(totals: Sequence[int], cars: Sequence[int]) -> Fraction:
    averages = [
        Fraction(total, n * PARTS_A_MPH) for total, n in zip(totals, cars, strict=True) if n
    ]
    return Fraction(sum(averages), len(averages))


# Rows of a key that follow each other with one value, counted and added up across batches.
#
# A vehicle that reports from one place again and again stands; its reports of one minute make up an
# average.


class Stretches:
    """Rows of a key that follow each other with one value, which may have begun in an old batch.

    Attributes:
        changed: For each row, in the order of `runs`, whether it begins a stretch.
        before: The value of the row before it.
        lengths: Of how many rows its stretch is, up to it.
    """

    def __init__(self, runs: Runs, values: Ints, last: Ints, had: Ints) -> None:
        """Find the stretches; `last` is each key's value so far, `had` of how many rows."""
        heads = runs.starts
        self._groups = runs.codes[runs.order]
        self.before = np.roll(values, 1)
        self.before[heads] = last
        self.changed = values != self.before
        rows = np.arange(len(values))
        begins = self.changed.copy()
        begins[heads] = True
        self._first = np.maximum.accumulate(np.where(begins, rows, 0))
        self.lengths: Ints = rows - self._first + 1 + self._earlier(had)

    def sums(self, values: Ints, had: Ints) -> Ints:
        """The sum of each stretch up to each row; `had` is that of each key's last one so far."""
        running = np.cumsum(values)
        total: Ints = running - (running - values)[self._first] + self._earlier(had)
        return total

    def _earlier(self, had: Ints) -> Ints:
        return np.where(self.changed[self._first], 0, had[self._groups])
