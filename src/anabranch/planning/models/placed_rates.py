"""BriskStream's rates for many placements at once (§3.1, eq. 1 to 5), as NumPy arrays.

A placement is how many replicas each unit has on each socket. Replicas of a unit on one socket are
alike, so (unit, socket) is the smallest thing that is looked at; and since a stream is dealt out
evenly over the consumer's replicas, every replica sees producers on the sockets in the same
shares. That makes one unit two small matrix products for a whole batch of placements.

Arrays have the axes (placement, unit, socket). A placement may have one socket more than the
machine: *anywhere*, next to everything and without bounds, for replicas not placed yet. With them
there, the rates are RLAS's bounding function (§4).

Every rate is per nanosecond, so that a demand for CPU is in cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.planning.machine import Machine
from anabranch.planning.models.placed_units import Workload, cache_lines

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.float64]

EVENLY = 1e-9
"""Demand above a capacity by less than this part of it is rounding."""


class Fetch(Enum):
    """What a planner believes about fetching."""

    BY_DISTANCE = "by-distance"
    """Eq. 2: free from the own socket, else by cache lines and latency."""
    ALWAYS = "always"
    """As from the farthest socket, wherever the producer is: RLAS_fix(L)."""
    NEVER = "never"
    """Free: RLAS_fix(U)."""


@dataclass(frozen=True)
class BatchRates:
    """Rates of each placement of a batch.

    Attributes:
        throughput: R: tuples that sinks handle, if every demand were met.
        carried: The same at the rate that every unit keeps up with; less where streams fork and a
            branch that adds little to R is left behind.
        arriving: Tuples offered to each unit on each socket.
        processed: Tuples handled there.
        handling_ns: T: time per tuple there.
        origin: Part of a unit's tuples that come from producers on each socket.
        cpu: Cores asked of each socket (eq. 3).
        memory: Bytes per nanosecond asked of each socket's own memory (eq. 4).
        traffic: Bytes per nanosecond from socket (next to last axis) to socket (eq. 5).
        overload: The greatest demand as a part of what there is.
        ceiling: More than any placement can get: all cores at work, and nothing to fetch.
    """

    throughput: Floats
    carried: Floats
    arriving: Floats
    processed: Floats
    handling_ns: Floats
    origin: Floats
    cpu: Floats
    memory: Floats
    traffic: Floats
    overload: Floats
    ceiling: float

    @property
    def bounded(self) -> Floats:
        """What a placement really gets: all slowed down until the worst overload is gone."""
        slowed: Floats = self.carried / np.maximum(1.0, self.overload)
        return slowed

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Which placements satisfy every constraint."""
        satisfied: NDArray[np.bool_] = self.overload <= 1.0 + EVENLY
        return satisfied


class RateModel:
    """The model of one workload on one machine.

    Attributes:
        workload: Units and streams.
        machine: Sockets.
        input_per_ns: Tuples that come from outside; None for as many as sources can read.
    """

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        fetch: Fetch = Fetch.BY_DISTANCE,
        whole_lines: bool = True,
        input_per_ns: float | None = None,
    ) -> None:
        self.workload = workload
        self.machine = machine
        self.input_per_ns = input_per_ns
        self.sockets = machine.sockets
        self.latency = _latencies(machine, fetch)
        self.lines = [
            cache_lines(u.tuple_bytes, machine.cache_line_bytes, whole_lines)
            for u in workload.units
        ]
        self.cores = machine.capacity / machine.sockets
        self.ceiling = machine.capacity / workload.work_ns * workload.sink_visits
        within = range(machine.sockets)
        self.bandwidth = np.array([[machine.bandwidth(i, j) for j in within] for i in within])
        self._bytes = np.array([u.tuple_bytes for u in workload.units])
        self._memory = np.array([u.memory_bytes for u in workload.units])

    def rates(self, counts: Counts) -> BatchRates:
        """What each placement of a batch does.

        Args:
            counts: Replicas by placement, unit and socket; at least one of each unit.
        """
        arriving, processed, handling, origin = (np.zeros(counts.shape) for _ in range(4))
        width = counts.shape[2]
        latency = self.latency[:width, :width]
        spread = counts / counts.sum(axis=2, keepdims=True)
        throughput = np.zeros(counts.shape[0])
        kept_up = np.full(counts.shape[0], np.inf)
        for number, unit in enumerate(self.workload.units):
            streams = self.workload.into[number]
            if streams:
                offered = sum(processed[:, s.producer] * s.selectivity for s in streams)
                total = np.asarray(offered).sum(axis=1, keepdims=True)
                origin[:, number] = offered / np.maximum(total, 1e-300)
                fetching = self.lines[number] * (origin[:, number] @ latency)
                handling[:, number] = unit.execute_ns + fetching
                arriving[:, number] = total * spread[:, number]
            else:
                handling[:, number] = unit.execute_ns
                arriving[:, number] = (
                    counts[:, number] / unit.execute_ns
                    if self.input_per_ns is None
                    else self.input_per_ns * unit.rate * spread[:, number]
                )
            able = counts[:, number] / handling[:, number]
            processed[:, number] = np.minimum(arriving[:, number], able)
            handled = processed[:, number].sum(axis=1)
            if self.workload.visits[number] > 0:
                kept_up = np.minimum(kept_up, handled / self.workload.visits[number])
            if number in self.workload.sinks:
                throughput += unit.reach_last * handled
        real = self.sockets
        here = processed[:, :, :real]
        cpu = (here * handling[:, :, :real]).sum(axis=1)
        memory = np.einsum("bus,u->bs", here, self._memory)
        traffic = (origin[:, :, :real] * self._bytes[:, None]).transpose(0, 2, 1) @ here
        return BatchRates(
            throughput,
            kept_up * self.workload.sink_visits,
            arriving,
            processed,
            handling,
            origin,
            cpu,
            memory,
            traffic,
            self._overload(cpu, memory, traffic),
            self.ceiling,
        )

    def _overload(self, cpu: Floats, memory: Floats, traffic: Floats) -> Floats:
        worst: Floats = cpu.max(axis=1) / self.cores
        if not self.machine.bandwidth_mb_s:
            return worst
        own = np.eye(self.sockets, dtype=bool)
        links = np.where(own, 0.0, traffic / self.bandwidth).max(axis=(1, 2))
        memories = (memory / np.diag(self.bandwidth)).max(axis=1)
        return np.asarray(np.maximum(worst, np.maximum(links, memories)))


def _latencies(machine: Machine, fetch: Fetch) -> Floats:
    """Nanoseconds per cache line from socket to socket, and nothing from or to anywhere."""
    within = range(machine.sockets)
    real = np.array([[machine.latency(i, j) for j in within] for i in within])
    if fetch is Fetch.ALWAYS:
        return np.full((machine.sockets + 1,) * 2, real.max())
    latency = np.zeros((machine.sockets + 1,) * 2)
    if fetch is Fetch.BY_DISTANCE:
        latency[:-1, :-1] = real
    return latency
