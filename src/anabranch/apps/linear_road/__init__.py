"""Linear Road: tolls that follow the traffic, accidents, and questions about both.

The benchmark of Arasu et al. (2004), in the topology of BriskStream (figure 18, table 8). Vehicles
on expressways of 100 one-mile segments report their positions every 30 seconds.

- Who enters a segment (not to leave the road) is told its toll and its latest average velocity LAV:
  the mean over the last five minutes of the mean over vehicles of their mean speeds in the segment,
  not rounded. The toll is
  2 (cars - 50)² cents when LAV is below 40 miles an hour and the segment had more than 50 cars in
  the minute before, unless there was an accident in it or the four segments ahead. It is charged
  when the vehicle goes on to the next segment.
- Two vehicles that report from one place on one travel lane four times in a row are an accident,
  until one of them moves. Who enters its segment, or one of the four before it, in a minute behind
  one of the accident is warned.
- Requests ask for the balance of an account, or for what a vehicle spent on an expressway on one of
  69 days in the past, which is a table beside the stream.

Requests for travel times (type 4) are left out, as in all published implementations; they leave to
the sink `unanswered`, with what is no report and no request. BriskStream's operators tell averages
and counts after every report (table 8: selectivity 1.0); ours do so when the minute is over, and
tolls are told once for each segment, as the benchmark says.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import Requirement, a_count, a_number, a_share, require, unless
from anabranch.apps.kit.inputs import FAR, Input, paths_of, read_rows
from anabranch.apps.kit.summary import AppSummary, Condensed, grouped
from anabranch.apps.linear_road.data import (
    BALANCE,
    DAYS,
    EXIT_LANE,
    EXPENDITURE,
    FEET,
    HISTORY,
    MOST_REQUESTS,
    REPORT,
    REPORTS,
    SEGMENTS,
    Traffic,
)
from anabranch.apps.linear_road.rules import (
    accident_detect,
    account_balance,
    enters,
    last_avg_speed,
    minute_cars,
    minute_speed,
    stops,
    toll_notify,
    upstream,
    vehicle,
)
from anabranch.apps.linear_road.speeds import MINUTE, SEGMENT, VehicleSpeed
from anabranch.flow import Flow, Stream
from anabranch.io import collect, files, generate
from anabranch.operators.aggregates.functions import sum
from anabranch.operators.aggregates.windows import tumbling
from anabranch.operators.row_wise.map_filter_expand import expand, map

SHOWN = 5
FREE_CARS = 50
FREE_SPEED = 40.0
WITHIN = {
    "time": (0, 2**31 - 1),
    "speed": (0, 1000),
    "xway": (0, 2**16),
    "lane": (0, EXIT_LANE),
    "dir": (0, 1),
    "segment": (0, SEGMENTS - 1),
    "position": (0, FEET - 1),
}
"""What can be said in a position report."""

FOLLOWED = ["time", "vid", *SEGMENT, "lane", "entered", "new_trip", "stop", "stop_place"]
"""What later steps need of a report, and of what was found out about its vehicle."""

ACCOUNTS = pa.schema(
    [
        ("time", pa.int32()),
        ("vid", pa.int64()),
        ("new_trip", pa.bool_()),
        ("toll", pa.int64()),
        ("qid", pa.int64()),
        ("asks", pa.bool_()),
    ]
)


def build(
    *,
    input: Input | None = None,
    history: str | None = None,
    rows: int | None = 1_000_000,
    vehicles: int = 5_000,
    xways: int = 1,
    accidents: float = 0.0005,
    requests: float = 0.01,
    free_cars: int = FREE_CARS,
    free_speed: float = FREE_SPEED,
    lateness: int = 0,
    seed: int = 0,
) -> Flow:
    """Charge the vehicles of files, or of generated traffic.

    Args:
        input: Files with the columns type, time (in seconds) and vid, and for reports speed, xway,
            lane, dir, segment and position (in feet), for requests qid and day.
        history: A file with the columns vid, day, xway and expenditure.
        rows: How many reports and requests to generate; None for an endless stream.
        vehicles: How many are on the road at a time.
        xways: How many expressways there are.
        accidents: The share of pairs of generated trips in which both vehicles crash.
        requests: The share of generated rows that are requests, up to a half.
        free_cars: As many vehicles a minute pay no toll.
        free_speed: At this average speed, nobody does.
        lateness: By how many seconds a row may be out of order.
        seed: Decides the generated traffic.

    Example:
        >>> from anabranch.graph import Role
        >>> sorted(build().names(Role.SINK))
        ['accidents', 'balances', 'expenditures', 'late', 'out', 'unanswered']
    """
    require(
        "linear-road",
        rows=unless(None, a_count(rows, least=0)),
        vehicles=a_count(vehicles, least=1),
        xways=a_count(xways, least=1, most=WITHIN["xway"][1] + 1),
        accidents=a_share(accidents),
        requests=Requirement(
            requests,
            a_share(requests).holds and requests <= MOST_REQUESTS,
            "a share from 0 to a half",
        ),
        free_cars=a_count(free_cars, least=0),
        free_speed=Requirement(
            free_speed,
            a_number(free_speed, 0).holds and isfinite(free_speed),
            "a speed of 0 or more that has an end",
        ),
        lateness=a_count(lateness, least=0),
        seed=a_count(seed, least=0),
    )
    flow = Flow("linear-road")
    traffic = Traffic(vehicles, xways, accidents, requests, lateness, seed)
    past: Any = pa.Table.from_pylist([], HISTORY)
    if input is not None:
        reports = read_rows(flow, "reports", paths_of(input, "reports", ["reports"]), REPORTS)
    else:
        reports = flow.source("reports", generate(traffic.rows, REPORTS, rows=rows, seed=seed))
        past = generate(traffic.history, HISTORY, rows=traffic.history_rows, seed=seed)
    if history is not None:
        past = files(history, schema=HISTORY)
    timed = reports.timed("reports.time", "time", lateness=lateness, ahead=int(FAR.total_seconds()))
    timed.late.sink("late", collect())
    requested = timed.filter("requests", lambda batch: ~is_position_report(batch))
    requested.filter("no_request", is_unanswered).sink("unanswered", collect())
    expenditures(requested, past).sink("expenditures", collect())

    followed = (
        timed.filter("position_report", is_position_report)
        .apply("vehicle", vehicle)
        .apply("vehicle_speed", VehicleSpeed(FOLLOWED))
    )
    tolls = told_tolls(followed, free_cars, Fraction(str(free_speed)))
    tolls.apply("toll", tolls_told).sink("out", collect())
    tolls.apply("accident_notify", accident_notify).sink("accidents", collect())
    (
        tolls.apply("charge", charge)
        .union("accounts", requested.apply("balance", balance_request))
        .apply("account_balance", account_balance)
        .sink("balances", collect())
    )
    return flow


def told_tolls(followed: Stream, free_cars: int, free_speed: Fraction) -> Stream:
    """What each vehicle that enters a segment is told."""
    by_minute = tumbling(MINUTE)
    speeds = followed.aggregate(
        "avg_speed",
        key=SEGMENT,
        window=by_minute,
        total=sum("speed_change"),
        cars=sum("car_change"),
    ).apply("minute_speed", minute_speed)
    cars = followed.aggregate(
        "count_vehicle", key=SEGMENT, window=by_minute, cars=sum("car_change")
    ).apply("minute_cars", minute_cars)
    crashes = (
        followed.apply("stops", stops)
        .apply("accident_detect", accident_detect)
        .apply("upstream", upstream)
    )
    return (
        followed.apply("enters", enters)
        .union("road", speeds, cars, crashes)
        .apply("last_avg_speed", last_avg_speed(free_speed))
        .apply("toll_notify", toll_notify(free_cars))
    )


def expenditures(requested: Stream, past: Any) -> Stream:
    """What vehicles spent on a day in the past; nothing where the table has nothing."""
    return (
        requested.filter("daily_exp_request", is_expenditure_request)
        .lookup("daily_expen", past, key=["vid", "day", "xway"], how="left")
        .map(
            "expenditure",
            lambda batch: {"expenditure": batch["expenditure"].fill_null(0)},
            out="expenditure: int64",
            keeps=["qid", "vid", "time", "xway", "day"],
        )
    )


Mask = npt.NDArray[np.bool_]


def is_position_report(batch: pa.RecordBatch) -> Mask:
    """Which rows are reports that say what a report can say."""
    mask: Mask = batch["type"].to_numpy() == REPORT
    for name, (least, most) in WITHIN.items():
        values = batch[name].fill_null(-1).to_numpy()
        mask &= (values >= least) & (values <= most)
    return mask


def is_expenditure_request(batch: pa.RecordBatch) -> Mask:
    """Which rows ask for a day in the past."""
    day = batch["day"].fill_null(-1).to_numpy()
    mask: Mask = (batch["type"].to_numpy() == EXPENDITURE) & (day >= 1) & (day <= DAYS)
    return mask


def is_unanswered(batch: pa.RecordBatch) -> Mask:
    """Which rows that are no position reports are none of the requests that are answered."""
    mask: Mask = ~is_expenditure_request(batch) & (batch["type"].to_numpy() != BALANCE)
    return mask


@expand(out="lav: double, toll: int64", keeps=["time", "vid", *SEGMENT])
def tolls_told(batch: pa.RecordBatch) -> tuple[dict[str, Any], Any]:
    """The notifications: nobody is told who is about to leave the road."""
    rows = np.flatnonzero(batch["lane"].to_numpy() != EXIT_LANE)
    return {name: batch[name].take(pa.array(rows)) for name in ("lav", "toll")}, rows


@expand(out="accident: int32", keeps=["time", "vid", *SEGMENT])
def accident_notify(batch: pa.RecordBatch) -> tuple[dict[str, Any], Any]:
    """The warnings, each with the segment of the nearest accident ahead."""
    accident = batch["accident"].to_numpy()
    rows = np.flatnonzero((batch["lane"].to_numpy() != EXIT_LANE) & (accident >= 0))
    return {"accident": accident[rows]}, rows


@map(out="qid: int64, asks: bool", keeps=["vid", "time", "toll", "new_trip"])
def charge(batch: pa.RecordBatch) -> dict[str, Any]:
    """What accounts hear of tolls."""
    return {"qid": pa.nulls(batch.num_rows, pa.int64()), "asks": np.zeros(batch.num_rows, bool)}


@expand(out=ACCOUNTS)
def balance_request(batch: pa.RecordBatch) -> tuple[dict[str, Any], Any]:
    """What accounts hear of requests."""
    rows = np.flatnonzero(batch["type"].to_numpy() == BALANCE)
    asked = batch.select(["vid", "time", "qid"]).take(pa.array(rows))
    return {
        **{name: asked[name] for name in asked.schema.names},
        "toll": np.zeros(len(rows), np.int64),
        "new_trip": np.zeros(len(rows), bool),
        "asks": np.ones(len(rows), bool),
    }, rows


class Summary(AppSummary):
    """What was told and asked, and the segments that cost most.

    Example:
        >>> tolls = {"xway": [0, 0], "dir": [1, 1], "segment": [7, 8], "toll": [0, 200]}
        >>> nothing = pa.table({})
        >>> print(
        ...     Summary.of(
        ...         {
        ...             "out": pa.table(tolls),
        ...             "accidents": nothing,
        ...             "balances": nothing,
        ...             "expenditures": nothing,
        ...             "unanswered": nothing,
        ...         }
        ...     )
        ... )
        2 toll notifications, 1 with a toll, 200 cents in all; the dearest segments:
          xway 0 west, segment 8: 200 cents at most
        0 warnings of accidents, 0 balances told, 0 days in the past told, 0 rows unanswered
    """

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._dear = self._cents = 0
        self._dearest = Condensed(grouped(SEGMENT, toll="max"))

    def add(self, sink: str, rows: pa.Table) -> None:
        self._rows[sink] += rows.num_rows
        if sink == "out":
            dear = rows.filter(pc.greater(rows["toll"], 0))
            self._dear += dear.num_rows
            self._cents += pc.sum(dear["toll"]).as_py() or 0
            self._dearest.add(dear)

    def __str__(self) -> str:
        order = [("toll", "descending"), *((name, "ascending") for name in SEGMENT)]
        lines = [
            f"  xway {row['xway']} {('east', 'west')[row['dir']]}, segment {row['segment']}: "
            f"{row['toll']:,} cents at most"
            for row in self._dearest.rows(order, SHOWN)
        ]
        told = (
            f"{self._rows['out']:,} toll notifications, {self._dear:,} with a toll, "
            f"{self._cents:,} cents in all{'; the dearest segments:' if lines else ''}"
        )
        rest = {
            "warnings of accidents": "accidents",
            "balances told": "balances",
            "days in the past told": "expenditures",
            "rows unanswered": "unanswered",
        }
        asked = ", ".join(f"{self._rows[sink]:,} {what}" for what, sink in rest.items())
        return "\n".join([told, *lines, asked])
