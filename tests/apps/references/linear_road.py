"""The rules of the benchmark, report by report, with everything remembered that ever happened."""

from __future__ import annotations

from collections import defaultdict, deque
from fractions import Fraction
from functools import cache
from typing import Any

from anabranch.apps.linear_road.data import HISTORY, Traffic
from anabranch.io import generate
from tests.apps.cases import Case, Row, Rows, Times

FREE_SPEED = 40
EXIT = 4

ALIKE: dict[str, Any] = {"xways": 1, "free_cars": 0, "lateness": 10, "seed": 101}
SMALL: dict[str, Any] = {"rows": 100, "vehicles": 10, "accidents": 0.5, "requests": 0.34}
LARGE: dict[str, Any] = {"rows": 500, "vehicles": 20, "accidents": 0.5, "requests": 0.2}
HUGE: dict[str, Any] = {"vehicles": 2_000, "accidents": 0.1}
DISORDER = 15  # more than the lateness, so that some rows come too late


def mean(numbers: list[Any]) -> Any:
    return sum(numbers) / len(numbers) if numbers else None


class Road:
    """All that is known at a moment."""

    def __init__(self, free_cars: int) -> None:
        self.free_cars = free_cars
        self.speeds: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.averages: dict[Any, Fraction | None] = {}
        self.places: dict[int, deque[Any]] = defaultdict(lambda: deque(maxlen=4))
        self.last: dict[int, Row] = {}
        self.standing: dict[Any, set[int]] = defaultdict(set)
        self.begun: dict[Any, int] = {}
        self.minutes_of_accidents: set[Any] = set()
        self.owed: dict[int, int] = {}
        self.balance: dict[int, int] = defaultdict(int)
        self.charged: dict[int, int] = defaultdict(int)

    def average(self, minute: int, segment: Any) -> Fraction | None:
        """Of the average speeds of the vehicles in a segment, in a minute that is over."""
        place = (segment, minute)
        if place not in self.averages:
            vehicles = self.speeds[place].values()
            self.averages[place] = mean([Fraction(sum(told), len(told)) for told in vehicles])
        return self.averages[place]

    def lav(self, minute: int, segment: Any) -> Fraction | None:
        averages = [self.average(minute - back, segment) for back in range(1, 6)]
        return mean([each for each in averages if each is not None])

    def had_accident(self, minute: int, segment: Any) -> bool:
        if (segment, minute) in self.minutes_of_accidents:
            return True
        return any(
            self.segment_of(place) == segment and begun // 60 <= minute
            for place, begun in self.begun.items()
        )

    @staticmethod
    def segment_of(place: Any) -> Any:
        xway, direction, _, position = place
        return xway, direction, position // 5280

    def note_place(self, row: Row) -> None:
        """Who stands, who stands no longer, and what accidents begin and end with that."""
        vid, time = row["vid"], row["time"]
        place = (row["xway"], row["dir"], row["lane"], row["position"])
        for other in [each for each, vids in self.standing.items() if vid in vids]:
            if other != place:
                self.standing[other].discard(vid)
                if len(self.standing[other]) == 1:
                    begun = self.begun.pop(other)
                    for second in range(begun, time):
                        self.minutes_of_accidents.add((self.segment_of(other), second // 60))
        told = self.places[vid]
        told.append(place)
        if 1 <= row["lane"] <= 3 and len(told) == 4 and len(set(told)) == 1:
            self.standing[place].add(vid)
            if len(self.standing[place]) == 2:
                self.begun.setdefault(place, time)

    def report(self, row: Row) -> tuple[Row | None, Row | None]:
        """A notification of a toll and one of an accident, where there are any."""
        vid, minute = row["vid"], row["time"] // 60
        segment = (row["xway"], row["dir"], row["segment"])
        self.speeds[(segment, minute)][vid].append(row["speed"])
        self.note_place(row)
        before = self.last.get(vid)
        self.last[vid] = row
        new_trip = before is None or before["lane"] == EXIT
        if not new_trip and segment == (before["xway"], before["dir"], before["segment"]):
            return None, None
        if not new_trip and self.owed[vid]:
            self.balance[vid] += self.owed[vid]
            self.charged[vid] = row["time"]
        self.owed[vid] = 0
        if row["lane"] == EXIT:
            return None, None

        step = -1 if row["dir"] else 1
        ahead = [row["segment"] + step * away for away in range(5)]
        accident = next(
            (s for s in ahead if self.had_accident(minute - 1, (*segment[:2], s))), None
        )
        lav = self.lav(minute, segment)
        cars = len(self.speeds[(segment, minute - 1)])
        toll = 0
        if lav is not None and lav < FREE_SPEED and cars > self.free_cars and accident is None:
            toll = 2 * (cars - self.free_cars) ** 2
        self.owed[vid] = toll
        told = {name: row[name] for name in ("xway", "dir", "segment", "time", "vid")}
        warning = None if accident is None else {**told, "accident": accident}
        return {**told, "lav": None if lav is None else float(lav), "toll": toll}, warning


@cache
def past() -> dict[Any, int]:
    """What was spent in the past; the vehicles of the other cases are the first of those."""
    traffic = Traffic(HUGE["vehicles"], ALIKE["xways"], 0.0, 0.0, 0, ALIKE["seed"])
    rows = traffic.history_rows
    table = generate(traffic.history, HISTORY, rows=rows).read("generated", 0, rows).batch
    return {(r["vid"], r["day"], r["xway"]): r["expenditure"] for r in table.to_pylist()}


def parted(rows: list[Row], lateness: int) -> tuple[list[Row], list[Row]]:
    """Rows on time, in the order of their times, and those that come too late."""
    on_time, late, latest = [], [], 0
    for row in rows:
        (late if row["time"] < latest - lateness else on_time).append(row)
        latest = max(latest, row["time"])
    return sorted(on_time, key=lambda row: row["time"]), late


def expected(
    rows: Rows, free_cars: int = ALIKE["free_cars"], lateness: int = ALIKE["lateness"]
) -> Rows:
    road = Road(free_cars)
    found: Rows = {
        sink: [] for sink in ("out", "accidents", "balances", "expenditures", "unanswered", "late")
    }
    on_time, found["late"] = parted(rows["reports"], lateness)
    for row in on_time:
        told = {"time": row["time"], "vid": row["vid"], "qid": row["qid"]}
        match row["type"]:
            case 0:
                for sink, notification in zip(("out", "accidents"), road.report(row), strict=True):
                    found[sink] += [notification] if notification else []
            case 2:
                balance, charged = road.balance[row["vid"]], road.charged[row["vid"]]
                found["balances"].append({**told, "balance": balance, "charged": charged})
            case 3:
                asked = {"xway": row["xway"], "day": row["day"]}
                spent = past().get((row["vid"], row["day"], row["xway"]), 0)
                found["expenditures"].append({**told, **asked, "expenditure": spent})
            case _:
                found["unanswered"].append(row)
    return found


CASES = [
    Case(
        "linear-road",
        {**SMALL, **ALIKE},
        {**LARGE, **ALIKE},
        expected,
        {"reports": Times(lambda row: row["time"], DISORDER)},
        huge=HUGE,
        huge_delay=0.75,
    )
]
