"""Standstill: bounded queues may block each other, and then bounds have to give way.

A step that waits for one branch of a graph while another is held up in front of it can block the
source of both. Nothing is wrong with such a flow: it needs longer queues than it was given. A gate
that holds sources up, and gets nothing from those it waits for because they can never go on, lets
its sources go further ahead, as Parks proposed for process networks (Bounded Scheduling of Process
Networks, 1995, §4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch.engines.local.gate import ElasticGate
from anabranch.planning.regions import Edge


class Standstill:
    """Looks at all gates from time to time.

    Args:
        gates: By the region that reads from it.
        edges: The streams between regions.
        alive: Whether a region may move by itself: it works on something, or waits for time.
    """

    def __init__(
        self,
        gates: Mapping[str, ElasticGate],
        edges: Sequence[Edge],
        alive: Callable[[str], bool],
    ) -> None:
        self._gates, self._alive = gates, alive
        self._producers = {edge.number: edge.producer for edge in edges}
        self._moves = dict.fromkeys(gates, -1)
        self._stuck: set[str] = set()

    def look(self) -> list[str]:
        """Let gates give way that can never go on; names of their regions.

        Gates are looked at one after the other while threads go on, so what looks stuck once may
        have been caught between two steps; twice in a row, without a move, it is stuck.
        """
        quiet = [name for name, gate in self._gates.items() if gate.moves == self._moves[name]]
        self._moves = {name: gate.moves for name, gate in self._gates.items()}
        suspects = [name for name in quiet if self._gates[name].held_up()]
        moving = self._moving() if suspects else set()
        stuck = {name for name in suspects if moving.isdisjoint(self._waits_for(name))}
        certain = [name for name in suspects if name in stuck & self._stuck]
        self._stuck = stuck
        for name in certain:
            self._gates[name].relax()
        return certain

    def _moving(self) -> set[str]:
        """Regions that may go on: by themselves, or because those that they wait for may."""
        regions = {*self._gates, *self._producers.values()}
        moving = {name for name in regions if self._alive(name)}
        while True:
            more = {
                name
                for name in regions - moving
                if moving.intersection(self._held_up_by(name) or self._waits_for(name))
            }
            if not more:
                return moving
            moving |= more

    def _waits_for(self, region: str) -> set[str]:
        """The regions whose results a region waits for."""
        gate = self._gates.get(region)
        return set() if gate is None else {self._producer(each) for each in gate.lagging()}

    def _held_up_by(self, region: str) -> set[str]:
        """The regions in front of whose gates a region is held up."""
        return {
            name
            for name, gate in self._gates.items()
            if any(self._producer(source) == region for source in gate.held_up())
        }

    def _producer(self, source: object) -> str:
        """A source of a gate is called by its edge and its replica."""
        number: int = source[0]  # type: ignore[index]
        return self._producers[number]
