"""Traffic for Linear Road: vehicles that enter, drive, crash, ask and leave, each row by itself.

As many vehicles as asked for are on the road at any time and report every 30 seconds, in turn. What
a vehicle does follows from numbers drawn for it and its trip, and where it is from how many reports
of the trip came before, so no row needs another one. Half of the trips go slowly through the middle
of the expressway, which is where the tolls are. Some vehicles crash in pairs: both stop at one
place for some minutes and go on. The vehicles of two trips take turns, so a vehicle comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.apps.kit.columns import described
from anabranch.apps.kit.seeded_random import Words, draws, mixed, whole_draws
from anabranch.state.positions import Ints

REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME = 0, 2, 3, 4
ENTRY_LANE, EXIT_LANE = 0, 4
SECONDS_BETWEEN = 30
FEET_A_SEGMENT, SEGMENTS = 5280, 100
FEET = FEET_A_SEGMENT * SEGMENTS
FEET_A_REPORT = 44  # at one mile an hour
DAYS = 69
MOST_REQUESTS = 0.5

REPORTS = described(
    pa.schema(
        [
            pa.field("type", pa.int8(), nullable=False),
            pa.field("time", pa.int32(), nullable=False),
            pa.field("vid", pa.int64(), nullable=False),
            ("speed", pa.int32()),
            ("xway", pa.int32()),
            ("lane", pa.int8()),
            ("dir", pa.int8()),
            ("segment", pa.int8()),
            ("position", pa.int32()),
            ("qid", pa.int64()),
            ("day", pa.int32()),
        ]
    ),
    type=f"{REPORT} a report, {BALANCE} asks for a balance, {EXPENDITURE} for a day's expenditure",
    time="in seconds",
    speed="in miles an hour",
    position="in feet",
    day=f"of the last {DAYS}, for which expenditure is asked",
)
"""Of the benchmark's columns, those that are used; the seconds of a day as time, feet, miles/h."""

HISTORY = pa.schema(
    [("vid", pa.int64()), ("day", pa.int32()), ("xway", pa.int32()), ("expenditure", pa.int64())]
)

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Traffic:
    """What is on the road.

    Attributes:
        vehicles: How many at a time.
        xways: On how many expressways.
        accidents: The share of pairs of trips that end at one place for a while.
        requests: The share of rows that are requests.
        lateness: By how many seconds rows may come out of order.
        seed: Decides all that is drawn.
    """

    vehicles: int
    xways: int
    accidents: float
    requests: float
    lateness: int
    seed: int

    def rows(self, rng: np.random.Generator, index: Ints) -> Columns:
        """What `generate` asks for: the rows of these numbers, a little out of order."""
        rows_a_round = self.vehicles + self.vehicles // max(self._request_every - 1, 1)
        spread = (self.lateness - 1) * rows_a_round // SECONDS_BETWEEN
        if spread > 1:
            index = index[np.argsort(index + rng.random(len(index)) * spread)]
        round_, turn = np.divmod(index, rows_a_round)
        asks = turn % self._request_every == self._request_every - 1
        slot = turn - turn // self._request_every
        slot[asks] = whole_draws(self.vehicles, self.seed, index[asks], 1)
        made = self._reports(slot, round_)
        made["time"] = SECONDS_BETWEEN * round_ + SECONDS_BETWEEN * turn // rows_a_round
        made["qid"] = np.where(asks, index, -1)
        made["day"] = np.full(len(index), -1)
        self._ask(made, np.flatnonzero(asks), index)
        return made

    def history(self, rng: np.random.Generator, index: Ints) -> Columns:
        """What `generate` asks for: seven days of each vehicle."""
        vid, week = np.divmod(index, 7)
        return {
            "vid": vid,
            "day": 10 * week + 1 + whole_draws(9, self.seed, index, 2),
            "xway": whole_draws(self.xways, self.seed, index, 3),
            "expenditure": whole_draws(10_000, self.seed, index, 4),
        }

    @property
    def history_rows(self) -> int:
        """Seven for each vehicle that is ever on the road."""
        return 7 * 2 * self.vehicles

    @property
    def _request_every(self) -> int:
        return round(1 / min(self.requests, MOST_REQUESTS)) if self.requests > 0 else 1 << 62

    def _reports(self, slot: Ints, round_: Ints) -> Columns:
        """What the vehicle that has a place among those on the road reports in a round."""
        pair = slot // 2
        both = mixed(self.seed, pair)
        reports = 12 + whole_draws(29, both, 5)  # of each trip
        trip, number = np.divmod(round_ + whole_draws(reports, both, 6), reports)
        crashes = draws(both, trip, 7) < self.accidents
        # What is drawn for one of two that crash happens to both.
        driver = mixed(self.seed, np.where(crashes, 2 * pair, slot), trip)
        slow = draws(driver, 8) < 0.5
        speed = np.where(slow, 15, 45) + whole_draws(np.where(slow, 24, 31), driver, 9)
        pause = np.where(crashes, 4 + whole_draws(5, driver, 10), 0)
        crash = 1 + whole_draws(reports - pause - 2, driver, 11)
        waited = np.clip(number - crash, 0, pause)
        stands = (waited > 0) & (number <= crash + pause)
        length = FEET_A_REPORT * speed * (reports - 1 - pause)
        position = _starts(driver, slow, length) + FEET_A_REPORT * speed * (number - waited)
        direction = whole_draws(2, driver, 12)
        position = np.where(direction == 1, FEET - 1 - position, position)
        lane = 1 + whole_draws(3, driver, 13)
        lane[number == 0], lane[number == reports - 1] = ENTRY_LANE, EXIT_LANE
        return {
            "type": np.full(len(slot), REPORT),
            "vid": slot + self.vehicles * (trip % 2),
            "speed": np.where(stands, 0, speed + whole_draws(5, driver, number, 14) - 2),
            "xway": whole_draws(self.xways, driver, 15),
            "lane": lane,
            "dir": direction,
            "segment": position // FEET_A_SEGMENT,
            "position": position,
        }

    def _ask(self, made: Columns, rows: Ints, index: Ints) -> None:
        """Make rows requests, which have no more of the columns than they need."""
        drawn = draws(self.seed, index[rows], 18)
        kinds = np.select([drawn < 0.5, drawn < 0.9], [BALANCE, EXPENDITURE], TRAVEL_TIME)
        made["type"][rows] = kinds
        for name in ("speed", "xway", "lane", "dir", "segment", "position"):
            made[name][rows] = -1
        past = rows[kinds == EXPENDITURE]
        made["xway"][past] = whole_draws(self.xways, self.seed, index[past], 19)
        made["day"][past] = 1 + whole_draws(DAYS, self.seed, index[past], 20)


def _starts(driver: Words, slow: npt.NDArray[np.bool_], length: Ints) -> Ints:
    """Where trips begin: slow ones such that they lead through the middle."""
    one, other = draws(driver, 16), draws(driver, 17)
    spread = 15 * FEET_A_SEGMENT
    middle = FEET // 2 - length // 2 + (spread * (one + other - 1)).astype(np.int64)
    anywhere = (one * (FEET - length)).astype(np.int64)
    return np.clip(np.where(slow, middle, anywhere), 0, FEET - 1 - length)
