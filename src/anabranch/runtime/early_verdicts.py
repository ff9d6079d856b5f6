"""Verdicts of a clock on slices before it is known what the slices before them show.

The tasks of a Spark stage cannot ask each other while they run, as the replicas of a clock do on
the local engine (`clock.py`). So each replica judges its slices by what it *assumes* that their
source has passed before, and reports how far that may differ without another verdict. Only replica
0 need not assume anything: it has the memory of the clock, and the first slices.

When all replicas are done, `check` takes the slices in their order, as the sequencer does. It finds
the exact entry state of each replica, and says whether every assumption was good enough. If one was
not, the slices are judged again by those entry states.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.operators.base import Outputs
from anabranch.operators.timed import Facts, Judged, TimedKernel
from anabranch.state.positions import FIRST, LAST, Jumbo, Root, is_end

ASSUMED = ("passed", "last")
"""A replica assumes these facts of the memory of its clock."""


@dataclass(frozen=True)
class Verdicts:
    """Reports how a replica of a clock has judged its slices.

    Attributes:
        slices: Its slices in their order, if it assumed their entry state.
        memory: Pickled facts: what the clock remembers after the slices of replica 0.
        last: The greatest time that it knows if it has met the end of the stream, else None.
        waiting: Whether it has tuples that it could not judge.
    """

    slices: tuple[Judged, ...] = ()
    memory: bytes | None = None
    last: int | None = None
    waiting: bool = False


class EarlyClock:
    """A replica of a clock that judges its slices at once.

    Args:
        kernel: The clock; that of replica 0 has its memory.
        entry: What is assumed of the memory before the first slice; None for replica 0.
    """

    def __init__(self, kernel: TimedKernel, entry: Facts | None) -> None:
        self._kernel, self._knows = kernel, entry is None
        self._judged: list[Judged] = []
        if entry is not None:
            kernel.resume(entry)

    def let_go(self) -> Outputs:
        """Release what the clock held while it had one replica."""
        return self._kernel.let_go()

    def judge(self, jumbo: Jumbo) -> Outputs:
        """Judge a slice; the end of the stream is noted by `check`, since it follows all slices."""
        marks = tuple(mark for mark in jumbo.marks if mark.passed < LAST)
        jumbo = Jumbo(jumbo.batch, jumbo.positions, marks)
        facts = self._kernel.facts()
        if self._knows:
            outputs, memory = self._kernel.judge(jumbo, facts)
        else:
            outputs, memory, judged = self._kernel.judge_early(jumbo, facts)
            self._judged.append(judged)
        self._kernel.resume(memory)
        return outputs

    def reached(self, frontier: Root) -> list[Root]:
        """Return how far each port has come, as far as this replica knows."""
        return [self._kernel.frontier(frontier, port) for port in range(2)]

    def verdicts(self, frontier: Root, *, waiting: bool) -> Verdicts:
        """Return the report, once the stream has come to a frontier."""
        facts = self._kernel.facts()
        memory = pickle.dumps(facts) if self._knows else None
        last = facts.get("last", FIRST) if is_end(frontier) else None
        return Verdicts(tuple(self._judged), memory, last, waiting)


class Checked(NamedTuple):
    """What a check has found.

    Attributes:
        right: Whether every verdict is that of a clock that has judged the slices in their order.
        entries: By replica, the exact entry state before its first slice.
    """

    right: bool
    entries: list[Facts]


def check(kernel: TimedKernel, reports: Sequence[Verdicts]) -> Checked | None:
    """Check the verdicts of all replicas, and leave the memory of the clock in a kernel.

    Args:
        kernel: Any memory of it is replaced.
        reports: By replica, in the order of their slices.

    Returns:
        None where the rows themselves have to be judged in their order.
    """
    memory = reports[0].memory
    if memory is None or any(report.waiting for report in reports):
        return None
    kernel.resume(pickle.loads(memory))
    entries: list[Facts] = []
    right = True
    for report in reports:
        entries.append(entry_state(kernel))
        for digest, holds in report.slices:
            facts = kernel.facts_for(digest)
            if facts is None:
                return None
            right = right and facts.get("passed", {}).get(digest.source, FIRST) <= holds
    ends = [report.last for report in reports if report.last is not None]
    if ends:
        if not kernel.finish():
            return None
        right = right and max(ends) == kernel.facts().get("last", FIRST)
    return Checked(right, entries)


def entry_state(kernel: TimedKernel) -> Facts:
    """Return what replicas assume of the memory of a clock."""
    facts = kernel.facts()
    return {name: facts[name] for name in ASSUMED if name in facts}
