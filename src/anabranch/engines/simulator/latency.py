"""Latency: from reading a tuple to its result leaving the last thread.

Queues are first in, first out. So whoever leaves a queue now came when as many tuples had come in
as have left by now: that moment is looked up in what came in so far. On top comes the time that a
thread takes for a jumbo tuple, since results are handed on when all of it is done, and the
network's time. A source that has enough to read makes full jumbo tuples, others small ones; what
was made of one in between is dealt out to replicas by key, or goes to one of them whole. There is
no waiting by chance: below what a thread can do, queues are empty unless noise slows it down.

A few paths through the regions are followed at each look: from a sink back to a source, each
replica and each stream as often as tuples take it.
"""

from __future__ import annotations

import numpy as np

from anabranch.engines.local.latency import Latencies
from anabranch.engines.simulator.network import Network
from anabranch.engines.simulator.region import RegionRun
from anabranch.engines.simulator.shares import Floats

PATHS = 16


class History:
    """What came into the queues of one region over time, and what left them.

    Args:
        shape: Pipelines and replicas.
        at_s: Now.
    """

    def __init__(self, shape: tuple[int, int], at_s: float) -> None:
        self.came: Floats = np.zeros(shape)
        self.left: Floats = np.zeros(shape)
        self._inflow = 0.0
        self._passed: Floats = np.zeros(shape)
        self._times = [at_s]
        self._counts = [self.came.copy()]

    def note(self, region: RegionRun) -> None:
        """A step is over; called most often, so the sums are dealt out when somebody looks."""
        self._inflow += region.inflow
        self._passed += region.passed

    def settle(self, region: RegionRun) -> Floats:
        """Deal out what was noted since the last look; gives what the last threads handled."""
        passed = self._passed
        if region.dealt_by_key:
            self.came[0] += self._inflow * region.shares
            self.left[0] += passed[0]
        else:  # one queue for all replicas
            self.came[0] += self._inflow / region.shape[1]
            self.left[0] += passed[0].sum() / region.shape[1]
        for number in range(1, region.shape[0]):
            self.came[number] += passed[number - 1] * region.leaving[number - 1]
        self.left[1:] += passed[1:]
        self._inflow, self._passed = 0.0, np.zeros(region.shape)
        handled: Floats = passed[-1]
        return handled

    def look(self, at_s: float) -> Floats:
        """How long those who leave each queue now have been in it."""
        self._times.append(at_s)
        self._counts.append(self.came.copy())
        counts, times = np.array(self._counts), np.array(self._times)
        empty = self.left >= self.came * (1 - 1e-9)
        before = np.maximum((counts < self.left[None]).sum(axis=0) - 1, 0)
        before = np.where(empty, len(times) - 2, before)
        low = np.take_along_axis(counts, before[None], axis=0)[0]
        high = np.take_along_axis(counts, before[None] + 1, axis=0)[0]
        gained = high - low
        part = np.where(gained > 0, (self.left - low) / np.where(gained > 0, gained, 1.0), 1.0)
        came_s = times[before] + np.clip(part, 0.0, 1.0) * (times[before + 1] - times[before])
        oldest = int(before.min())
        del self._times[:oldest], self._counts[:oldest]
        return np.asarray(np.where(empty, 0.0, np.maximum(0.0, at_s - came_s)))

    def waited(self, region: RegionRun, wait_s: float, at_s: float) -> None:
        """Begin with tuples that came evenly over some time before now."""
        self.came += region.queue
        if not region.dealt_by_key:
            self.came[0] = region.queue[0].mean()
        self._times = [at_s - wait_s, at_s]
        self._counts = [np.zeros(region.shape), self.came.copy()]


class Waits:
    """Latencies of a run.

    Args:
        network: The regions.
        jumbo_tuples: Tuples that threads hand over together.
        seed: Decides which replicas of different regions meet on a path.
    """

    def __init__(self, network: Network, jumbo_tuples: float, seed: int) -> None:
        self._network, self._jumbo = network, jumbo_tuples
        count = len(network.regions)
        self.latencies = Latencies()
        self._histories = [History(region.shape, 0.0) for region in network.regions]
        self._network_s: list[Floats] = [np.zeros(r.shape[1]) for r in network.regions]
        self._visits = [1.0] * count
        self._wait_s: list[Floats] = [np.zeros(r.shape) for r in network.regions]
        chance = np.random.default_rng(seed)
        places = (np.arange(PATHS) + 0.5) / PATHS
        self._replica_draws = [chance.permutation(places) for _ in range(count)]
        self._stream_draws = [chance.permutation(places) for _ in range(count)]

    def set_ways(self, number: int, network_s: Floats, visits: float) -> None:
        """How tuples come to a region.

        Args:
            number: The region.
            network_s: Time that tuples for each replica are on the network.
            visits: Tuples that come per tuple that is read.
        """
        self._network_s[number], self._visits[number] = network_s, visits

    def replaced(self, number: int, at_s: float) -> None:
        """A region goes on under another plan, with what waits in front of it."""
        region = self._network.regions[number]
        waited_s = float(self._wait_s[number][0].max(initial=0.0))
        self._histories[number] = History(region.shape, at_s)
        self._histories[number].waited(region, waited_s, at_s)
        self._wait_s[number] = np.zeros(region.shape)

    def note_step(self) -> None:
        """A step is over."""
        for region, history in zip(self._network.regions, self._histories, strict=True):
            history.note(region)

    def look(self, at_s: float) -> None:
        """Follow some paths, and count how long they take."""
        delays: list[Floats] = []
        flows: list[float] = []
        for number, region in enumerate(self._network.regions):
            history = self._histories[number]
            flow = history.settle(region)
            self._wait_s[number] = history.look(at_s)
            delay = self._before(number, delays, flows)
            total = float(flow.sum())
            if total > 0:
                edges = np.cumsum(flow) / total
                drawn = np.searchsorted(edges, self._replica_draws[number])
                own = self._own(number, region)
                delay = delay + own[np.minimum(drawn, len(own) - 1)]
            delays.append(delay)
            flows.append(total)
            if not self._network.out_of[number] and total > 0:
                rows = max(1, round(total / PATHS))
                self.latencies.note((float(each) * 1e3, rows) for each in delay)

    def _own(self, number: int, region: RegionRun) -> Floats:
        """Time from coming to a region to leaving it, by replica."""
        parts = region.shares if region.dealt_by_key else np.ones(region.shape[1])
        made = self._read_at_once() * self._visits[number] * parts
        arriving = np.array(region.costs.arriving)[:, None]
        jumbo = np.maximum(np.minimum(region.queue, self._jumbo), np.maximum(1.0, made * arriving))
        whole = (self._wait_s[number] + jumbo * region.cpu_s).sum(axis=0) + self._network_s[number]
        return np.asarray(whole)

    def _read_at_once(self) -> float:
        """Tuples that the sources make one jumbo tuple of."""
        sources = self._network.intake.sources.values()
        return max(self._jumbo if s.greedy else min(self._jumbo, s.backlog) for s in sources)

    def _before(self, number: int, delays: list[Floats], flows: list[float]) -> Floats:
        """Time up to a region, on each path by one of the streams into it."""
        links = self._network.into[number]
        if not links:
            return np.zeros(PATHS)
        carried = [
            flows[link.producer]
            * self._network.regions[link.producer].costs.streams[link.stream].selectivity
            for link in links
        ]
        total = sum(carried)
        if total <= 0:
            return np.zeros(PATHS)
        edges = np.cumsum(carried) / total
        drawn = np.searchsorted(edges, self._stream_draws[number])
        chosen = np.array([delays[k.producer] for k in links])
        found: Floats = chosen[np.minimum(drawn, len(links) - 1), np.arange(PATHS)]
        return found
