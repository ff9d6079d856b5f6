"""Outlets: where the results of a region go, and in whose name.

Replicas that own buckets each promise by themselves: every one is a source of the next gates.
Replicas that take turns promise together: the region is one source, whoever adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.engines.local.gate import QUOTA, ElasticGate
from anabranch.engines.local.turns import Turns
from anabranch.planning.regions import Edge
from anabranch.state.positions import Jumbo, Root

Way = tuple[Edge, ElasticGate]

TOGETHER = -1
"""Stands for all replicas in the name of a source."""


class Outlet:
    """The ways from one region to the next ones."""

    def __init__(self, ways: Sequence[Way], *, together: bool) -> None:
        """Each edge with the gate that it leads to; `together` when replicas take turns."""
        self._ways = ways
        self.turns = Turns() if together else None

    def announce(self, replicas: Iterable[int], at: Root, quota: int = QUOTA) -> None:
        """Replicas that will add nothing before `at`."""
        for edge, gate in self._ways:
            gate.announce_sources([self._name(edge, r) for r in replicas], at, quota)

    def join(self, new: Iterable[int], like: int) -> None:
        """New replicas go on where `like` stands, which has come as far as any."""
        if self.turns is None:
            for edge, gate in self._ways:
                at = gate.passed(self._name(edge, like))
                gate.announce_sources([self._name(edge, r) for r in new], at)

    def leave(self, gone: Iterable[int]) -> None:
        """Replicas that add nothing any more."""
        if self.turns is None:
            for edge, gate in self._ways:
                gate.remove_sources([self._name(edge, r) for r in gone])

    def send(
        self,
        replica: int,
        number: int,
        outputs: Sequence[Jumbo | None],
        reached: Sequence[Root],
        born_s: float,
    ) -> None:
        """Pass on what a replica made of an entry, and how far it has come."""
        turns = self.turns
        early = turns is not None and not turns.is_first(number)
        for edge, gate in self._ways:
            # Out of turn there is nothing to promise yet: the gate keeps the higher frontier.
            frontier = LEAST if early else reached[edge.out_port]
            gate.add(
                self._name(edge, replica), edge.in_port, outputs[edge.out_port], frontier, born_s
            )
        if turns is not None:
            self._promise(turns.finish(number, reached))

    def tell(self, outputs: Sequence[Jumbo | None], reached: Sequence[Root], born_s: float) -> None:
        """Pass on what somebody adds in the name of all."""
        for edge, gate in self._ways:
            name = self._name(edge, TOGETHER)
            gate.add(name, edge.in_port, outputs[edge.out_port], reached[edge.out_port], born_s)

    def skip(self, number: int) -> None:
        """An entry that gives nothing, as an epoch-switch tuple does."""
        if self.turns is not None:
            self._promise(self.turns.finish(number, None))

    def _promise(self, reached: Sequence[Root] | None) -> None:
        if reached is not None:
            for edge, gate in self._ways:
                gate.add(self._name(edge, TOGETHER), edge.in_port, None, reached[edge.out_port])

    def _name(self, edge: Edge, replica: int) -> tuple[int, int]:
        return edge.number, TOGETHER if self.turns is not None else replica


LEAST = Root(*[-(1 << 63)] * 4)
"""Before every position: promises nothing."""
