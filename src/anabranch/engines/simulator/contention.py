"""Contention: what threads want of cores, memory and links, and what they get.

When the threads of a socket want more than its cores can give, each gets the same part of what it
wants; so do those who share a memory or a link. A step in which everybody does the same part of
what it could have done is always possible, and wastes nothing (eq. 13 of Pipelined Fission).
Threads without a place go where cores are free: they level the sockets' loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anabranch.engines.simulator.region import RegionRun
from anabranch.engines.simulator.shares import Floats
from anabranch.planning.machine import Machine

TINY = 1e-30


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
        self, regions: Sequence[RegionRun], entries: Mapping[str, RegionRun], seconds: float
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

    def _share_cores(self, regions: Sequence[RegionRun], cores: Floats) -> tuple[Floats, float]:
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
        by_socket = np.minimum(1.0, cores / np.maximum(loads, TINY))
        added = loads - placed
        if moving <= 0:
            return by_socket, 1.0
        return by_socket, float((added * by_socket).sum() / added.sum())

    def _share_memory(self, regions: Sequence[RegionRun], seconds: float) -> Floats:
        moved = np.zeros(self._sockets)
        for region in regions:
            each = np.array([p.memory_bytes for p in region.costs.pipelines])
            moved += (each @ region.passed) @ region.spread
        return np.minimum(1.0, self._memory_bytes * seconds / np.maximum(moved, TINY))

    def _share_links(
        self, regions: Sequence[RegionRun], entries: Mapping[str, RegionRun], seconds: float
    ) -> Floats | None:
        """The part of the traffic from socket to socket that gets through; None for all of it."""
        moved = np.zeros((self._sockets, self._sockets))
        for region in regions:
            made = region.passed[-1] @ region.spread
            for stream in region.costs.streams:
                consumer = entries[stream.consumer]
                taken = consumer.shares @ consumer.spread
                moved += np.outer(made, taken) * stream.selectivity * stream.tuple_bytes
        parts = np.minimum(1.0, self._link_bytes * seconds / np.maximum(moved, TINY))
        apart = self._nodes[:, None] != self._nodes[None, :]
        sent = np.bincount(self._nodes, (moved * apart).sum(axis=1))
        nodes = np.minimum(1.0, self._node_bytes * seconds / np.maximum(sent, TINY))
        parts = np.where(apart, np.minimum(parts, nodes[self._nodes][:, None]), parts)
        return parts if (parts < 1).any() else None


def _held_back(region: RegionRun, entries: Mapping[str, RegionRun], links: Floats) -> Floats:
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
