"""The network of regions: one step of all of them, what they share, and the latency of tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose

import numpy as np

from anabranch.engines.latency import Latencies
from anabranch.engines.simulator.intake import SimulatedSources
from anabranch.engines.simulator.region import NO_LIMIT, SimulatedRegion
from anabranch.engines.simulator.shares import Floats
from anabranch.planning.machine import Machine
from anabranch.planning.profile import Profile

_TOLERANCE = 1e-9


@dataclass
class RegionLink:
    """A stream between two regions in the current step.

    Attributes:
        producer: Number of the region that it leaves.
        consumer: Number of the region that it enters.
        stream: Its number among the producer's streams.
        part: Its part of what its consumer takes in, in the long run.
        now: Its part of what its consumer can take in this step.
        allowed: Tuples that may be on it.
        carried: Tuples that are.
    """

    producer: int
    consumer: int
    stream: int
    part: float = 1.0
    now: float = 1.0
    allowed: float = 0.0
    carried: float = 0.0


class Network:
    """Regions in an order in which producers come first.

    Args:
        profile: The application.
        regions: How they run, in that order.
        contention: What they share.
        intake: What they read.
    """

    def __init__(
        self,
        profile: Profile,
        regions: Sequence[SimulatedRegion],
        contention: Contention,
        intake: SimulatedSources,
    ) -> None:
        self.regions, self.intake = list(regions), intake
        self._contention = contention
        home = {
            name: number
            for number, region in enumerate(self.regions)
            for name in region.spec.choice.operators
        }
        self.entry_of = {
            region.spec.choice.operators[0]: number for number, region in enumerate(self.regions)
        }
        self.reading = {name: home[name] for name in intake.sources}
        self.links: list[RegionLink] = []
        for number, region in enumerate(self.regions):
            last = region.spec.choice.operators[-1]
            for place, stream in enumerate(profile.out_of(last)):
                self.links.append(RegionLink(number, home[stream.consumer], place))
        self.out_of = [[k for k in self.links if k.producer == n] for n in range(len(home))]
        self.into = [[k for k in self.links if k.consumer == n] for n in range(len(home))]
        self._steady_s: float | None = None  # length of the last step if it changed no queue
        self._joins = [links for links in self.into if len(links) > 1]

    def set_flows(self, profile: Profile) -> None:
        """The profile has changed: find which part of its consumer's tuples each stream brings."""
        for links in self._joins:
            flows = [self._flow(link, profile) for link in links]
            total = sum(flows)
            for link, flow in zip(links, flows, strict=True):
                link.part = flow / total if total > 0 else 1 / len(links)

    def _flow(self, link: RegionLink, profile: Profile) -> float:
        last = self.regions[link.producer].spec.choice.operators[-1]
        return profile.visits[last] * profile.out_of(last)[link.stream].selectivity

    def step(self, seconds: float) -> None:
        """Let some time pass."""
        if self._goes_on(seconds):
            self.intake.take(self._read)
            return
        able = [region.able(seconds) for region in self.regions]
        for link in self.links:
            link.now = link.part
        self._look(able)
        if self._is_lopsided():
            self._deal_again()
            self._look(able)
        entries = {name: self.regions[number] for name, number in self.entry_of.items()}
        parts = self._contention.factors(self.regions, entries, seconds)
        if parts is not None:
            less = [r.passed * part for r, part in zip(self.regions, parts, strict=True)]
            self._look(less)
        self._contended, self._offers = parts is not None, self.intake.offers()
        steady = [region.settle() for region in self.regions]
        self._steady_s = seconds if all(steady) else None
        self.intake.take(self._read)

    def _goes_on(self, seconds: float) -> bool:
        """Whether this step is like the last: queues stay as they are, and sources read the same.

        Most steps of most runs are; it spares them all of the work.
        """
        if self._steady_s is None or abs(seconds - self._steady_s) > _TOLERANCE * seconds:
            return False
        if self._contended:  # who is offered more may get a greater part of the cores
            return _alike(self.intake.offers(), self._offers)
        return _alike(self.intake.wanted(self._able_to_read), self._read)

    def disturb(self) -> None:
        """Something has changed: the next step may be unlike the last."""
        self._steady_s = None

    def _look(self, able: Sequence[Floats]) -> None:
        """How much every thread handles, if each is able to handle so much."""
        takes = [NO_LIMIT] * len(self.regions)
        for number in range(len(self.regions) - 1, -1, -1):
            region, limit = self.regions[number], NO_LIMIT
            for link in self.out_of[number]:
                link.allowed = takes[link.consumer] * link.now
                selectivity = region.costs.streams[link.stream].selectivity
                if selectivity > 0:
                    limit = min(limit, link.allowed / selectivity)
            takes[number] = region.look_back(able[number], limit)
        self._able_to_read = {name: takes[place] for name, place in self.reading.items()}
        self._read = self.intake.wanted(self._able_to_read)
        for number, region in enumerate(self.regions):
            inflow = sum(link.carried for link in self.into[number])
            first = region.spec.choice.operators[0]
            outflow = region.look_forward(self._read.get(first, inflow))
            for link in self.out_of[number]:
                link.carried = outflow * region.costs.streams[link.stream].selectivity

    def _deal_again(self) -> None:
        """Streams that were held back get what others into the same region did not use."""
        for links in self._joins:
            whole = sum(link.allowed for link in links)
            full = [link for link in links if _is_full(link)]
            unused = whole - sum(link.carried for link in links)
            hungry = sum(link.part for link in full)
            if whole <= 0 or hungry <= 0 or len(full) == len(links):
                continue
            for link in links:
                more = unused * link.part / hungry if link in full else 0.0
                link.now = (link.carried + more) / whole

    def _is_lopsided(self) -> bool:
        """Whether some stream into a region was held back while another left room unused."""
        for links in self._joins:
            full = [_is_full(link) for link in links]
            if any(full) and not all(full):
                return True
        return False

    @property
    def waiting(self) -> float:
        """Tuples in all queues."""
        return sum(region.waiting for region in self.regions)


def _alike(some: Mapping[str, float], others: Mapping[str, float]) -> bool:
    return all(isclose(some[name], others[name], rel_tol=_TOLERANCE) for name in some)


def _is_full(link: RegionLink) -> bool:
    return link.carried >= link.allowed * (1 - _TOLERANCE)


# Contention: what threads want of cores, memory and links, and what they get.
#
# When the threads of a socket want more than its cores can give, each gets the same part of what it
# wants; so do those who share a memory or a link. A step in which everybody does the same part of
# what it could have done is always possible, and wastes nothing (eq. 13 of Pipelined Fission).
# Threads without a place go where cores are free: they level the sockets' loads.

_ABOVE_ZERO = 1e-30


class Contention:
    """The bounds of one machine.

    Args:
        machine: Cores, bandwidths and nodes.
    """

    def __init__(self, machine: Machine) -> None:
        self._sockets = machine.sockets
        self._cores = np.full(machine.sockets, machine.capacity / machine.sockets)
        within = range(machine.sockets)
        bandwidth = [[machine.bandwidth(i, j) * 1e9 for j in within] for i in within]
        self._memory_bytes = np.array([bandwidth[i][i] for i in within])
        self._link_bytes = np.array(bandwidth)
        np.fill_diagonal(self._link_bytes, np.inf)
        self._nodes = np.array([machine.node_of(socket) for socket in within])
        self._node_bytes = np.inf if machine.network_mb_s is None else machine.network_mb_s * 1e6
        self._bounds_bytes = bool(machine.bandwidth_mb_s) or machine.network_mb_s is not None

    def factors(
        self,
        regions: Sequence[SimulatedRegion],
        entries: Mapping[str, SimulatedRegion],
        seconds: float,
    ) -> list[Floats] | None:
        """By region, the part of its tuples that each thread may handle; None where all may.

        Args:
            regions: After a look at what each thread would handle.
            entries: The region that begins with an operator.
            seconds: Length of the step.
        """
        by_socket, anywhere = self._share_cores(regions, self._cores * seconds)
        links = None
        if self._bounds_bytes:
            memory = self._share_memory(regions, seconds)
            by_socket, anywhere = np.minimum(by_socket, memory), min(anywhere, float(memory.min()))
            links = self._share_links(regions, entries, seconds)
        if anywhere >= 1 and (by_socket >= 1).all() and links is None:
            return None
        found = []
        for region in regions:
            part = np.full(region.shape, by_socket[region.places] if region.placed else anywhere)
            if links is not None:
                part = np.minimum(part, _held_back(region, entries, links))
            found.append(part)
        return found

    def _share_cores(
        self, regions: Sequence[SimulatedRegion], cores: Floats
    ) -> tuple[Floats, float]:
        """The part of their wishes that sockets can fulfil, and the part for threads anywhere."""
        moving, placed = 0.0, np.zeros(self._sockets)
        for region in regions:
            wanted = (region.passed * region.cpu_s).sum(axis=0)
            if region.placed:
                placed += wanted @ region.spread
            else:
                moving += float(wanted.sum())
        if not placed.any():
            whole = min(1.0, float(cores.sum()) / moving) if moving > 0 else 1.0
            return np.ones(self._sockets), whole
        loads = np.maximum(placed, _level(moving, placed, cores) * cores)
        by_socket = np.minimum(1.0, cores / np.maximum(loads, _ABOVE_ZERO))
        added = loads - placed
        if moving <= 0:
            return by_socket, 1.0
        return by_socket, float((added * by_socket).sum() / added.sum())

    def _share_memory(self, regions: Sequence[SimulatedRegion], seconds: float) -> Floats:
        moved = np.zeros(self._sockets)
        for region in regions:
            each = np.array([p.memory_bytes for p in region.costs.pipelines])
            moved += (each @ region.passed) @ region.spread
        return np.minimum(1.0, self._memory_bytes * seconds / np.maximum(moved, _ABOVE_ZERO))

    def _share_links(
        self,
        regions: Sequence[SimulatedRegion],
        entries: Mapping[str, SimulatedRegion],
        seconds: float,
    ) -> Floats | None:
        """The part of the traffic from socket to socket that gets through; None for all of it."""
        moved = np.zeros((self._sockets, self._sockets))
        for region in regions:
            made = region.passed[-1] @ region.spread
            for stream in region.costs.streams:
                consumer = entries[stream.consumer]
                taken = consumer.shares @ consumer.spread
                moved += np.outer(made, taken) * stream.selectivity * stream.tuple_bytes
        parts = np.minimum(1.0, self._link_bytes * seconds / np.maximum(moved, _ABOVE_ZERO))
        apart = self._nodes[:, None] != self._nodes[None, :]
        sent = np.bincount(self._nodes, (moved * apart).sum(axis=1))
        nodes = np.minimum(1.0, self._node_bytes * seconds / np.maximum(sent, _ABOVE_ZERO))
        parts = np.where(apart, np.minimum(parts, nodes[self._nodes][:, None]), parts)
        return parts if (parts < 1).any() else None


def _held_back(
    region: SimulatedRegion, entries: Mapping[str, SimulatedRegion], links: Floats
) -> Floats:
    """The part that threads may do since the links behind the last of them are full."""
    found = np.ones(region.shape)
    for stream in region.costs.streams:
        consumer = entries[stream.consumer]
        reached = (consumer.shares @ consumer.spread) > 0
        worst = links[:, reached].min(axis=1)  # by socket of the producer
        mine = worst[region.places] if region.placed else float(worst.min())
        found[-1] = np.minimum(found[-1], mine)
    return found


def _level(anywhere: float, placed: Floats, cores: Floats) -> float:
    """The load per core up to which work that may go anywhere fills the sockets."""
    loads = placed / cores
    level, filled = 0.0, 0.0
    order = np.argsort(loads)
    for number, socket in enumerate(order):
        filled += float(cores[socket])
        needed = anywhere + float(placed[order[: number + 1]].sum())
        level = needed / filled
        if number + 1 == len(order) or level <= loads[order[number + 1]]:
            break
    return level


# Latency: from reading a tuple to its result leaving the last thread.
#
# Queues are first in, first out. So whoever leaves a queue now came when as many tuples had come in
# as have left by now: that moment is looked up in what came in so far. On top comes the time that a
# thread takes for a jumbo tuple, since results are handed on when all of it is done, and the
# network's time. A source that has enough to read makes full jumbo tuples, others small ones; what
# was made of one in between is dealt out to replicas by key, or goes to one of them whole. There is
# no waiting by chance: below what a thread can do, queues are empty unless noise slows it down.
#
# A few paths through the regions are followed at each look: from a sink back to a source, each
# replica and each stream as often as tuples take it.

PATHS = 16


class QueueHistory:
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

    def note(self, region: SimulatedRegion) -> None:
        """A step is over; called most often, so the sums are dealt out when somebody looks."""
        self._inflow += region.inflow
        self._passed += region.passed

    def settle(self, region: SimulatedRegion) -> Floats:
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

    def waited(self, region: SimulatedRegion, wait_s: float, at_s: float) -> None:
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
        self._histories = [QueueHistory(region.shape, 0.0) for region in network.regions]
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
        self._histories[number] = QueueHistory(region.shape, at_s)
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

    def _own(self, number: int, region: SimulatedRegion) -> Floats:
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
