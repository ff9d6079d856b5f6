"""The rules of Linear Road as steps: who enters a segment, how fast it is, who crashed, who pays.

Facts about a segment in a minute are told when the minute is over, before the reports of the next
one, and travel to the reports of the segment as one stream of rows (`ROAD`). A fact is one integer:
the time at which it is told, then what it says; so the greatest one so far is the latest. (The
fact of a speed says of how many vehicles, and the sum of their averages stands beside it.)
How speeds are averaged, `speeds` says.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.apps.linear_road.data import EXIT_LANE, FEET, FEET_A_SEGMENT, SEGMENTS
from anabranch.apps.linear_road.speeds import MINUTE, SEGMENT, Stretches, Velocity
from anabranch.columns.grouped_rows import Runs
from anabranch.operators.base import Operator
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.row_wise.map_filter_expand import expand, map
from anabranch.operators.tuple_style.invocation import Invocation, Reason
from anabranch.operators.tuple_style.tuples import partitioned
from anabranch.state.positions import Ints

MINUTES_OF_SPEED = 5
STOPPED_AFTER = 4
CRASHED = 2
SEGMENTS_WARNED = 5

ROAD = pa.schema(
    [
        ("xway", pa.int32()),
        ("dir", pa.int8()),
        ("segment", pa.int8()),
        ("kind", pa.int8()),
        ("fact", pa.int64()),
        ("total", pa.int64()),
        ("time", pa.int32()),
        ("vid", pa.int64()),
        ("lane", pa.int8()),
        ("new_trip", pa.bool_()),
    ]
)
"""What happens on a segment: vehicles that enter it, and facts about the minute before."""
ENTERS, SPEED, CARS, ACCIDENT = range(4)

_FACT_BITS = 24
_LANES = EXIT_LANE + 1


@keyed(
    key="vid",
    state="place: int64, stood: int64, segment: int64",
    out="at: int64, entered: bool, new_trip: bool, stop: int8, stop_place: int64",
    keeps=["time", "vid", "speed", "xway", "dir", "segment", "lane"],
)
def vehicle(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
    """What a report says beyond the vehicle's one before.

    Its segment as one number; whether the vehicle is new there, or on the road; whether it is known
    to stand (1) or to stand no longer (-1), and where.
    """
    runs = Runs(state.codes, state.groups)
    ends = runs.starts + runs.counts - 1
    report = {name: batch[name].to_numpy()[runs.order].astype(np.int64) for name in _NEEDED}
    road = 2 * report["xway"] + report["dir"]
    place = (road * _LANES + report["lane"]) * FEET + report["position"]
    segment = road * SEGMENTS + report["segment"]
    segment_before = np.roll(segment, 1)
    segment_before[runs.starts] = state["segment"]

    stands = Stretches(runs, place, state["place"], state["stood"])
    stood_before = np.roll(stands.lengths, 1)
    stood_before[runs.starts] = state["stood"]
    stops = (stands.lengths == STOPPED_AFTER) & _on_travel_lane(place)
    goes_on = stands.changed & (stood_before >= STOPPED_AFTER) & _on_travel_lane(stands.before)
    new_trip = (stood_before == 0) | (_lane(stands.before) == EXIT_LANE)

    state["place"], state["stood"] = place[ends], stands.lengths[ends]
    state["segment"] = segment[ends]
    told = {
        "at": segment,
        "entered": new_trip | (segment != segment_before),
        "new_trip": new_trip,
        "stop": stops.astype(np.int8) - goes_on.astype(np.int8),
        "stop_place": np.where(goes_on, stands.before, place),
    }
    rows = np.argsort(runs.order)
    return {name: values[rows] for name, values in told.items()}


_NEEDED = ["xway", "lane", "dir", "segment", "position"]


def _lane(place: Ints) -> Ints:
    return place // FEET % _LANES


def _on_travel_lane(place: Ints) -> npt.NDArray[np.bool_]:
    return (_lane(place) > 0) & (_lane(place) < EXIT_LANE)


@expand(out="place: int64, vid: int64, time: int32, stop: int8")
def stops(batch: pa.RecordBatch) -> tuple[dict[str, Any], Ints]:
    """The few reports that say that a vehicle stands, or stands no longer."""
    rows = np.flatnonzero(batch["stop"].to_numpy())
    # The key is a column of its own: kept, it would draw this step behind the routing of all rows.
    columns = {"place": "stop_place", "vid": "vid", "time": "time", "stop": "stop"}
    return {name: batch[each].take(pa.array(rows)) for name, each in columns.items()}, rows


@partitioned(key="place", out="road: int64, at_segment: int64, told: int64", timers=True)
def accident_detect(ctx: Invocation) -> None:
    """Two vehicles that stand at one place are an accident; tells so after each of its minutes."""
    standing = ctx.state.setdefault("standing", set())
    if ctx.reason is Reason.TIMER:
        crashed = len(standing) >= CRASHED
        if crashed or ctx.state["until"] > ctx.time - MINUTE:
            segment = ctx.key % FEET // FEET_A_SEGMENT
            ctx.emit(road=ctx.key // FEET // _LANES, at_segment=segment, told=ctx.time)
        if crashed:
            ctx.set_timer(ctx.time + MINUTE)
        else:
            del ctx.state["until"]
    for vehicle in ctx.tuples():
        if vehicle.stop > 0:
            standing.add(vehicle.vid)
            if len(standing) == CRASHED:
                ctx.state.setdefault("until", 0)
                ctx.set_timer((vehicle.time // MINUTE + 1) * MINUTE)
        else:
            if len(standing) == CRASHED:
                ctx.state["until"] = vehicle.time
            standing.discard(vehicle.vid)
    if not standing and "until" not in ctx.state:
        ctx.state.clear()


@expand(out=ROAD)
def upstream(batch: pa.RecordBatch) -> tuple[dict[str, Any], Ints]:
    """An accident as a fact about its segment and the four before it, the way one drives."""
    road, at, told = (batch[n].to_numpy() for n in ("road", "at_segment", "told"))
    parents = np.repeat(np.arange(len(road)), SEGMENTS_WARNED)
    away = np.tile(np.arange(SEGMENTS_WARNED), len(road))
    segment = at[parents] + np.where(road[parents] % 2, away, -away)
    on_road = (segment >= 0) & (segment < SEGMENTS)
    parents, away, segment = parents[on_road], away[on_road], segment[on_road]
    fact = _fact(told[parents], SEGMENTS_WARNED - 1 - away)  # of several, the nearest is greatest
    where = {"xway": road[parents] // 2, "dir": road[parents] % 2, "segment": segment}
    return {**where, **_row_of(ACCIDENT, fact)}, parents


@map(out=ROAD)
def minute_speed(batch: pa.RecordBatch) -> dict[str, Any]:
    """The average speeds of the vehicles in a segment and minute, as a fact about it."""
    fact = _fact(batch["window_end"].to_numpy(), batch["cars"].to_numpy())
    where = {name: batch[name] for name in SEGMENT}
    return {**where, **_row_of(SPEED, fact), "total": batch["total"]}


@map(out=ROAD)
def minute_cars(batch: pa.RecordBatch) -> dict[str, Any]:
    """The number of vehicles in a segment and minute, as a fact about it."""
    fact = _fact(batch["window_end"].to_numpy(), batch["cars"].to_numpy())
    return {**{name: batch[name] for name in SEGMENT}, **_row_of(CARS, fact)}


@expand(out=ROAD)
def enters(batch: pa.RecordBatch) -> tuple[dict[str, Any], Ints]:
    """The reports of vehicles that are new in their segment."""
    rows = np.flatnonzero(batch["entered"].to_numpy(zero_copy_only=False))
    chosen = batch.select([*SEGMENT, "time", "vid", "lane", "new_trip"]).take(pa.array(rows))
    nothing = np.zeros(len(rows), np.int64)
    columns = {name: chosen[name] for name in chosen.schema.names}
    return {**columns, "kind": nothing + ENTERS, "fact": nothing, "total": nothing}, rows


def _fact(told: Ints, value: Ints) -> Ints:
    return (told.astype(np.int64) << _FACT_BITS) + value


def _row_of(kind: int, fact: Ints) -> dict[str, Any]:
    nothing = {name: pa.nulls(len(fact), ROAD.field(name).type) for name in _OF_VEHICLES}
    return {"kind": np.full(len(fact), kind), "fact": fact, "total": 0 * fact, **nothing}


_OF_VEHICLES = ["time", "vid", "lane", "new_trip"]


class Latest:
    """The latest facts as of each row of a batch, by segment."""

    def __init__(self, batch: pa.RecordBatch, state: KeyedState) -> None:
        """Look at a batch of `ROAD`."""
        self.runs, self._state = Runs(state.codes, state.groups), state
        self._kinds, self._facts = batch["kind"].to_numpy(), batch["fact"].to_numpy()

    def of(self, kind: int, column: str) -> tuple[Ints, Ints]:
        """When the latest fact of a kind was told and what it says; remembers it in a column."""
        facts = np.where(self._kinds == kind, self._facts, 0)
        latest = self.runs.accumulate(np.maximum, self._state[column], facts)
        self._state[column] = latest[self.runs.last_rows()]
        return _told(latest), _value(latest)

    def speed(self, number: int, totals: Ints) -> tuple[Ints, Ints, Ints]:
        """The latest of the facts about speed whose minutes have this number, and its total."""
        mine = (self._kinds == SPEED) & (_told(self._facts) // MINUTE % MINUTES_OF_SPEED == number)
        columns = {f"speed_{number}": self._facts, f"total_{number}": totals}
        found = [self._state[column][self.runs.codes] for column in columns]
        if mine.any():  # a batch has few minutes
            rows = np.where(mine, np.arange(len(mine)), -1)
            latest = self.runs.accumulate(np.maximum, np.full(self.runs.groups, -1), rows)
            for place, (column, values) in enumerate(columns.items()):
                found[place] = np.where(latest < 0, found[place], values[latest])
                self._state[column] = found[place][self.runs.last_rows()]
        fact, total = found
        return _told(fact), _value(fact), total


def _told(fact: Ints) -> Ints:
    return fact >> _FACT_BITS


def _value(fact: Ints) -> Ints:
    return fact & ((1 << _FACT_BITS) - 1)


def last_avg_speed(free_speed: Fraction) -> Operator:
    """The step that says LAV, and whether that is below the speed of free traffic.

    LAV is the mean of the averages of the five minutes before, of those with vehicles.
    """

    @keyed(
        key=SEGMENT,
        state=", ".join(f"speed_{n}: int64, total_{n}: int64" for n in range(MINUTES_OF_SPEED)),
        out="lav: double, slow: bool",
        keeps=[name for name in ROAD.names if name != "total"],
    )
    def last_avg_speed(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Any], Ints]:
        latest, totals = Latest(batch, state), batch["total"].to_numpy()
        kinds = batch["kind"].to_numpy()
        rows = np.flatnonzero(kinds != SPEED)
        asked = kinds[rows] == ENTERS
        now = _minute_starts(batch)[rows]
        velocity = Velocity(len(rows))
        for number in range(MINUTES_OF_SPEED):
            told, cars, total = (each[rows] for each in latest.speed(number, totals))
            recent = (told > now - MINUTES_OF_SPEED * MINUTE) & asked
            velocity.add(total, np.where(recent, cars, 0))
        lav, slow = velocity.against(free_speed)
        return {"lav": pa.array(lav, mask=velocity.known == 0), "slow": slow}, rows

    return last_avg_speed


def toll_notify(free_cars: int) -> Operator:
    """The step that says what each vehicle owes for its segment, and of which accident it warns."""

    @keyed(
        key=SEGMENT,
        state="cars: int64, accident: int64",
        out="toll: int64, accident: int32",
        keeps=[*SEGMENT, "time", "vid", "lane", "new_trip", "lav"],
    )
    def notify(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Any], Ints]:
        latest = Latest(batch, state)
        now = _minute_starts(batch)
        told, counted = latest.of(CARS, "cars")
        cars = np.where(told == now, counted, 0)
        told, nearness = latest.of(ACCIDENT, "accident")
        warned = (told == now) & (told > 0)
        away = SEGMENTS_WARNED - 1 - nearness
        segment, direction = batch["segment"].to_numpy(), batch["dir"].to_numpy()
        accident = np.where(warned, segment + np.where(direction == 1, -away, away), -1)
        slow = batch["slow"].to_numpy(zero_copy_only=False)
        jammed = slow & (cars > free_cars) & ~warned
        toll = np.where(jammed, 2 * (cars - free_cars) ** 2, 0)
        rows = np.flatnonzero(batch["kind"].to_numpy() == ENTERS)
        return {"toll": toll[rows], "accident": accident[rows]}, rows

    return notify


def _minute_starts(batch: pa.RecordBatch) -> Ints:
    """When the minute of each report began; of a fact, nothing that is asked for."""
    times: Ints = batch["time"].fill_null(0).to_numpy().astype(np.int64)
    return times // MINUTE * MINUTE


@keyed(
    key="vid",
    state="balance: int64, owed: int64, charged: int64",
    out="balance: int64, charged: int64",
    keeps=["qid", "vid", "time"],
)
def account_balance(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Any], Ints]:
    """What a vehicle was charged so far: the toll of a segment when it goes on to the next one.

    Who leaves the road in a segment is not charged for it.
    """
    asks = batch["asks"].to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(~asks)
    charge = np.zeros(batch.num_rows, np.int64)
    owed = state["owed"]
    if len(rows):
        tolled = Runs(state.codes[rows], state.groups)
        toll = batch["toll"].to_numpy(zero_copy_only=False)[rows].astype(np.int64)
        by_vehicle = toll[tolled.order]
        before = np.roll(by_vehicle, 1)
        present = tolled.counts > 0
        before[tolled.starts[present]] = owed[present]
        owed[present] = by_vehicle[(tolled.starts + tolled.counts - 1)[present]]
        charge[rows[tolled.order]] = before
        new_trip = batch["new_trip"].to_numpy(zero_copy_only=False)[rows].astype(np.bool_)
        charge[rows[new_trip]] = 0
    state["owed"] = owed
    runs = Runs(state.codes, state.groups)
    balance = runs.accumulate(np.add, state["balance"], charge)
    times = np.where(charge > 0, batch["time"].to_numpy().astype(np.int64), 0)
    charged = runs.accumulate(np.maximum, state["charged"], times)
    ends = runs.last_rows()
    state["balance"], state["charged"] = balance[ends], charged[ends]
    asked = np.flatnonzero(asks)
    return {"balance": balance[asked], "charged": charged[asked]}, asked
