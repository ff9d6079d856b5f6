"""A coordinator and hosts whose messages a test may hold back, driven step by step."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from anabranch.columns.rows import python_rows
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.planning.plan import Plan, RegionPlan
from anabranch.runtime.coordinator import Coordinator, Passage
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import Message, Report, UnitId
from anabranch.runtime.unit import Unit
from anabranch.state.positions import Jumbo, Root

COORDINATOR = -1

Wire = tuple[int, int]
"""Sender and receiver: numbers of hosts, or COORDINATOR."""


class Rows:
    """The outflow of a sink."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def write(self, jumbo: Jumbo, born_s: float | None) -> None:
        self._batches.append(jumbo.batch)

    def enter(self, epoch: int, plan: RegionPlan) -> None:
        """Epochs make no difference."""

    def end(self) -> None:
        """There is nothing to make visible."""

    def leave(self) -> int:
        return 0

    def reach(self, frontier: Root) -> None:
        """Rows are shown at once."""

    def follow(self, generation: int) -> None:
        """All hosts write to the same list."""


class Cluster:
    """A run without processes, threads or chance.

    Args:
        flow: The application.
        plan: The plan to begin with.
        workers: How many hosts there are beside the one at home.
        more: Further arguments of the coordinator.
    """

    def __init__(self, flow: Flow, plan: Plan, workers: int = 0, **more: Any) -> None:
        self.flow, self.topology = flow, Topology(flow)
        self.coordinator = Coordinator(self.topology, plan, workers, **more)
        self.hosts = [Host(number, self.topology, self) for number in range(workers + 1)]
        self.wires: dict[Wire, deque[bytes]] = {}
        self.held: set[Wire] = set()
        self.log: list[tuple[Wire, Message]] = []
        self.passages: list[Passage] = []
        self.saved: list[tuple[int, UnitId, dict[str, Any], list[Jumbo | None]]] = []
        self._written: dict[str, list[pa.RecordBatch]] = {n: [] for n in flow.names(Role.SINK)}
        self.time_s = 0.0

    # Driving

    def settle(self) -> Cluster:
        """Let things happen until nothing more does."""
        while self.step():
            pass
        return self

    def steps(self, count: int) -> Cluster:
        """Let so many things happen."""
        for _ in range(count):
            self.step()
        return self

    @contextmanager
    def without(self, *wires: Wire) -> Iterator[None]:
        """Messages on some wires wait meanwhile."""
        self.held.update(wires)
        yield
        self.held.difference_update(wires)

    def step(self) -> bool:
        """Let one thing happen; whether there was any."""
        self.time_s += 1.0
        for wire, messages in self.wires.items():
            if messages and wire not in self.held:
                self._deliver(*wire, pickle.loads(messages.popleft()))
                return True
        for host in self.hosts:
            if units := host.runnable():
                host.run(units[0])
                self._post(host.number, host.take_outbox())
                return True
        return self.tick()

    def tick(self) -> bool:
        """Let the coordinator do what it can."""
        passage = self.coordinator.tick(self.time_s)
        self.passages += [passage] if passage is not None else []
        sent = self.coordinator.take_outbox()
        self._post(COORDINATOR, sent)
        return passage is not None or bool(sent)

    def _post(self, sender: int, messages: Sequence[tuple[int, Message]]) -> None:
        for host, message in messages:
            wire = sender, COORDINATOR if isinstance(message, Report) else host
            self.log.append((wire, message))
            self.wires.setdefault(wire, deque()).append(pickle.dumps(message))

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        if receiver == COORDINATOR:
            self.coordinator.receive(message, self.time_s)
        else:
            self.hosts[receiver].receive(message)
            self._post(receiver, self.hosts[receiver].take_outbox())

    # Results

    def rows(self, sink: str) -> list[dict[str, object]]:
        """What a sink has got so far."""
        schema = self.topology.contexts[sink].inputs[0].schema
        return python_rows(pa.Table.from_batches(self._written[sink], schema=schema))

    def where(self, unit: UnitId) -> list[int]:
        """The hosts that a unit is on."""
        return [host.number for host in self.hosts if unit in host.units]

    def sent(self, kind: type) -> list[Any]:
        """All messages of a kind that were sent between hosts."""
        return [message for _, message in self.log if isinstance(message, kind)]

    # What hosts need

    def now_s(self) -> float:
        return self.time_s

    def outflow(self, unit: UnitId) -> Rows:
        return Rows(self._written[unit.region])

    def save(self, epoch: int, unit: Unit, waiting: Sequence[Jumbo | None]) -> Any:
        self.saved.append((epoch, unit.id, unit.channel.snapshot(), list(waiting)))
        return len(self.saved)

    def restore(self, unit: Unit, first: bool) -> Sequence[Jumbo | None]:
        return ()

    def watch(self, unit: UnitId, steps: tuple[str, ...]) -> None:
        return None
