"""Every R with every S of the last and next minute, where both numbers are near."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime, timedelta

from tests.apps.cases import Case, Row, Rows, Times

SECONDS = 60
WINDOW = timedelta(seconds=SECONDS)
LATENESS = timedelta(seconds=20)
DELAY = 1.3 * LATENESS  # of shuffled tuples, so that some come too late


def sorted_out(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Tuples that came in time, and those that came too late."""
    on_time, late, latest = [], [], datetime.min
    for row in rows:
        latest = max(latest, row["ts"])
        (late if latest - row["ts"] > LATENESS else on_time).append(row)
    return on_time, late


def expected(rows: Rows) -> Rows:
    (left, left_late), (right, right_late) = (sorted_out(rows[name]) for name in ("r", "s"))
    right.sort(key=lambda s: s["ts"])
    times = [s["ts"] for s in right]
    pairs = [
        {**r, **{("ts_right" if name == "ts" else name): value for name, value in s.items()}}
        for r in left
        for s in right[bisect_left(times, r["ts"] - WINDOW) : bisect_right(times, r["ts"] + WINDOW)]
        if abs(r["x"] - s["a"]) <= 10 and abs(r["y"] - s["b"]) <= 10
    ]
    return {"out": pairs, "r.late": left_late, "s.late": right_late}


DENSE = {"rate_per_s": 1.0, "window": WINDOW, "largest": 120}
NOT_ORDERED_BY_IT = frozenset({"out"})

CASES = [
    Case(
        "band-join",
        {"rows": 80, **DENSE},
        {"rows": 500, "lateness": LATENESS, **DENSE},
        expected,
        {name: Times(lambda row: row["ts"], DELAY) for name in ("r", "s")},
        NOT_ORDERED_BY_IT,
        {"rows": 40_000, "largest": 400},  # of each source; every tuple is compared with 120
    )
]
