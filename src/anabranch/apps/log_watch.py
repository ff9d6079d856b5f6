"""Log watch: break-ins, found in the log of SSH servers.

The ten operators of LogWatch in Pipelined Fission (§5.3.7, figure 17), which looks for logins that
came after many failed attempts from the same host. By event time, which is that of the log's lines:

- An *attempt* is what sshd, or PAM for it, says of a login that failed or was accepted. A line may
  tell of several: rsyslog's `message repeated 5 times: [ … ]` counts five times. What other loggers
  write, `last message repeated 5 times`, counts nothing, since it does not say what was repeated.
- The *range* of a host is how long ago its fifth failure from the last was: after five failures in
  a minute it is at most a minute.
- A login is a *break-in* if it was accepted from a host with a range of at most five minutes.
- A *burst* is every fifth failure of a host, if the range is as short then. It counts for the user
  that it names, so that a break-in tells how often that user was aimed at before.

The steps are a chain, so logins pass `Range` and `Cutoff` beside the bursts. `Events` is the clock;
it is stateful here, all others are of the paper's kinds. Its sink `Results` is called `out`.

When clocks are set back, lines in local time say the same hour twice, and which of them is meant
cannot be told from a line. The first is taken, so lines of the second are too late, and go to the
sink `late`: in that hour no break-in is seen. With a `lateness` of an hour they count, among those
of the hour before. Lines that tell how far they are from UTC, as RFC 5424 has it, do not suffer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_duration, a_share, require
from anabranch.apps.kit.columns import LINES
from anabranch.apps.kit.inputs import FAR, Input, paths_of
from anabranch.apps.kit.log_files import Year, last_day, log_files
from anabranch.apps.kit.recent import Recent
from anabranch.apps.kit.ssh_log import BREAK_INS, LAST_DAY, attempts, log_lines
from anabranch.apps.kit.summary import AppSummary, Condensed, distinct, first
from anabranch.columns.grouped_rows import Runs
from anabranch.columns.times import UTC_NAME
from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.operators.base import Operator
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.parsing.syslog import parse_syslog
from anabranch.operators.row_wise.map_filter_expand import expand
from anabranch.state.positions import Ints

SHOWN = 10


@expand(keeps=("ts", "accepted", "user", "rhost"))
def each_attempt(batch: pa.RecordBatch) -> tuple[dict[str, Any], Ints]:
    """As many rows for a line as it tells of attempts."""
    return {}, np.repeat(np.arange(batch.num_rows), batch["n"].to_numpy())


def ranges(failures: int) -> Operator:
    """By host: logins and every n-th failure, each with the time of the n-th failure from the last.

    Rows without n failures before them, or as the n-th, have no range and are left out.
    """
    slots = [f"t{number}" for number in range(failures)]  # the last n failures, oldest first
    state_columns = pa.schema([(name, pa.int64()) for name in ("n", *slots)])

    @keyed(key="rhost", state=state_columns, out="first: timestamp[us]", keeps="*")
    def find(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, pa.Array], Ints]:
        accepted = batch["accepted"].to_numpy(zero_copy_only=False)
        failed, times = ~accepted, batch["ts"].cast(pa.int64()).to_numpy()
        so_far, in_all = running(state.codes, failed, state.groups)
        past = np.array([state[slot] for slot in slots])
        recent = Recent(Runs(state.codes[failed], state.groups), times[failed], past)
        for slot, kept in zip(slots, recent.past(), strict=True):
            state[slot] = kept
        # After k failures of this batch, the last n of a host are those from its k-th place on.
        first = recent.line[recent.fronts[state.codes] + so_far]
        total = state["n"][state.codes] + so_far
        state["n"] = state["n"] + in_all
        told = np.flatnonzero((total >= failures) & (accepted | (total % failures == 0)))
        return {"first": pa.array(first[told]).view(pa.timestamp("us"))}, told

    return find


@keyed(
    key="user",
    state="bursts: int64, break_ins: int64",
    out="bursts: int64, break_in: int64",
    keeps=("ts", "user", "rhost", "seconds"),
)
def break_ins_by_user(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Ints], Ints]:
    """By user: logins, with the number of bursts before, and the how many-th break-in each is."""
    accepted = batch["accepted"].to_numpy(zero_copy_only=False)
    bursts, more_bursts = running(state.codes, ~accepted, state.groups)
    logins, more_logins = running(state.codes, accepted, state.groups)
    told = np.flatnonzero(accepted)
    columns = {
        "bursts": (state["bursts"][state.codes] + bursts)[told],
        "break_in": (state["break_ins"][state.codes] + logins)[told],
    }
    state["bursts"] = state["bursts"] + more_bursts
    state["break_ins"] = state["break_ins"] + more_logins
    return columns, told


def running(codes: Ints, counted: npt.NDArray[np.bool_], groups: int) -> tuple[Ints, Ints]:
    """How many rows of its group were counted up to each row, and in all of each group.

    Example:
        >>> so_far, in_all = running(np.array([0, 1, 0, 0]), np.array([True, True, False, True]), 2)
        >>> so_far.tolist(), in_all.tolist()
        ([1, 1, 1, 2], [2, 1])
    """
    in_all = np.bincount(codes[counted], minlength=groups)
    order = np.argsort(codes, kind="stable")
    so_far = np.empty(len(codes), np.int64)
    so_far[order] = np.cumsum(counted[order]) - (np.cumsum(in_all) - in_all)[codes[order]]
    return so_far, in_all


def build(
    *,
    input: Input | None = None,
    rows: int | None = 500_000,
    failures: int = 5,
    within: timedelta = timedelta(minutes=5),
    pam: bool = False,
    year: Year | None = None,
    zone: str = UTC_NAME,
    lateness: timedelta = timedelta(seconds=10),
    break_ins: float = BREAK_INS,
    seed: int = 0,
) -> Flow:
    """Look for break-ins in log files, or in a generated log.

    Args:
        input: Log files: a path, a directory, a pattern, or several of those; they are read in the
            order of their first lines.
        rows: How many lines to generate when there are none; None for an endless stream.
        failures: So many failed attempts of a host make a burst, and a login a break-in.
        within: How long ago the first of them may be.
        pam: Whether failures that PAM tells of count. Not on Debian and Ubuntu, where sshd tells of
            each of them, too; only for a log that has PAM's lines alone.
        year: The year of lines that do not say theirs; or, for a log that runs over New Year, the
            day on which it ends: 2026-03-01. By default, files are taken to be of the year that
            begins with their first line, the last such year before they were written; a generated
            log is of 2026.
        zone: The time zone of lines that do not say theirs, by its IANA name: Europe/Berlin.
        lateness: How far out of order lines may come.
        break_ins: Which share of the generated lines is a break-in.
        seed: Decides the generated log.

    Example:
        >>> print(*build().resolve().order[:9])
        RawLines Lines ParsedLines RawEvents Events Range Cutoff RealTime Breakins
    """
    require(
        "log-watch",
        failures=a_count(failures, 1),
        within=a_duration(within),
        lateness=a_duration(lateness),
        break_ins=a_share(break_ins),
    )
    flow = Flow("log-watch")
    if input is None:
        last = LAST_DAY if year is None else last_day("log-watch", year)
        made = log_lines(last, lateness, break_ins)
        source: Any = generate(made, LINES, rows=rows, seed=seed)
    else:
        paths = paths_of(input, "RawLines", ["RawLines"])
        source, last = log_files("log-watch", paths, year, zone)
    lines = flow.source("RawLines", source)
    read = lines.apply("Lines", parse_syslog("line", last, on_error="side", zone=zone))
    events = (
        read.map("ParsedLines", lambda b: attempts(b["program"], b["message"], pam), **_ATTEMPT)
        .apply("RawEvents", each_attempt)
        .timed("Events", "ts", lateness=lateness, ahead=FAR)
    )
    (
        events.apply("Range", ranges(failures))
        .filter("Cutoff", lambda b: pc.less_equal(_range(b), pa.scalar(within, _DURATION)))
        .map(
            "RealTime", _in_seconds, out="seconds: int64", keeps=("ts", "user", "rhost", "accepted")
        )
        .apply("Breakins", break_ins_by_user)
        .sink("out", collect())
    )
    read.errors.sink("RawLines.bad", collect())
    events.late.sink("late", collect())
    return flow


def _range(batch: pa.RecordBatch) -> pa.Array:
    return pc.subtract(batch["ts"], batch["first"])


def _in_seconds(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Ranges as people read them; the log knows no less than a second."""
    return {"seconds": _range(batch).cast(pa.duration("s"), safe=False).cast(pa.int64())}


_DURATION = pa.duration("us")
_ATTEMPT: dict[str, Any] = {
    "out": "accepted: bool, user: string, rhost: string, n: int64",
    "keeps": "ts",
}


class Summary(AppSummary):
    """How many break-ins there were, and the first of them.

    Example:
        >>> from datetime import datetime
        >>> at = {"ts": [datetime(2026, 3, 4)], "user": ["root"], "rhost": ["192.0.2.7"]}
        >>> out = pa.table({**at, "seconds": [40], "bursts": [3], "break_in": [1]})
        >>> print(Summary.of({"out": out}))
        1 break-ins, at 1 users:
          2026-03-04 00:00:00  root from 192.0.2.7, which failed for 40 s; 3 bursts before
    """

    def __init__(self) -> None:
        self._break_ins, self._first = 0, Condensed(first(SHOWN))
        self._users = Condensed(distinct("user"))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._break_ins += rows.num_rows
            self._first.add(rows)
            self._users.add(rows)

    def __str__(self) -> str:
        lines = [
            f"  {row['ts']}  {row['user']} from {row['rhost']}, "
            f"which failed for {row['seconds']} s; {row['bursts']:,} bursts before"
            for row in self._first.rows()
        ]
        said = f"{self._break_ins:,} break-ins, at {len(self._users):,} users:"
        return "\n".join([said, *lines])
