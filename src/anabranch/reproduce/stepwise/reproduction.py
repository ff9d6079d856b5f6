"""A stepwise auto-profiling method (Liu et al., 2017): figures 11 to 14 on simulated clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.reproduce.claims import Claim
from anabranch.reproduce.machine import Machine, free_share
from anabranch.reproduce.stepwise.claims import claims_of
from anabranch.reproduce.stepwise.profiling import METHODS, STELA, STEPWISE, Scaling, scale_up
from anabranch.reproduce.stepwise.topologies import (
    Topology,
    figure_11,
    mixed_line,
    sentiment_analysis,
    word_count,
)

PARAMETERS: Mapping[str, tuple[float, ...]] = {
    "latency_ms": (300.0, 500.0, 700.0),
    "unit": (0.1, 0.3, 0.5),
    "k": (1.5, 2.0, 3.0),
}
"""Table 3; the one in the middle is the default."""


@dataclass(frozen=True)
class Effort:
    """How much is simulated.

    Attributes:
        nodes: Of figure 11.
        rounds: Configurations of stepwise profiling at most; the others get as many, or `least`.
        least: Configurations of the others at least.
        topologies: Of figure 11; None for all.
        lengths: Operators of the lines of figure 12 (a).
        sizes: Nodes of figure 12 (b).
        platforms: Nodes of figure 13.
        parameter_nodes: Nodes of figure 14.
        parameters: Which ones figure 14 varies.
    """

    nodes: int = 6
    rounds: int = 20
    least: int = 12
    topologies: tuple[str, ...] | None = None
    lengths: tuple[int, ...] = (6, 8, 12)
    sizes: tuple[int, ...] = (6, 10, 14)
    platforms: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 14)
    parameter_nodes: int = 4
    parameters: tuple[str, ...] = tuple(PARAMETERS)


FULL = Effort()
QUICK = Effort(
    rounds=14,
    least=6,
    topologies=("Linear", "WC", "SWC", "TSA"),
    lengths=(6,),
    sizes=(6, 14),
    platforms=(2, 6, 14),
    parameters=("unit",),
)


@dataclass(frozen=True)
class Reproduction:
    """All that was simulated, and what follows from it.

    Attributes:
        effort: How much.
        machine: Where it was computed.
        seconds: How long that took.
        figure_11: By topology and method.
        figure_12a: Stepwise profiling, by operators.
        figure_12b: Stepwise profiling, by nodes.
        figure_13: By nodes and method.
        figure_14: Stepwise profiling, by parameter and its value.
        claims: The paper's, with verdicts.
    """

    effort: Effort
    machine: Machine
    seconds: float
    figure_11: dict[str, dict[str, Scaling]]
    figure_12a: dict[int, Scaling]
    figure_12b: dict[int, Scaling]
    figure_13: dict[int, dict[str, Scaling]]
    figure_14: dict[str, dict[float, Scaling]]
    claims: list[Claim]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {"paper": "stepwise", **asdict(self)}


class Runs:
    """Runs that several figures share, each made once."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._known: dict[tuple[Any, ...], Scaling] = {}

    def scaling(
        self,
        topology: Topology,
        method: str,
        nodes: int,
        rounds: int | None = None,
        **parameters: Any,
    ) -> Scaling:
        """A run of a method; of stepwise profiling until it ends."""
        chosen = rounds or self._effort.rounds
        key = (topology.name, method, nodes, chosen, *sorted(parameters.items()))
        if key not in self._known:
            self._known[key] = scale_up(topology, method, nodes, chosen, **parameters)
        return self._known[key]

    def methods(self, topology: Topology, nodes: int, names: tuple[str, ...]) -> dict[str, Scaling]:
        """Several methods, the others with as many rounds as stepwise profiling needed."""
        first = self.scaling(topology, STEPWISE, nodes)
        rounds = max(self._effort.least, len(first.rounds))
        return {
            name: first if name == STEPWISE else self.scaling(topology, name, nodes, rounds)
            for name in names
        }


def reproduce(effort: Effort = FULL, tell: Callable[[str], None] = print) -> Reproduction:
    """Simulate everything, one thing after the other; `tell` hears what comes next."""
    started_s, free = time.monotonic(), free_share()
    runs = Runs(effort)
    compared = {}
    for topology in figure_11():
        if effort.topologies is None or topology.name in effort.topologies:
            tell(f"figure 11: {topology.name} on {effort.nodes} nodes")
            compared[topology.name] = runs.methods(topology, effort.nodes, METHODS)
    tell("figure 12: longer lines, and more nodes")
    lines = {n: runs.scaling(mixed_line(n), STEPWISE, effort.nodes) for n in effort.lengths}
    sizes = {n: runs.scaling(word_count(), STEPWISE, n) for n in effort.sizes}
    tell("figure 13: what nodes are needed for")
    needed = {n: runs.methods(word_count(), n, (STEPWISE, STELA)) for n in effort.platforms}
    tell("figure 14: parameters")
    varied = {
        name: {
            value: runs.scaling(
                sentiment_analysis(), STEPWISE, effort.parameter_nodes, **_other(name, value)
            )
            for value in PARAMETERS[name]
        }
        for name in effort.parameters
    }
    claims = claims_of(compared, lines, sizes, needed, varied)
    machine = Machine.here(min(free, free_share()))
    seconds = time.monotonic() - started_s
    return Reproduction(effort, machine, seconds, compared, lines, sizes, needed, varied, claims)


def _other(name: str, value: float) -> dict[str, Any]:
    """A parameter, unless it has its default."""
    return {} if value == PARAMETERS[name][1] else {name: value}
