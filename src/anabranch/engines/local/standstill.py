"""Standstill: bounded queues may block each other, and then bounds have to give way.

A step that waits for one branch of a graph while another is held up in front of it can block the
source of both. Nothing is wrong with such a flow: it needs longer queues than it was given. When
nobody has moved between two looks and somebody is held up, gates let their sources go further
ahead, as Parks proposed for process networks (Bounded Scheduling of Process Networks, 1995, §4).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.engines.local.gate import ElasticGate


class Standstill:
    """Looks at all gates from time to time."""

    def __init__(self, gates: Iterable[ElasticGate]) -> None:
        """Watch these gates."""
        self._gates = list(gates)
        self._moves = -1

    def look(self, working: bool) -> bool:
        """Whether gates had to be relaxed; `working` when some thread is inside a step."""
        moves = sum(gate.moves for gate in self._gates)
        stuck = moves == self._moves and not working
        self._moves = moves
        held_up = [gate for gate in self._gates if gate.held_up]
        if not stuck or not held_up:
            return False
        for gate in held_up:
            gate.relax()
        return True
