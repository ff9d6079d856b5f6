"""Every R with every S of the last and next minute, where both numbers are near."""

from __future__ import annotations

from datetime import timedelta

from tests.apps.cases import Case, Rows, Times

SECONDS = 60
WINDOW = timedelta(seconds=SECONDS)


def expected(rows: Rows) -> Rows:
    pairs = [
        {**r, **{("ts_right" if name == "ts" else name): value for name, value in s.items()}}
        for r in rows["r"]
        for s in rows["s"]
        if abs(r["ts"] - s["ts"]) <= WINDOW
        and abs(r["x"] - s["a"]) <= 10
        and abs(r["y"] - s["b"]) <= 10
    ]
    return {"out": pairs, "r.late": [], "s.late": []}


DENSE = {"rate_per_s": 1.0, "window": WINDOW, "largest": 120}
NOT_ORDERED_BY_IT = frozenset({"out"})
LATENESS = timedelta(seconds=20)

CASES = [
    Case(
        "band-join",
        {"rows": 80, **DENSE},
        {"rows": 500, "lateness": LATENESS, **DENSE},
        expected,
        {name: Times(lambda row: row["ts"], LATENESS) for name in ("r", "s")},
        NOT_ORDERED_BY_IT,
    )
]
