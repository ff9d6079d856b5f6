"""Processor time: of cores, whoever uses them, and of this process with all that it has started.

What cores have been busy beyond our own processor time, other programs have used.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

SHORTEST_S = 1.0
"""The clocks of the system are too coarse for less."""


class Look(NamedTuple):
    """What the clocks show at some moment.

    Attributes:
        at_s: The time.
        busy_s: How long our cores have been busy.
        own_s: The processor time of this process and all below it.
    """

    at_s: float
    busy_s: float
    own_s: float

    @staticmethod
    def now() -> Look:
        """Look at them."""
        own = usage()
        return Look(time.monotonic(), cores_busy_s(), own.user_s + own.kernel_s)


def least_free_share(looks: Sequence[Look], cores: int) -> float:
    """Return the part of the cores' time that others left, between the two looks where it is least.

    Example:
        >>> looks = [Look(0.0, 0.0, 0.0), Look(10.0, 18.0, 18.0), Look(20.0, 33.0, 29.0)]
        >>> least_free_share(looks, cores=2)
        0.8
    """
    return min(
        (
            _free_share(before, after, cores)
            for before, after in pairwise(looks)
            if after.at_s - before.at_s >= SHORTEST_S
        ),
        default=1.0,
    )


def _free_share(before: Look, after: Look, cores: int) -> float:
    others_s = after.busy_s - before.busy_s - (after.own_s - before.own_s)
    taken = others_s / (cores * (after.at_s - before.at_s))
    return 1 - min(max(taken, 0.0), 1.0)


def cores_busy_s(cores: Collection[int] | None = None) -> float:
    """Seconds that cores have been busy since the system started; by default those of this process.

    Time that a virtual machine was not given counts as busy, too.
    """
    names = {f"cpu{core}" for core in (os.sched_getaffinity(0) if cores is None else cores)}
    ticks = 0
    for name, *fields in map(str.split, Path("/proc/stat").read_text().splitlines()):
        if name in names:
            user, nice, kernel, _idle, _waiting, *interrupts_and_stolen = map(int, fields[:8])
            ticks += user + nice + kernel + sum(interrupts_and_stolen)
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Processor time and context switches of this process and all below it."""

    user_s: float = 0.0
    kernel_s: float = 0.0
    switches: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.user_s + other.user_s,
            self.kernel_s + other.kernel_s,
            self.switches + other.switches,
        )

    def __sub__(self, other: Usage) -> Usage:
        return self + Usage(-other.user_s, -other.kernel_s, -other.switches)


def usage() -> Usage:
    """Usage so far: of this process, of children that have ended, and of those that live."""
    total = Usage()
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        found = resource.getrusage(who)
        total += Usage(found.ru_utime, found.ru_stime, found.ru_nvcsw + found.ru_nivcsw)
    for pid in processes_below(os.getpid()):
        with suppress(OSError):  # it has ended meanwhile
            total += _of_process(pid)
    return total


def processes_below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    found: list[int] = []
    with suppress(OSError):
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, listed.read_text().split())
    return found + [each for child in found for each in processes_below(child)]


def _of_process(pid: int) -> Usage:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, kernel, user_ended, kernel_ended = (int(ticks) for ticks in fields[11:15])
    tick = os.sysconf("SC_CLK_TCK")
    switches = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = (line.split() for line in status.read_text().splitlines())
        switches += sum(int(line[1]) for line in lines if line[0].endswith("ctxt_switches:"))
    return Usage((user + user_ended) / tick, (kernel + kernel_ended) / tick, switches)
