"""Minute by minute and host by host, over a list of the failures."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from tests.apps.cases import Case, Rows, Times
from tests.apps.references.log_watch import DELAY, LATENESS, moment
from tests.apps.references.log_watch import attempts as attempts_in

FAILURES = 3
WINDOW = timedelta(minutes=1)
TELLS = ("Failed ", "authentication failure;", "authentication failures;")


def expected(rows: Rows) -> Rows:
    lines = [line for line in rows["lines"] if any(text in line["line"] for text in TELLS)]
    on_time, late, bad = attempts_in(lines)
    times: dict[tuple[datetime, str], list[datetime]] = defaultdict(list)
    for each in on_time:  # all of them failed: other lines say nothing of failures
        times[each["ts"].replace(second=0), each["rhost"]].append(each["ts"])
    out = [
        {
            "window_start": minute,
            "window_end": minute + WINDOW,
            "rhost": host,
            "failures": len(failed),
            "first": failed[0],
            "last": failed[-1],
            "seconds": int((failed[-1] - failed[0]).total_seconds()),
        }
        for (minute, host), failed in times.items()
        if len(failed) >= FAILURES
    ]
    late = [{name: each[name] for name in ("ts", "rhost", "user")} for each in late]
    return {"out": out, "late": late, "lines.bad": bad}


CASES = [
    Case(
        "network-monitoring",
        {"rows": 100, "lateness": LATENESS, "failures": FAILURES},
        {"rows": 500, "lateness": LATENESS, "failures": FAILURES, "seed": 60},
        expected,
        {"lines": Times(moment, DELAY)},
        frozenset({"out"}),
    )
]
