"""When a tuple-style operator fires: Joker's scheduling requirements (§3.1).

A requirement per port (*at least n*, *exactly n*, *the same number on all ports*) and whether all
ports or any port must meet it. What is available is judged after each event of the stream (all
tuples that one source tuple or timer caused), so that batching cannot change what an invocation
sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.errors import About, BuildError, Subject, chosen


class Take(Enum):
    """How many of the waiting tuples an invocation gets."""

    AT_LEAST = "at least"
    EXACTLY = "exactly"
    SAME = "the same number"


class Ports(Enum):
    """Which ports must meet their requirement."""

    ALL = "all"
    ANY = "any"


@dataclass(frozen=True)
class Schedule:
    """A firing rule.

    Example:
        >>> Schedule.exactly(1).ready([2, 1])
        [1, 1]
        >>> Schedule.exactly(1).ready([2, 0]) is None
        True
        >>> Schedule.at_least(2, ports="any").ready([3, 1])
        [3, 0]
        >>> Schedule.same().ready([3, 2])
        [2, 2]
    """

    take: Take
    counts: tuple[int, ...] = (1,)
    ports: Ports = Ports.ALL

    @staticmethod
    def at_least(*counts: int, ports: Ports | str = Ports.ALL) -> Schedule:
        """Fire with all that waits, once at least this many wait (one count, or one per port)."""
        return Schedule(Take.AT_LEAST, _counts(counts), _ports(ports))

    @staticmethod
    def exactly(*counts: int, ports: Ports | str = Ports.ALL) -> Schedule:
        """Fire with exactly this many (one count, or one per port)."""
        return Schedule(Take.EXACTLY, _counts(counts), _ports(ports))

    @staticmethod
    def same() -> Schedule:
        """Fire with as many from each port as every port has."""
        return Schedule(Take.SAME)

    def check(self, about: About, ports: int) -> None:
        """Raise when the counts do not fit the number of ports."""
        if len(self.counts) not in (1, ports):
            raise BuildError(
                about,
                f"one count or {ports} counts in its schedule",
                f"{len(self.counts)}",
                "give one count per input port",
            )

    def ready(self, waiting: list[int]) -> list[int] | None:
        """How many tuples to take from each port now; None when the rule is not met."""
        if self.take is Take.SAME:
            number = min(waiting)
            return [number] * len(waiting) if number else None
        counts = self.counts * len(waiting) if len(self.counts) == 1 else self.counts
        met = [w >= c for w, c in zip(waiting, counts, strict=True)]
        if not (all(met) if self.ports is Ports.ALL else any(met)):
            return None
        given = waiting if self.take is Take.AT_LEAST else counts
        return [g if m else 0 for g, m in zip(given, met, strict=True)]


def _counts(counts: tuple[int, ...]) -> tuple[int, ...]:
    if not counts or any(type(c) is not int or c < 1 for c in counts):
        raise BuildError(
            Subject("argument", "schedule"),
            "whole numbers of at least 1",
            str(list(counts)),
            "an operator fires on tuples; use a timer to fire without",
        )
    return counts


def _ports(ports: Ports | str) -> Ports:
    return chosen(Subject("argument", "schedule"), "ports", ports, Ports)
