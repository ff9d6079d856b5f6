"""Log watch: break-ins, found in the log of SSH servers.

The ten operators of LogWatch in Pipelined Fission (§5.3.7, figure 17), which looks for logins that
came after many failed attempts from the same host. By event time, which is that of the log's lines:

- An *attempt* is a line in which sshd, or PAM for it, says that a login failed or was accepted.
- The *range* of a host is how long ago its fifth failure from the last was: after five failures in
  a minute it is at most a minute.
- A login is a *break-in* if it was accepted from a host with a range of at most five minutes.
- A *burst* is every fifth failure of a host, if the range is as short then. It counts for the user
  that it names, so that a break-in tells how often that user was aimed at before.

The steps are a chain, so logins pass `Range` and `Cutoff` beside the bursts. `Events` is the clock;
it is stateful here, all others are of the paper's kinds. Its sink `Results` is called `out`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.inputs import FAR
from anabranch.apps.ssh_log import BREAK_INS, LINE, attempts, log_lines
from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io import collect, files, generate
from anabranch.io.files import Paths
from anabranch.operators.keyed import KeyedBatch, KeyedState, keyed
from anabranch.operators.parse_syslog import parse_syslog
from anabranch.state.positions import Ints

SHOWN = 10


def ranges(failures: int) -> KeyedBatch:
    """By host: logins and every n-th failure, each with the time of the n-th failure from the last.

    Rows without n failures before them, or as the n-th, have no range and are left out.
    """
    if failures < 1:
        raise BuildError("Range", "at least one failure", str(failures), "give failures ≥ 1")
    slots = [f"t{number}" for number in range(failures)]  # the last n failures, oldest first
    state_columns = pa.schema([(name, pa.int64()) for name in ("n", *slots)])

    @keyed(key="rhost", state=state_columns, out="first: timestamp[us]", keeps="*")
    def find(batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, pa.Array], Ints]:
        accepted = batch["accepted"].to_numpy(zero_copy_only=False)
        failed, times = ~accepted, batch["ts"].cast(pa.int64()).to_numpy()
        so_far, in_all = running(state.codes, failed, state.groups)
        # One host after another, the times known before and then those of this batch. After k of
        # the latter, the last n are those from the k-th on.
        starts = np.arange(state.groups) * failures + np.cumsum(in_all) - in_all
        known = np.zeros(state.groups * failures + int(in_all.sum()), np.int64)
        for place, slot in enumerate(slots):
            known[starts + place] = state[slot]
        first = starts[state.codes] + so_far
        known[first[failed] + failures - 1] = times[failed]
        total = state["n"][state.codes] + so_far
        state["n"] = state["n"] + in_all
        for place, slot in enumerate(slots):
            state[slot] = known[starts + in_all + place]
        told = np.flatnonzero((total >= failures) & (accepted | (total % failures == 0)))
        return {"first": pa.array(known[first[told]]).view(pa.timestamp("us"))}, told

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
    input: Paths | None = None,
    rows: int | None = 500_000,
    failures: int = 5,
    within: timedelta = timedelta(minutes=5),
    pam: bool = True,
    year: int = 2026,
    lateness: timedelta = timedelta(seconds=10),
    break_ins: float = BREAK_INS,
    seed: int = 0,
) -> Flow:
    """Look for break-ins in log files, or in a generated log.

    Args:
        input: Log files: a path, a directory, a pattern, or several of those.
        rows: How many lines to generate when there are none; None for an endless stream.
        failures: So many failed attempts of a host make a burst, and a login a break-in.
        within: How long ago the first of them may be.
        pam: Whether failures that PAM tells of count. A server that tells of each attempt twice,
            once by PAM and once by sshd, is better read without.
        year: The year of lines that do not say theirs.
        lateness: How far out of order lines may come.
        break_ins: Which share of the generated lines is a break-in.
        seed: Decides the generated log.

    Example:
        >>> print(*build().resolve().order[:9])
        RawLines Lines ParsedLines RawEvents Events Range Cutoff RealTime Breakins
    """
    made = generate(log_lines(year, lateness, break_ins), LINE, rows=rows, seed=seed)
    flow = Flow("log-watch")
    lines = flow.source("RawLines", made if input is None else files(input, format="text"))
    read = lines.apply("Lines", parse_syslog("line", year, on_error="side"))
    events = (
        read.map("ParsedLines", lambda b: attempts(b["program"], b["message"], pam), **_ATTEMPT)
        .filter("RawEvents", lambda batch: pc.is_valid(batch["accepted"]))
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
_ATTEMPT: dict[str, Any] = {"out": "accepted: bool, user: string, rhost: string", "keeps": "ts"}


def summary(found: Mapping[str, pa.Table]) -> str:
    """How many break-ins there were, and the first of them.

    Example:
        >>> from datetime import datetime
        >>> at = {"ts": [datetime(2026, 3, 4)], "user": ["root"], "rhost": ["192.0.2.7"]}
        >>> out = pa.table({**at, "seconds": [40], "bursts": [3], "break_in": [1]})
        >>> print(summary({"out": out}))
        1 break-ins, at 1 users:
          2026-03-04 00:00:00  root from 192.0.2.7, which failed for 40 s; 3 bursts before
    """
    table = found["out"]
    lines = [
        f"  {row['ts']}  {row['user']} from {row['rhost']}, "
        f"which failed for {row['seconds']} s; {row['bursts']:,} bursts before"
        for row in table.slice(0, SHOWN).to_pylist()
    ]
    users = pc.count_distinct(table["user"]).as_py()
    return "\n".join([f"{table.num_rows:,} break-ins, at {users:,} users:", *lines])
