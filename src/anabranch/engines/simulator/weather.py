"""Weather: how slow each thread is by its place, by chance, and after a change of plan."""

from __future__ import annotations

import numpy as np

from anabranch.engines.simulator.region import RegionRun
from anabranch.engines.simulator.scenario import Scenario
from anabranch.engines.simulator.shares import Floats
from anabranch.errors import PlanError, Subject
from anabranch.planning.machine import Machine


class Weather:
    """What slows threads down.

    Threads that are placed nowhere in particular go about the sockets and see their mean speed.

    Args:
        scenario: What happens.
        machine: Where.
        seed: Decides the noise.
    """

    def __init__(self, scenario: Scenario, machine: Machine, seed: int) -> None:
        self._scenario, self._machine = scenario, machine
        self._chance = np.random.default_rng(seed)
        self._noise: dict[str, Floats] = {}
        self._dips: dict[str, float] = {}  # by region, until when it is slow after a change
        for straggler in scenario.stragglers:
            for what, number, count in (
                ("socket", straggler.socket, machine.sockets),
                ("node", straggler.node, machine.nodes),
            ):
                if number is not None and number >= count:
                    raise PlanError(
                        Subject("field", f"scenario.stragglers.{what}"),
                        f"a {what} of 0 to {count - 1}",
                        str(number),
                        f"name one that {machine.name} has",
                    )

    def draw_noise(self) -> None:
        """Service times change at random."""
        self._noise = {}

    def dip(self, region: str, until_s: float) -> None:
        """A region is slower for a while, since its plan has changed."""
        self._dips[region] = until_s

    def next_change(self, at_s: float) -> float:
        """When a region is itself again."""
        return min((until for until in self._dips.values() if until > at_s), default=np.inf)

    def slow(self, region: RegionRun, at_s: float) -> Floats:
        """How many times longer each thread of a region needs."""
        sockets = self._sockets(at_s)
        mean = 1 / float((1 / sockets).mean())
        by_replica = sockets[region.places] if region.placed else np.full(region.shape[1], mean)
        for straggler in self._scenario.stragglers:
            if straggler.region == region.spec.name and straggler.at_work(at_s):
                by_replica = by_replica.copy()
                by_replica[straggler.replica :][:1] *= straggler.factor
        if self._dips.get(region.spec.name, 0.0) > at_s:
            by_replica = by_replica / (1 - self._scenario.switch.dip_share)
        return by_replica * self._noise_of(region)

    def _sockets(self, at_s: float) -> Floats:
        factors = np.ones(self._machine.sockets)
        nodes = np.array([self._machine.node_of(s) for s in range(self._machine.sockets)])
        for straggler in self._scenario.stragglers:
            if straggler.at_work(at_s):
                if straggler.socket is not None:
                    factors[straggler.socket] *= straggler.factor
                if straggler.node is not None:
                    factors[nodes == straggler.node] *= straggler.factor
        return factors

    def _noise_of(self, region: RegionRun) -> Floats:
        """Factors whose mean is 1; as long as nothing is drawn anew, the same."""
        known = self._noise.get(region.spec.name)
        if known is None or known.shape != region.shape:
            spread = self._scenario.noise
            drawn = self._chance.standard_normal(region.shape) if spread else 0.0
            known = np.exp(np.broadcast_to(spread * drawn - spread**2 / 2, region.shape))
            self._noise[region.spec.name] = known
        return known
