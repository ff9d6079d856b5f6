"""A region at work: queues in front of its threads, and how many tuples pass in a step.

Tuples are a fluid. In a step, each thread handles what waits for it and what comes meanwhile, up to
what its speed allows and what finds room behind it. That needs two looks: `look_back`, from the
sinks to the sources, finds how much each region can take; `look_forward`, the other way, how much
there is. So a tuple may pass several queues in a step, queues are never over-full, and the length
of a step does not show in the throughput.

Replicas have fixed shares of the tuples, or take the next when they are free (`shares.py`). Serial
time (`costs.py`) holds all replicas: with its share of the region's tuples, a replica loses the
serial time of the others' tuples, too.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from anabranch.engines.simulator.costs import RegionCosts, RegionSpec
from anabranch.engines.simulator.shares import Floats, KeyLoads, free_shares

LEAST_S = 1e-12
"""Time that a tuple takes at least, so that a rate stays a number."""

NO_LIMIT = float("inf")
STEADY = 1e-9


class IntakeState(Enum):
    """Whether a region takes tuples in."""

    OPEN = "open"
    DRAINING = "draining"  # its first threads stand, the others finish what they have
    PAUSED = "paused"


class SimulatedRegion:
    """One region.

    Args:
        spec: How it runs.
        shares: What each replica gets; None where whoever is free takes the next.
        useful: How many replicas have something to do.
        queue_tuples: Tuples that may wait in front of a thread, where the plan sets no limit.
        sockets: How many the machine has; without a place, replicas are spread over all.
        reads: Whether it reads from outside: then nothing waits in front of it.
        keys: How its tuples fall on its keys; None where they are not dealt out by key.
    """

    def __init__(
        self,
        spec: RegionSpec,
        shares: Floats | None,
        useful: int,
        queue_tuples: float,
        sockets: int,
        reads: bool,
        keys: KeyLoads | None = None,
    ) -> None:
        self.spec, self.keys = spec, keys
        self.gate = IntakeState.OPEN
        self._fixed, self._useful = shares, useful
        choice = spec.choice
        self.shape = (len(choice.pipelines), choice.replicas)
        self.places = np.array(choice.placement or (-1,) * choice.replicas, dtype=np.int64)
        self.placed = bool(choice.placement)
        even = np.full((choice.replicas, sockets), 1 / sockets)
        self.spread: Floats = np.eye(sockets)[self.places] if self.placed else even
        limit = queue_tuples if spec.queue_tuples is None else min(queue_tuples, spec.queue_tuples)
        self.room = np.full(self.shape, limit)
        if reads:
            self.room[0] = 0.0
        self.queue: Floats = np.zeros(self.shape)
        self.passed: Floats = np.zeros(self.shape)  # tuples that each thread handled in this step
        self.inflow = 0.0
        self.outflow = 0.0  # tuples that left the last threads in this step

    def set_costs(self, costs: RegionCosts, slow: Floats, fetch_s: Floats) -> None:
        """Take other costs.

        Args:
            costs: Of the region.
            slow: How many times longer each thread needs for whatever it does.
            fetch_s: Time of each replica to bring a tuple from where it was made.
        """
        self.costs, self.slow = costs, slow
        self.leaving = [pipeline.leaving for pipeline in costs.pipelines]
        arriving = np.array(costs.arriving)[:, None]
        work_s = np.array([p.work_s + p.switch_s for p in costs.pipelines])[:, None] * slow
        work_s[0] += fetch_s * slow[0]
        self.shares = self._fixed if self._fixed is not None else self._by_speed(arriving * work_s)
        taking = self.shares > 0
        self._takers = None if taking.all() else np.flatnonzero(taking)
        own = self.shares * arriving  # tuples of each thread per tuple of the region
        waiting_s = costs.serial_s * slow / np.where(own > 0, own, np.inf)
        self.hold_s = np.maximum(work_s + waiting_s, LEAST_S)
        self._rate = np.where(taking, 1 / self.hold_s, 0.0)
        self.overhead_s = np.array([p.switch_s for p in costs.pipelines])[:, None] * slow
        self.overhead_s[0] += (costs.take_in_s + fetch_s) * slow[0]
        if costs.arriving[-1] > 0:
            self.overhead_s[-1] += costs.hand_out_s / costs.arriving[-1] * slow[-1]
        operators_s = np.array([p.work_s for p in costs.pipelines])[:, None] * slow
        self.cpu_s = operators_s + self.overhead_s  # processor time of a tuple in each thread

    def _by_speed(self, needed_s: Floats) -> Floats:
        return free_shares(1 / np.maximum(needed_s.max(axis=0), LEAST_S), self._useful)

    def able(self, seconds: float) -> Floats:
        """Tuples that each thread can handle in some time if it has a core."""
        if self.gate is IntakeState.PAUSED:
            return np.zeros(self.shape)
        able = self._rate * seconds
        if self.gate is IntakeState.DRAINING:
            able[0] = 0.0
        return able

    def look_back(self, able: Floats, limit: float) -> float:
        """How many tuples it can take in, when each thread can do so much and so many may leave.

        Args:
            able: Tuples that each thread can handle.
            limit: Tuples that its last threads may handle together, for the sake of who follows.
        """
        self._able, self._limit = able, limit
        last = able[-1]
        total = float(np.add.reduce(last))
        sure = last if total <= limit else last * (limit / total)
        self._sure = sure
        free = np.maximum(self.room - self.queue, 0.0)
        self._spaces = [free[-1] + sure]
        for number in range(self.shape[0] - 2, -1, -1):
            sure = np.minimum(able[number], _spread(self._spaces[-1], self.leaving[number]))
            self._spaces.append(free[number] + sure)
        self._spaces.reverse()
        takes, shares = self._spaces[0], self.shares
        if self._takers is not None:
            takes, shares = takes[self._takers], shares[self._takers]
        return float(np.minimum.reduce(takes / shares))

    def look_forward(self, inflow: float) -> float:
        """Let so many tuples come in; gives how many leave the last threads."""
        self.inflow = inflow
        there = self.queue[0] + inflow * self.shares
        last = self.shape[0] - 1
        for number in range(last):
            wish = np.minimum(there, self._able[number])
            space = _spread(self._spaces[number + 1], self.leaving[number])
            self.passed[number] = np.minimum(wish, space)
            there = self.queue[number + 1] + self.passed[number] * self.leaving[number]
        self.passed[last] = self._last(np.minimum(there, self._able[last]))
        self.outflow = float(np.add.reduce(self.passed[last]))
        return self.outflow

    def _last(self, wish: Floats) -> Floats:
        """What the last threads may do together: what was promised first, the rest by wish."""
        if float(np.add.reduce(wish)) <= self._limit:
            return wish
        promised = np.minimum(wish, self._sure)
        more = wish - promised
        rest = max(0.0, self._limit - float(promised.sum()))
        found: Floats = promised + more * (rest / max(float(more.sum()), 1e-300))
        return found

    def settle(self) -> bool:
        """The step is over: what was not handled waits. Whether as much waits as before."""
        before = self.queue
        self.queue = before.copy()
        self.queue[0] += self.inflow * self.shares
        for number in range(1, self.shape[0]):
            self.queue[number] += self.passed[number - 1] * self.leaving[number - 1]
        self.queue -= self.passed
        np.maximum(self.queue, 0.0, out=self.queue)
        if self._fixed is None:
            self.queue[0] = float(np.add.reduce(self.queue[0])) * self.shares
        return bool((np.abs(self.queue - before) <= STEADY * (1 + self.passed)).all())

    @property
    def dealt_by_key(self) -> bool:
        """Whether each replica gets its own part of every jumbo tuple."""
        return self._fixed is not None

    @property
    def waiting(self) -> float:
        """Tuples in all its queues."""
        return float(self.queue.sum())

    @property
    def drained(self) -> bool:
        """Whether nothing waits between its pipelines."""
        return self.shape[0] == 1 or float(self.queue[1:].sum()) <= 1e-9

    def take_over(self, other: SimulatedRegion) -> None:
        """Go on with what waits in front of the same region under another plan."""
        self.queue[0] = float(other.queue[0].sum()) * self.shares


def _spread(space: Floats, leaving: float) -> Floats | float:
    """Tuples in for which there is space behind."""
    return space / leaving if leaving > 0 else NO_LIMIT
