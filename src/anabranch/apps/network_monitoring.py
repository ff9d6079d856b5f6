"""Network monitoring: hosts that try to break in, found in the log of SSH servers.

Joker's application of that name (§5.4, figures 17 and 20): two steps without state that pick failed
attempts to log in out of a system log and parse them, then a region by host of three steps.

- `FailureWindow` counts the failures of a host in each minute, by the time of the log's lines, and
  keeps when the first and the last of them were;
- `CutOff` lets hosts pass that failed at least five times in the minute;
- `Diff` says how long they took from the first to the last, which tells machines from people.

Beside the paper's steps stand `Syslog`, which parses the line around the message, and the clock
`FailureTime`, since windows are of event time here. As in the paper, lines are picked before they
are parsed. So a bad line is counted if it speaks of a failure; all others are nobody's concern, and
pass unread. What loggers write as `last message repeated 5 times` counts nothing, since it does not
say what was repeated; rsyslog's `message repeated 5 times: [ … ]` counts five times.

When clocks are set back, lines in local time say the same hour twice, and which of them is meant
cannot be told from a line. The first is taken, so lines of the second are too late, and go to the
sink `late`: in that hour nobody is watched. With a `lateness` of an hour they count, among those of
the hour before. Lines that tell how far they are from UTC, as RFC 5424 has it, do not suffer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_duration, require
from anabranch.apps.kit.columns import LINES
from anabranch.apps.kit.inputs import FAR, Input, paths_of
from anabranch.apps.kit.log_files import Year, last_day, log_files
from anabranch.apps.kit.ssh_log import LAST_DAY, attempts, log_lines
from anabranch.apps.kit.summary import AppSummary, Condensed, grouped
from anabranch.columns.times import UTC_NAME
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.aggregates import functions as aggregates
from anabranch.operators.aggregates.windows import tumbling
from anabranch.operators.base import Operator
from anabranch.operators.parsing.syslog import parse_syslog
from anabranch.operators.row_wise.map_filter_expand import expand
from anabranch.state.positions import Ints

FAILURE = r"Failed |authentication failures?;"
SHOWN = 10


def failure_parser(pam: bool) -> Operator:
    """Messages of failed attempts into the host that failed and the user that it named, each."""

    @expand(out="rhost: string, user: string", keeps="ts")
    def parse(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], Ints]:
        found = attempts(batch["program"], batch["message"], pam)
        failed = pc.fill_null(pc.invert(found["accepted"]), False)
        many = pc.if_else(failed, found["n"], 0).to_numpy()
        rows = np.repeat(np.arange(batch.num_rows), many)
        return {name: found[name].take(pa.array(rows)) for name in ("rhost", "user")}, rows

    return parse


def build(
    *,
    input: Input | None = None,
    rows: int | None = 500_000,
    failures: int = 5,
    window: timedelta = timedelta(minutes=1),
    pam: bool = False,
    year: Year | None = None,
    zone: str = UTC_NAME,
    lateness: timedelta = timedelta(seconds=10),
    seed: int = 0,
) -> Flow:
    """Watch the attempts in log files, or in a generated log.

    Args:
        input: Log files: a path, a directory, a pattern, or several of those; they are read in the
            order of their first lines.
        rows: How many lines to generate when there are none; None for an endless stream.
        failures: So many failures in a window tell an attacker.
        window: In which time failures are counted.
        pam: Whether failures that PAM tells of count. Not on Debian and Ubuntu, where sshd tells of
            each of them, too; only for a log that has PAM's lines alone.
        year: The year of lines that do not say theirs; or, for a log that runs over New Year, the
            day on which it ends: 2026-03-01. By default, files are taken to be of the year that
            begins with their first line, the last such year before they were written; a generated
            log is of 2026.
        zone: The time zone of lines that do not say theirs, by its IANA name: Europe/Berlin.
        lateness: How far out of order lines may come.
        seed: Decides the generated log.

    Example:
        >>> steps = build().resolve().order
        >>> print(*(step for step in steps if step[0].isupper()))
        AuthFailureFilter Syslog FailureParser FailureTime FailureWindow CutOff Diff
    """
    require(
        "network-monitoring",
        failures=a_count(failures, 1),
        window=a_duration(window, above_zero=True),
        lateness=a_duration(lateness),
    )
    flow = Flow("network-monitoring")
    if input is None:
        last = LAST_DAY if year is None else last_day("network-monitoring", year)
        made = log_lines(last, lateness)
        source: Any = generate(made, LINES, rows=rows, seed=seed)
    else:
        paths = paths_of(input, "lines", ["lines"])
        source, last = log_files("network-monitoring", paths, year, zone)
    lines = flow.source("lines", source)
    read = lines.filter("AuthFailureFilter", _tells_of_failure).apply(
        "Syslog", parse_syslog("line", last, on_error="side", zone=zone)
    )
    timed = read.apply("FailureParser", failure_parser(pam)).timed(
        "FailureTime", "ts", lateness=lateness, ahead=FAR
    )
    (
        timed.aggregate(
            "FailureWindow",
            key="rhost",
            window=tumbling(window),
            combine=False,  # so that the regions are Joker's
            failures=aggregates.count(),
            first=aggregates.min("ts"),
            last=aggregates.max("ts"),
        )
        .filter("CutOff", lambda batch: pc.greater_equal(batch["failures"], failures))
        .map("Diff", _difference, out="seconds: int64", keeps="*")
        .sink("out", collect())
    )
    read.errors.sink("lines.bad", collect())
    timed.late.sink("late", collect())
    return flow


def _tells_of_failure(batch: pa.RecordBatch) -> pa.Array:
    """A cheap look at the whole line, so that the others need not be parsed."""
    return pc.match_substring_regex(batch["line"], FAILURE)


def _difference(batch: pa.RecordBatch) -> dict[str, Any]:
    took = pc.subtract(batch["last"], batch["first"])
    return {"seconds": took.cast(pa.duration("s"), safe=False).cast(pa.int64())}


class Summary(AppSummary):
    """The hosts that failed most often.

    Example:
        >>> seen = pa.table({"rhost": ["192.0.2.7", "192.0.2.7"], "failures": [7, 5]})
        >>> print(Summary.of({"out": seen}))
        1 hosts tried to break in:
          192.0.2.7  12 failures in 2 windows
    """

    def __init__(self) -> None:
        self._hosts = Condensed(grouped(["rhost"], failures="sum", windows="sum"))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            one_each = pa.array(np.ones(rows.num_rows, np.int64))
            self._hosts.add(rows.append_column("windows", one_each))

    def __str__(self) -> str:
        lines = [
            f"  {row['rhost']}  {row['failures']:,} failures in {row['windows']:,} windows"
            for row in self._hosts.rows([("failures", "descending"), ("rhost", "ascending")], SHOWN)
        ]
        return "\n".join([f"{len(self._hosts):,} hosts tried to break in:", *lines])
