"""Distance: what it takes to bring tuples from socket to socket and from node to node.

BriskStream's fetch cost (eq. 2): a tuple that was made on another socket costs its consumer the
latency between the two for every cache line. Replicas that are placed nowhere in particular count
as spread evenly over the sockets. A network adds time on the way, which costs no processor.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from anabranch.engines.simulator.region import RegionRun
from anabranch.engines.simulator.shares import Floats
from anabranch.planning.machine import Machine

Producers = Sequence[tuple[RegionRun, float]]
"""Who makes the tuples of a region, each with its part of them."""


class Distances:
    """The distances of one machine."""

    def __init__(self, machine: Machine) -> None:
        within = range(machine.sockets)
        self._latency_s = np.array([[machine.latency(i, j) for j in within] for i in within]) * 1e-9
        nodes = np.array([machine.node_of(socket) for socket in within])
        apart = (nodes[:, None] != nodes[None, :]).astype(np.float64)
        self._network_s = apart * machine.network_us * 1e-6
        self._line_bytes = machine.cache_line_bytes

    def fetch_s(self, consumer: RegionRun, producers: Producers, tuple_bytes: float) -> Floats:
        """Time of each replica to fetch a tuple of so many bytes, on average over its origins."""
        lines = ceil(tuple_bytes / self._line_bytes)
        return lines * _between(self._latency_s, consumer, producers)

    def network_s(self, consumer: RegionRun, producers: Producers) -> Floats:
        """Time that tuples for each replica are on the network, on average."""
        return _between(self._network_s, consumer, producers)


def _between(matrix: Floats, consumer: RegionRun, producers: Producers) -> Floats:
    origins = np.zeros(len(matrix))
    for producer, part in producers:
        origins += part * (producer.shares @ producer.spread)
    found: Floats = consumer.spread @ (origins @ matrix)
    return found
