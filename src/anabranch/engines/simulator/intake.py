"""Intake: what comes to the sources, what they read of it, and what waits to be read.

Sources that read as fast as they can go on together, in the proportion that the profile says: a
gate that merges them by time lets none run ahead. Sources with a rate get their tuples in any case;
what cannot be read yet is their backlog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.engines.simulator.scenario import Load
from anabranch.planning.profile import OperatorProfile

UNLIMITED = float("inf")


@dataclass
class SimulatedSource:
    """One source.

    Attributes:
        name: The operator that reads.
        part: Tuples that it reads per tuple that the application takes in.
        load: What comes.
        left: Tuples until its end.
        backlog: Tuples that came and were not read.
        read: Tuples read so far.
    """

    name: str
    part: float
    load: Load
    left: float = UNLIMITED
    backlog: float = 0.0
    read: float = 0.0
    offered: float = 0.0

    def offer(self, at_s: float, seconds: float) -> None:
        """What may be read in a step."""
        rate = self.load.rate(at_s + seconds / 2)
        if rate is not None:
            self.backlog += rate * seconds
        self.greedy = rate is None
        self.offered = min(UNLIMITED if self.greedy else self.backlog, self.left)

    def take(self, tuples: float) -> None:
        """Read so many."""
        self.read += tuples
        self.left -= tuples
        self.backlog = max(0.0, self.backlog - tuples)

    greedy: bool = True


class SimulatedSources:
    """All sources of a run.

    Args:
        operators: Operators that nothing comes into, with what they are called in a scenario.
        loads: What comes to each, by name of the operator.
        rows: Tuples of each source, after which it ends; None for no end.

    Example:
        >>> reader = OperatorProfile("read", 1.0)
        >>> intake = SimulatedSources([reader], {"read": Load(((0.0, 100.0),))}, rows=None)
        >>> intake.offer(at_s=0.0, seconds=0.5)
        >>> intake.wanted({"read": 20.0})
        {'read': 20.0}
    """

    def __init__(
        self, operators: list[OperatorProfile], loads: Mapping[str, Load], rows: float | None
    ) -> None:
        left = UNLIMITED if rows is None else float(rows)
        self.sources = {
            each.name: SimulatedSource(each.name, each.rate, loads[each.name], left)
            for each in operators
        }

    def offer(self, at_s: float, seconds: float) -> None:
        """A step begins."""
        for source in self.sources.values():
            source.offer(at_s, seconds)

    def offers(self) -> dict[str, float]:
        """What each source could read in this step."""
        return {source.name: source.offered for source in self.sources.values()}

    def wanted(self, able: Mapping[str, float]) -> dict[str, float]:
        """What each source reads, if it can read so much."""
        found = {s.name: min(s.offered, able[s.name]) for s in self.sources.values()}
        together = [s for s in self.sources.values() if s.greedy and s.left > 0 and s.part > 0]
        rate = min((found[s.name] / s.part for s in together), default=0.0)
        return found | {s.name: rate * s.part for s in together}

    def take(self, tuples: Mapping[str, float]) -> None:
        """A step is over."""
        for name, count in tuples.items():
            self.sources[name].take(count)

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to read, ever."""
        return all(source.left <= 0 for source in self.sources.values())
