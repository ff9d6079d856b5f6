"""Line by line, with all failures of a host in a list."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import datetime, timedelta

from tests.apps.cases import Case, Row, Rows, Times

FAILURES = 5
WITHIN = timedelta(minutes=5)
LATENESS = timedelta(seconds=30)

WRITTEN = re.compile(r"(\w{3} [ \d]\d \d\d:\d\d:\d\d) (\w+) (\w+)\[(\d+)\]: (.*)")
BY_SSHD = re.compile(
    r"(Failed|Accepted) \w+ for (?:invalid user )?(\S+) from ([\d.]+) port \d+ ssh2"
)
BY_PAM = re.compile(r"pam_unix\(sshd:auth\): authentication failure; .* rhost=([\d.]+)  user=(\S+)")


def moment(line: Row) -> datetime | None:
    written = WRITTEN.match(line["line"])
    return written and datetime.strptime(f"2026 {written[1]}", "%Y %b %d %H:%M:%S")


def attempt(line: Row) -> Row | None:
    """What a good line says of an attempt, if it is about one."""
    _, _, program, _, message = WRITTEN.match(line["line"]).groups()
    if program != "sshd":
        return None
    if said := BY_SSHD.match(message):
        return {"accepted": said[1] == "Accepted", "user": said[2], "rhost": said[3]}
    if said := BY_PAM.match(message):
        return {"accepted": False, "user": said[2], "rhost": said[1]}
    return None


def attempts(lines: list[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Attempts in the order of their time, those that came too late, and lines that are none."""
    on_time, late, bad = [], [], []
    latest = datetime(1970, 1, 1)
    for line in lines:
        ts = moment(line)
        if ts is None:
            bad.append({**line, "error": "no syslog line"})
        elif found := attempt(line):
            (late if ts < latest - LATENESS else on_time).append({"ts": ts, **found})
            latest = max(latest, ts) if ts >= latest - LATENESS else latest
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
        {"rows": 500, "lateness": LATENESS, "break_ins": 0.04},
        expected,
        {"RawLines": Times(moment, LATENESS)},
    )
]
