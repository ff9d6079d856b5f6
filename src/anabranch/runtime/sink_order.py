"""The order in which prepared rows of a sink become visible, where several replicas write them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.io.sink import Receipt
from anabranch.state.positions import START, Root

Ages = tuple[tuple[float, int], ...]
"""When rows were read, and how many: for those that become visible together."""


class Segment(NamedTuple):
    """Rows that one replica has prepared, without a gap in the order of the sink.

    Attributes:
        receipt: What commits them; with their positions where there are several replicas.
        ages: When they were read.
    """

    receipt: Receipt
    ages: Ages


@dataclass(frozen=True)
class Prepared:
    """Reports rows of a sink that are to become visible, in a run without a checkpoint.

    Attributes:
        sink: The step of the sink.
        generation: The generation of replicas that wrote them.
        replica: Which of them.
        replicas: How many there are.
        segments: The rows.
        reached: All rows of the replica before this position have been reported.
        left: Whether the replica has reported its last rows in this generation.
    """

    sink: str
    generation: int
    replica: int
    replicas: int
    segments: tuple[Segment, ...]
    reached: Root
    left: bool = False


@dataclass
class _Generation:
    """Gathers what the replicas of one generation have reported."""

    replicas: int = 0
    held: list[Segment] = field(default_factory=list)
    reached: dict[int, Root] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    @property
    def over(self) -> bool:
        return self.replicas > 0 and len(self.left) == self.replicas

    def note(self, prepared: Prepared) -> None:
        self.replicas = prepared.replicas
        self.held += prepared.segments
        self.reached[prepared.replica] = prepared.reached
        if prepared.left:
            self.left.add(prepared.replica)

    def take(self) -> list[Segment]:
        """Return the segments that no other replica can precede any more, in order."""
        if self.replicas == 1:
            taken, self.held = self.held, []
            return taken
        open_ = [self.reached.get(n, START) for n in range(self.replicas) if n not in self.left]
        self.held.sort(key=lambda segment: segment.receipt.place)
        count = sum(1 for each in self.held if all(_last(each) < bound for bound in open_))
        taken, self.held = self.held[:count], self.held[count:]
        return taken


class SinkOrder:
    """Puts what the replicas of one sink report into the order of the sink.

    Example:
        >>> from anabranch.io.sink import PositionRange
        >>> def rows(name, first, last):
        ...     positions = PositionRange((first, 0, first, 0), (last, 0, last, 0))
        ...     return Segment(Receipt(name, 1, positions=positions), ())
        >>> order = SinkOrder()
        >>> order.take(Prepared("out", 0, 1, 2, (rows("late", 4, 7),), Root(12, 0, 12, 0)))
        []
        >>> ready = order.take(Prepared("out", 0, 0, 2, (rows("early", 0, 3),), Root(8, 0, 8, 0)))
        >>> [segment.receipt.name for segment in ready]
        ['early', 'late']
    """

    def __init__(self) -> None:
        self._current = 0
        self._generations: defaultdict[int, _Generation] = defaultdict(_Generation)

    def take(self, prepared: Prepared) -> list[Segment]:
        """Note a report; return what becomes visible now, in order."""
        self._generations[prepared.generation].note(prepared)
        ready: list[Segment] = []
        while (current := self._generations.get(self._current)) is not None:
            ready += current.take()
            if not current.over:
                break
            del self._generations[self._current]
            self._current += 1
        return ready

    def held(self) -> list[Segment]:
        """Return what waits for other replicas."""
        return [segment for each in self._generations.values() for segment in each.held]


def _last(segment: Segment) -> tuple[int, ...]:
    positions = segment.receipt.positions
    assert positions is not None
    return positions.last[: len(START)]
