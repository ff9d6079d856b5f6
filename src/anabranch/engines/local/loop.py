"""The event loop of a worker process: takes messages, lets one unit run after the other.

A unit runs to completion. No other thread takes part, so there is no lock in the path of data.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sinks import OutboxStage
from anabranch.engines.checkpoint.storage import Storage
from anabranch.engines.cpu_topology import Pins, cpu_sockets
from anabranch.engines.local import forwarding
from anabranch.engines.local.mesh import COORDINATOR, Lost, Mesh
from anabranch.engines.local.site import LocalSite
from anabranch.engines.local.status_page import NO_STEP, StatusPage
from anabranch.engines.local.versions import UnitStorage
from anabranch.flow import Flow
from anabranch.io.sink import Stage
from anabranch.io.staged import MemoryStage
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import Begin, Delivery, Handover, Message
from anabranch.state.tables.shared_arrays import allow_sharing

REPORT_S = 0.2
"""How often a worker reports what it has done."""
MEMORY_S = 1.0
"""How often it reports its memory."""


@dataclass(frozen=True)
class Durable:
    """A checkpoint as workers know it: where it is, who owns it, and the version to begin with."""

    storage: Storage
    token: str
    last: Manifest | None

    def for_units(self) -> UnitStorage:
        """Return what writes and reads the state of units."""
        return UnitStorage(self.storage, self.token, self.last)


@dataclass(frozen=True)
class LocalJob:
    """What a worker has to know of a run."""

    flow: Flow
    durable: Durable | None
    profile: bool


class Ready(NamedTuple):
    """Reports that a worker can take messages of its run."""


class Broadcast(NamedTuple):
    """The same tuples for units of several processes, which all map the one copy of them.

    Attributes:
        shares: The deliveries, each with the number of its process.
    """

    shares: tuple[tuple[int, Delivery], ...]

    def for_host(self, number: int) -> list[Delivery]:
        """Return what one of the processes gets."""
        return [delivery for host, delivery in self.shares if host == number]


def broadcasts(
    messages: Sequence[tuple[int, Message]],
) -> Iterator[tuple[set[int], Message | Broadcast]]:
    """Join the deliveries of the same tuples that follow each other.

    Returns:
        Each message, with the numbers of the processes that it goes to.
    """
    for _, group in groupby(messages, lambda sent: _content(sent[1])):
        sent = list(group)
        if len(sent) == 1:
            yield {sent[0][0]}, sent[0][1]
        else:
            shares = [(host, each) for host, each in sent if isinstance(each, Delivery)]
            yield {host for host, _ in shares}, Broadcast(tuple(shares))


def _content(message: Message) -> int:
    """Return a number that only deliveries of the same tuples have in common."""
    if isinstance(message, Delivery) and message.jumbo is not None:
        return id(message.jumbo)
    return id(message)


class Close(NamedTuple):
    """Asks a worker to make visible what it has, to report for the last time, and to end."""

    show: bool


class Closed(NamedTuple):
    """Reports that a worker has ended, as `Close` asked."""


class Ping(NamedTuple):
    """Asks whether a worker has anything to do."""

    number: int


class Pong(NamedTuple):
    """The answer to a ping.

    Attributes:
        number: Of the ping.
        idle: Whether nothing could run.
        holds_back: Whether tuples wait until a slower source gives as many.
        shows_later: Whether rows have come to sinks that are not visible yet.
        sent: Messages sent to other workers so far.
        received: Messages received from other workers so far.
    """

    number: int
    idle: bool
    holds_back: bool
    shows_later: bool
    sent: int
    received: int


def work(mesh: Mesh, job: LocalJob) -> None:
    """Run the units of one worker until the coordinator ends the run."""
    # Modules are there for good: a garbage collection that goes through them takes tens of
    # milliseconds, in which no tuple is processed.
    gc.freeze()
    allow_sharing()
    loop = WorkerLoop(mesh, job)
    try:
        loop.run()
    finally:
        loop.abort()
        gc.unfreeze()


class WorkerLoop:
    """The loop of one worker in one run.

    Args:
        mesh: The connections.
        job: What runs.
    """

    def __init__(self, mesh: Mesh, job: LocalJob) -> None:
        from anabranch.engines.local import worker

        topology = Topology(job.flow)
        stage: Stage = MemoryStage() if job.durable is None else OutboxStage(job.durable.storage)
        self._mesh = mesh
        self._site = LocalSite(
            topology,
            stage,
            None if job.durable is None else job.durable.for_units(),
            lambda prepared: mesh.send(COORDINATOR, prepared),
            Steps(job.flow, worker.status_page()).enter,
            cpu_clock=time.process_time,
            profile=job.profile,
        )
        self._host = Host(mesh.number, topology, self._site)
        self._pins = Pins(cpu_sockets())
        self._sent = self._received = 0
        self._reported_s = self._memory_s = time.monotonic()

    def run(self) -> None:
        """Work until the coordinator says so, or is gone."""
        host, mesh = self._host, self._mesh
        mesh.send(COORDINATOR, Ready())
        while True:
            runnable = host.runnable()
            for sender, message in mesh.poll(0.0 if runnable else REPORT_S):
                if isinstance(message, Lost):
                    if message.number == COORDINATOR:
                        return
                elif isinstance(message, Close):
                    self._close(message)
                    return
                elif isinstance(message, Ping):
                    self._answer(message)
                else:
                    self._received += sender != COORDINATOR
                    if isinstance(message, Broadcast):
                        for delivery in message.for_host(mesh.number):
                            host.receive(delivery)
                    else:
                        host.receive(message)  # type: ignore[arg-type]
                    if isinstance(message, Begin):
                        self.pin()
                    runnable = []
            if not runnable:
                runnable = host.runnable()
            if runnable:
                if host.outbox:
                    self._send()
                mesh.flush()  # a unit may take long, and others wait for messages
                self._site.run(host, runnable[0])
            self._send()
            self._report_if_due()

    def pin(self) -> None:
        """Stay on the socket on which the plan places the units of this worker, if it is one."""
        places = self._host.places()
        self._pins.pin(places.pop() if len(places) == 1 else None)

    def abort(self) -> None:
        """Remove what was prepared for sinks and never shown."""
        self._site.abort()

    def _send(self) -> None:
        for to, message in broadcasts(self._host.take_outbox()):
            self._sent += len(to - {COORDINATOR})
            self._mesh.send_all(tuple(to), message, by_value=isinstance(message, Handover))

    def _answer(self, ping: Ping) -> None:
        self._send()
        host = self._host
        idle, counts = not host.runnable(), (self._sent, self._received)
        pong = Pong(ping.number, idle, host.holds_back(), self._site.shows_later(), *counts)
        self._mesh.send(COORDINATOR, pong)

    def _report_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < REPORT_S:
            return
        self._reported_s = now_s
        for outflow in self._site.outflows.values():
            outflow.show_if_due()
        memory = now_s - self._memory_s >= MEMORY_S
        self._memory_s = now_s if memory else self._memory_s
        self._mesh.send(COORDINATOR, self._site.measured(self._host, memory=memory))

    def _close(self, close: Close) -> None:
        if close.show:
            for outflow in self._site.outflows.values():
                outflow.show()
        self.abort()
        self._mesh.send(COORDINATOR, self._site.measured(self._host))
        self._mesh.send(COORDINATOR, Closed())
        self._mesh.flush()


class Steps:
    """Notes which step runs in this process.

    Args:
        flow: The application.
        page: Where others can see it; None where nobody looks.
    """

    def __init__(self, flow: Flow, page: StatusPage | None) -> None:
        self._numbers = {name: number for number, name in enumerate(flow.graph.steps)}
        self._page = page

    def enter(self, step: str | None) -> None:
        """Note that a step begins; None: it has ended, and no other one begins."""
        forwarding.current.step = step
        if self._page is not None:
            self._page.step = NO_STEP if step is None else self._numbers[step]
