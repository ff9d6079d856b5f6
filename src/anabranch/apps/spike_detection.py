"""Spike detection: readings that differ from the moving average of their sensor.

The application SD of BriskStream (§6, appendix B), known from Storm's benchmarks, which fed it with
the temperatures of the Intel Berkeley lab: 54 sensors, a reading each every 31 seconds. The average
goes over the last 1000 readings of a sensor, the new one included, or as many as there are; a
reading is a spike when it is off by more than 3 % of it. As in the paper every reading leaves,
spike or not. Readings are counted in the order in which they arrive.

Averages are exact: readings are added up as whole ten-thousandths, the precision of the lab's data.
An average below zero counts by its size, so that a frost is no spike; the original has none. What
is not a number, as from a broken sensor, leaves without an average and is part of none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_number, a_share, require
from anabranch.apps.kit.inputs import Input, paths_of, read_rows
from anabranch.apps.kit.seeded_random import draws
from anabranch.apps.kit.summary import AppSummary, Condensed, greatest
from anabranch.columns.grouped_rows import Runs
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.base import Operator
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.row_wise.map_filter_expand import map

SHOWN = 5
WINDOW = 1000
THRESHOLD = 0.03
DEVICES = 54
SECONDS_BETWEEN = 31
PARTS_A_UNIT = 10_000
LARGEST, LONGEST = 1e9, 100_000  # reading and window whose parts still add up in 64 bits

READINGS = pa.schema(
    [
        pa.field("device", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us")),
        pa.field("value", pa.float64(), nullable=False),
    ]
)


@map(out="parts: int64", keeps=READINGS.names)
def parser(batch: pa.RecordBatch) -> dict[str, Any]:
    """Readings as whole parts; null for what is not a number, or too large for one."""
    values = batch["value"].to_numpy(zero_copy_only=False)
    valid = np.abs(values) <= LARGEST
    parts = np.rint(np.where(valid, values, 0) * PARTS_A_UNIT).astype(np.int64)
    return {"parts": pa.array(parts, mask=~valid)}


def moving_average(window: int) -> Operator:
    """The step that sets beside each reading the average of its sensor's last ones."""

    @keyed(key="device", state="last: large_binary", out="average: double", keeps=READINGS.names)
    def average(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
        valid = batch["parts"].is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(valid)
        runs = Runs(state.codes[rows], state.groups)
        series = ReadingSeries(runs, state["last"], batch["parts"].drop_null().to_numpy())
        state["last"] = series.ends(window - 1)
        sums, lengths = series.window_sums(window)
        averages = np.empty(batch.num_rows)
        averages[rows[runs.order]] = sums / (lengths * PARTS_A_UNIT)
        return {"average": pa.array(averages, mask=~valid)}

    return average


class ReadingSeries:
    """What each group had before and its new values, one group behind the other.

    `Recent` does this for a few values, which have a column of the state each. A thousand of them
    are one value here, of as many bytes as there are readings so far.
    """

    def __init__(
        self, runs: Runs, before: npt.NDArray[np.object_], values: npt.NDArray[np.int64]
    ) -> None:
        """Lay the groups out; `before` is the memory of their integers, None for new groups."""
        kept = [each or b"" for each in before]
        had = np.array([len(each) // values.itemsize for each in kept])
        self._stops = np.cumsum(had + runs.counts)
        self._starts = self._stops - had - runs.counts
        groups = runs.codes[runs.order]
        self._numbers = had[groups] + np.arange(len(runs)) - runs.starts[groups]
        self._places = self._starts[groups] + self._numbers
        self._values = np.empty(self._stops[-1], np.int64)
        is_old = np.ones(len(self._values), np.bool_)
        is_old[self._places] = False
        self._values[is_old] = np.frombuffer(b"".join(kept), np.int64)
        self._values[self._places] = values[runs.order]

    def window_sums(self, window: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For each new value, by group, the sum of the last values up to it, and how many."""
        # Running sums may wrap around; the differences of those that did are right all the same.
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._values)])
        lengths = np.minimum(self._numbers + 1, window)
        return running[self._places + 1] - running[self._places + 1 - lengths], lengths

    def ends(self, most: int) -> npt.NDArray[np.object_]:
        """The memory of each group's last values, as many as asked for."""
        starts = np.maximum(self._stops - most, self._starts)
        kept = np.empty(len(starts), object)
        for group, (start, stop) in enumerate(
            zip(starts.tolist(), self._stops.tolist(), strict=True)
        ):
            kept[group] = self._values[start:stop].tobytes()
        return kept


def spike_detection(threshold: float) -> Operator:
    """The step that compares each reading with the average."""

    @map(out="spike: bool", keeps="*")
    def spikes(batch: pa.RecordBatch) -> dict[str, Any]:
        value, average = (
            batch[name].to_numpy(zero_copy_only=False) for name in ("value", "average")
        )
        return {"spike": np.abs(value - average) > threshold * np.abs(average)}

    return spikes


def build(
    *,
    input: Input | None = None,
    rows: int | None = 2_000_000,
    window: int = WINDOW,
    threshold: float = THRESHOLD,
    devices: int = DEVICES,
    spikes: float = 0.001,
    seed: int = 0,
) -> Flow:
    """Find the spikes in the readings of files, or in generated ones.

    Args:
        input: Files with the columns device, ts (may be empty) and value.
        rows: How many readings to generate; None for an endless stream.
        window: Over how many readings of a sensor an average goes.
        threshold: The share of the average by which a spike is off.
        devices: How many sensors there are.
        spikes: The share of generated readings that are spikes.
        seed: Decides the generated readings.

    Example:
        >>> build()
        Flow 'spike-detection': readings → parser → moving_average → spike_detection → out
    """
    require(
        "spike-detection",
        window=a_count(window, 1, LONGEST),
        threshold=a_number(threshold, 0),
        devices=a_count(devices, 1),
        spikes=a_share(spikes),
    )
    flow = Flow("spike-detection")
    if input is not None:
        readings = read_rows(flow, "readings", paths_of(input, "readings", ["readings"]), READINGS)
    else:
        make = random_readings(devices, spikes, seed)
        readings = flow.source("readings", generate(make, READINGS, rows=rows, seed=seed))
    (
        readings.apply("parser", parser)
        .apply("moving_average", moving_average(window))
        .apply("spike_detection", spike_detection(threshold))
        .sink("out", collect())
    )
    return flow


class Summary(AppSummary):
    """How many spikes there are, and the largest of them.

    Example:
        >>> readings = {"device": [1, 1], "value": [20.0, 30.0], "average": [20.0, 25.0]}
        >>> print(Summary.of({"out": pa.table({**readings, "spike": [False, True]})}))
        1 of 2 readings are spikes; the largest:
          sensor 1 read 30.0 at an average of 25.00, off by 20.0 %
    """

    def __init__(self) -> None:
        self._readings = self._spikes = 0
        self._largest = Condensed(greatest(SHOWN, [("off", "descending")]))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            spikes = rows.filter(rows["spike"])
            off = pc.abs(pc.subtract(spikes["value"], spikes["average"]))
            share = pc.divide(off, pc.abs(spikes["average"]))
            self._readings += rows.num_rows
            self._spikes += spikes.num_rows
            self._largest.add(spikes.append_column("off", share))

    def __str__(self) -> str:
        lines = [
            f"  sensor {row['device']} read {row['value']:.1f} at an average of "
            f"{row['average']:.2f}, off by {row['off']:.1%}".replace("%", " %")
            for row in self._largest.rows()
        ]
        said = f"{self._spikes:,} of {self._readings:,} readings are spikes"
        return "\n".join([f"{said}; the largest:", *lines]) if lines else said


def random_readings(devices: int, spikes: float, seed: int) -> Any:
    """A generator of temperatures: a level for each sensor, the course of the day, noise, spikes.

    Sensors read in turn. Day and noise stay within 3 % of the average, spikes do not.
    """
    level = 17 + 8 * draws(seed, np.arange(devices))
    begin = np.datetime64("2004-02-28T00:00:00", "us")
    day = 24 * 60 * 60

    def make(rng: np.random.Generator, index: npt.NDArray[np.int64]) -> dict[str, Any]:
        turn, device = np.divmod(index, devices)
        seconds = (turn + rng.random(len(index))) * SECONDS_BETWEEN
        warmth = 0.2 * np.sin(2 * np.pi * seconds / day)
        value = level[device] + warmth + rng.normal(0, 0.04, len(index))
        spike = rng.random(len(index)) < spikes
        value *= 1 + spike * rng.uniform(0.1, 0.5, len(index)) * rng.choice((-1, 1), len(index))
        ts = begin + (seconds * 1e6).astype("timedelta64[us]")
        return {"device": device, "ts": ts, "value": np.round(value, 4)}

    return make
