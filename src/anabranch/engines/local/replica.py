"""One replica in one epoch: a thread per pipeline, belts between them (Joker §3.3).

The first pipeline reads the region's gate, the last one sends results on. An epoch-switch tuple
runs through all pipelines; behind it every thread goes back to the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from anabranch.runtime.channel import Channel
from anabranch.engines.local.belt import Belt
from anabranch.engines.local.entry import Control, Entry
from anabranch.engines.local.gate import ElasticGate
from anabranch.engines.local.probe import Probe
from anabranch.state.positions import Jumbo, Root


@dataclass(frozen=True, slots=True)
class PipelineInput:
    """What moves through the pipelines: the tuples of an entry, or what earlier ones made of them.

    Attributes:
        entry: Where it comes from.
        inputs: By port.
        frontier: How far the inputs have come.
    """

    entry: Entry
    inputs: Sequence[Jumbo | None]
    frontier: Root


class Keeper(Protocol):
    """What a replica asks of its region."""

    gate: ElasticGate

    def inputs(self, entry: Entry, replica: int) -> Sequence[Jumbo | None]:
        """The tuples of an entry that a replica shall work on."""

    def admit(self, entry: Entry) -> None:
        """Wait until an entry may be worked on."""

    def deliver(
        self, replica: int, entry: Entry, outputs: Sequence[Jumbo | None], reached: Sequence[Root]
    ) -> None:
        """Take what came of an entry."""

    def arrive(self, control: Control) -> None:
        """A replica has finished its epoch."""


class Replica:
    """One replica's pipelines in one epoch."""

    def __init__(self, keeper: Keeper, channel: Channel) -> None:
        """Ready to start."""
        self._keeper, self.channel = keeper, channel
        self.number = channel.replica
        self.probes = [Probe(channel.region.name, p, self.number) for p in channel.pipelines]
        self._belts: list[Belt[PipelineInput | Control]] = [Belt() for _ in channel.pipelines[1:]]

    def start(self, run: Callable[[Probe, Callable[[], None]], None]) -> None:
        """Start a thread for each pipeline by means of `run`."""
        for pipeline, probe in enumerate(self.probes):
            work = self._read if pipeline == 0 else partial(self._carry_on, pipeline)
            run(probe, work)

    def close(self) -> None:
        """Let the threads end."""
        for belt in self._belts:
            belt.close()

    def idle(self) -> bool:
        """Whether nothing is under way between its pipelines."""
        return all(belt.idle() for belt in self._belts)

    def _read(self) -> None:
        keeper = self._keeper
        while True:
            entry = keeper.gate.next_ready(self.number)
            if entry.control is not None:
                self._pass_control(0, entry.control)
                return
            keeper.admit(entry)
            inputs = keeper.inputs(entry, self.number)
            self._work(0, PipelineInput(entry, inputs, entry.frontier))

    def _carry_on(self, pipeline: int) -> None:
        belt = self._belts[pipeline - 1]
        while True:
            load = belt.take()
            if not isinstance(load, PipelineInput):
                self._pass_control(pipeline, load)
                return
            self._work(pipeline, load)

    def _work(self, pipeline: int, load: PipelineInput) -> None:
        probe = self.probes[pipeline]
        probe.begin()
        tap = probe.tap if probe.on else None
        outputs, reached = self.channel.run(pipeline, load.inputs, load.frontier, tap)
        probe.step = None
        if pipeline < len(self._belts):
            self._belts[pipeline].put(PipelineInput(load.entry, outputs[:1], reached[0]))
        else:
            self._keeper.deliver(self.number, load.entry, outputs, reached)

    def _pass_control(self, pipeline: int, control: Control) -> None:
        if pipeline < len(self._belts):
            self._belts[pipeline].put(control)
        else:
            self._keeper.arrive(control)
