"""Ways to get tuples to n threads and their results back: by reference, as copies, by a buffer.

Built for the comparisons of STRETCH (§8, figures 4 and 5) and no part of the engine. `ByReference`
is virtual shared-nothing: elastic gates, as the local engine has them. `Copied` is pure
shared-nothing: T^I writes one copy of every jumbo tuple for each thread, every T^P thread merges
what came to it by itself, its results are copied again, and T^O does all the sorting. `Buffered`
is the paper's single thread: bounded buffers in the place of gates, for one T^P thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from anabranch.engines.jumbo_ipc import pack, unpack
from anabranch.engines.local.belt import Belt
from anabranch.engines.local.gate import QUOTA, ElasticGate
from anabranch.errors import BuildError, Subject
from anabranch.state.gate import Gate
from anabranch.state.positions import START, Jumbo, Root

COLLECTOR = "T^O"


class Ready(NamedTuple):
    """Tuples by port that became ready together, how far they go, when the oldest was read."""

    inputs: Sequence[Jumbo | None]
    frontier: Root
    born_s: float | None


class Way(Protocol):
    """How tuples get from T^I to n threads T^P, and what these make of them to T^O."""

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """T^I: tuples of a source, and how far it has come; waits while others are behind."""

    def take(self, thread: int) -> Ready:
        """T^P: the next tuples, all of them, in order."""

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """T^P: what came of them."""

    def collect(self) -> Ready:
        """T^O: the next results, in order."""

    def close(self) -> None:
        """Nobody waits any longer."""


@dataclass(frozen=True)
class Shape:
    """What has to be carried.

    Attributes:
        ports: By source, the port that its tuples go to.
        schemas: By source, its columns.
        out: The columns of the results.
        threads: How many T^P threads there are.
    """

    ports: tuple[int, ...]
    schemas: tuple[pa.Schema, ...]
    out: pa.Schema
    threads: int


class ByReference:
    """Virtual shared-nothing: one gate that all threads read, one that all write to."""

    name = "V_SN"

    def __init__(self, shape: Shape) -> None:
        """Gates with everybody announced."""
        self._ports = shape.ports
        self._taken = ElasticGate(max(shape.ports) + 1, ordered=True)
        self._taken.announce_sources(range(len(shape.ports)), START)
        self._taken.announce_readers(range(shape.threads))
        self._made = ElasticGate(1, ordered=True)
        self._made.announce_sources(range(shape.threads), START)
        self._made.announce_readers([COLLECTOR])

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the gate, as it is."""
        self._taken.add(source, self._ports[source], jumbo, frontier, born_s)

    def take(self, thread: int) -> Ready:
        """The same entry for every thread."""
        return _read(self._taken, thread)

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the second gate, as it is."""
        self._made.add(thread, 0, jumbo, frontier, born_s)

    def collect(self) -> Ready:
        """Out of the second gate."""
        return _read(self._made, COLLECTOR)

    def close(self) -> None:
        """Close both gates."""
        self._taken.close()
        self._made.close()


class Copied:
    """Pure shared-nothing: a copy of everything for every thread, and queues between them."""

    name = "P_SN"

    def __init__(self, shape: Shape) -> None:
        """Queues as long as what a gate holds."""
        self._shape = shape
        room = QUOTA * len(shape.ports)
        self._taken: list[Belt[_Parcel]] = [Belt(room) for _ in range(shape.threads)]
        self._made: Belt[_Parcel] = Belt(QUOTA * shape.threads)
        self._sorters = [_Sorter(shape.ports) for _ in range(shape.threads)]
        self._collector = _Sorter((0,) * shape.threads)

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Broadcast: written once for each thread."""
        for belt in self._taken:
            belt.put(_Parcel.of(source, jumbo, frontier, born_s))

    def take(self, thread: int) -> Ready:
        """Read copies until something is ready."""
        sorter = self._sorters[thread]
        while not sorter.has_news():
            parcel = self._taken[thread].take()
            sorter.add(parcel, parcel.opened(self._shape.schemas[parcel.sender]))
        return sorter.ready()

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Written for T^O."""
        self._made.put(_Parcel.of(thread, jumbo, frontier, born_s))

    def collect(self) -> Ready:
        """Read copies until something is ready, and sort it."""
        while not self._collector.has_news():
            parcel = self._made.take()
            self._collector.add(parcel, parcel.opened(self._shape.out))
        return self._collector.ready()

    def close(self) -> None:
        """Close every queue."""
        for belt in (*self._taken, self._made):
            belt.close()


class Buffered:
    """One T^P thread behind a bounded buffer, and another buffer behind it; nothing is copied."""

    name = "single"

    def __init__(self, shape: Shape) -> None:
        """For one thread only, which merges the sources by itself."""
        if shape.threads != 1:
            raise BuildError(
                Subject("argument", "threads"),
                "one thread",
                str(shape.threads),
                "share by a gate instead",
            )
        self._taken: Belt[tuple[Jumbo | None, _Parcel]] = Belt(QUOTA * len(shape.ports))
        self._made: Belt[Ready] = Belt(QUOTA)
        self._sorter = _Sorter(shape.ports)

    def send(self, source: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the buffer, as it is."""
        self._taken.put((jumbo, _Parcel(source, None, None, frontier, born_s)))

    def take(self, thread: int) -> Ready:
        """Out of the buffer, until something is ready."""
        while not self._sorter.has_news():
            jumbo, parcel = self._taken.take()
            self._sorter.add(parcel, jumbo)
        return self._sorter.ready()

    def deliver(self, thread: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> None:
        """Into the second buffer: one thread's results are in order."""
        self._made.put(Ready([jumbo], frontier, born_s))

    def collect(self) -> Ready:
        """Out of the second buffer."""
        return self._made.take()

    def close(self) -> None:
        """Close both buffers."""
        self._taken.close()
        self._made.close()


class _Parcel(NamedTuple):
    """A copy on its way."""

    sender: int
    header: dict[str, Any] | None
    payload: pa.Buffer | None
    frontier: Root
    born_s: float

    @staticmethod
    def of(sender: int, jumbo: Jumbo | None, frontier: Root, born_s: float) -> _Parcel:
        header, payload = (None, None) if jumbo is None else pack(jumbo)
        return _Parcel(sender, header, payload, frontier, born_s)

    def opened(self, schema: pa.Schema) -> Jumbo | None:
        return None if self.header is None else unpack(self.header, self.payload, schema)


class _Sorter:
    """Merges what one thread gets from several others, on that thread."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._gate = Gate(max(ports) + 1)
        self._births: list[tuple[int, float]] = []  # last time of a piece, when it was read
        for sender in range(len(ports)):
            self._gate.open(sender)

    def add(self, parcel: _Parcel, jumbo: Jumbo | None) -> None:
        self._gate.add(parcel.sender, self._ports[parcel.sender], jumbo, parcel.frontier)
        if jumbo is not None and len(jumbo):
            self._births.append((int(jumbo.positions.columns[0][-1]), parcel.born_s))

    def has_news(self) -> bool:
        return self._gate.has_news()

    def ready(self) -> Ready:
        inputs, frontier = self._gate.ready()
        born_s = min((born for _, born in self._births), default=None)
        self._births = [birth for birth in self._births if birth[0] >= frontier.time]
        return Ready(inputs, frontier, born_s)


def _read(gate: ElasticGate, reader: object) -> Ready:
    entry = gate.next_ready(reader)
    return Ready(entry.inputs(), entry.frontier, entry.born_s)
