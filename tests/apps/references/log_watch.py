"""Line by line, with all failures of a host in a list."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import datetime, timedelta

from tests.apps.cases import Case, Row, Rows, Times

FAILURES = 5
WITHIN = timedelta(minutes=5)
LATENESS = timedelta(seconds=30)
DELAY = 1.3 * LATENESS  # of shuffled lines, so that some come too late

WRITTEN = re.compile(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) (\w+) (\w+)\[(\d+)\]: (.*)")
BY_SSHD = re.compile(
    r"(Failed|Accepted) \w+ for (?:invalid user )?(\S+) from ([\d.]+) port \d+ ssh2"
)
AGAIN = re.compile(r"message repeated (\d+) times: \[ (.*)\]")


def moment(line: Row) -> datetime | None:
    written = WRITTEN.match(line["line"])
    return written and datetime.strptime(f"2026 {written[1]}", "%Y %b %d %H:%M:%S")


def told(line: Row) -> list[Row]:
    """The attempts that a good line tells of. What PAM says is not asked for."""
    _, _, program, _, message = WRITTEN.match(line["line"]).groups()
    times = 1
    if repeated := AGAIN.fullmatch(message):
        times, message = int(repeated[1]), repeated[2]
    said = BY_SSHD.match(message) if program == "sshd" else None
    if said is None:
        return []
    return [{"accepted": said[1] == "Accepted", "user": said[2], "rhost": said[3]}] * times


def attempts(lines: list[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Attempts in the order of their time, those that came too late, and lines that are none."""
    on_time, late, bad = [], [], []
    latest = datetime(1970, 1, 1)
    for line in lines:
        ts = moment(line)
        if ts is None:
            bad.append({**line, "error": "no syslog line"})
        for each in told(line) if ts else ():
            (late if ts < latest - LATENESS else on_time).append({"ts": ts, **each})
            latest = max(latest, ts)
    return sorted(on_time, key=lambda each: each["ts"]), late, bad


def expected(rows: Rows) -> Rows:
    on_time, late, bad = attempts(rows["RawLines"])
    failed: dict[str, list[datetime]] = defaultdict(list)
    bursts, broken_in = Counter(), Counter()
    out = []
    for each in on_time:
        before, user = failed[each["rhost"]], each["user"]
        if not each["accepted"]:
            before.append(each["ts"])
        if len(before) < FAILURES or each["ts"] - before[-FAILURES] > WITHIN:
            continue
        if each["accepted"]:
            broken_in[user] += 1
            took = each["ts"] - before[-FAILURES]
            out.append(
                {
                    "ts": each["ts"],
                    "user": user,
                    "rhost": each["rhost"],
                    "seconds": int(took.total_seconds()),
                    "bursts": bursts[user],
                    "break_in": broken_in[user],
                }
            )
        elif len(before) % FAILURES == 0:
            bursts[user] += 1
    return {"out": out, "late": late, "RawLines.bad": bad}


CASES = [
    Case(
        "log-watch",
        {"rows": 100, "lateness": LATENESS, "break_ins": 0.1},
        {"rows": 500, "lateness": LATENESS, "break_ins": 0.04, "seed": 60},
        expected,
        {"RawLines": Times(moment, DELAY)},
    )
]
