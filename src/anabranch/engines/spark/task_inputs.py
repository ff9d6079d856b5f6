"""What a task must know: the program (the same for a whole run) and the batch it works on.

Both go to the Python workers: the program once, by broadcast, the batch with each job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark import cloudpickle

from anabranch.engines.checkpoint.state_files import GATE, StateFile
from anabranch.engines.spark.layout import StageLayout, layout
from anabranch.engines.spark.task_report import TaskReport
from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow
from anabranch.io.interleaving import Arrived
from anabranch.io.offsets import SourceOffsets
from anabranch.io.sink import Sink
from anabranch.io.source import Record, Source
from anabranch.io.splits import Slice
from anabranch.operators.base import KernelContext
from anabranch.operators.timed import Facts
from anabranch.planning.plan import Plan
from anabranch.planning.regions import Region, needs_order, regions

SCAN_ROWS = 1 << 17
"""Rows that a task reads at once."""
RUN_ROWS = 1 << 20
"""Rows that a gate releases at once."""


class Program:
    """A flow, and what follows from it alone.

    Args:
        flow: The application.
        checkpoint: Where state files go.
        cache: Name of the state cache that tasks of one host share.
        slots: Tasks that Spark runs at once; None for any number.
    """

    def __init__(self, flow: Flow, checkpoint: str, cache: str, slots: int | None = None) -> None:
        self.flow, self.checkpoint, self.cache, self.slots = flow, checkpoint, cache, slots
        self._layouts: dict[tuple[Plan, frozenset[str], bool], StageLayout] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What cannot be worked out again."""
        return {
            "flow": self.flow,
            "checkpoint": self.checkpoint,
            "cache": self.cache,
            "slots": self.slots,
            "_layouts": {},
        }

    @cached_property
    def contexts(self) -> dict[str, KernelContext]:
        """Where each step stands."""
        return self.flow.contexts()

    @cached_property
    def regions(self) -> dict[str, Region]:
        """Regions by name."""
        return {region.name: region for region in regions(self.flow)}

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The number of each source."""
        return {name: rank for rank, name in enumerate(self.sources)}

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Sources by name."""
        return self.flow.sources()

    @cached_property
    def sinks(self) -> dict[str, Sink]:
        """The sinks by name."""
        return self.flow.sinks()

    @cached_property
    def ordered(self) -> dict[str, bool]:
        """Whether order is restored in front of a region."""
        return {name: needs_order(self.flow, region) for name, region in self.regions.items()}

    def body(self, step: str) -> Any:
        """What the user gave for a step: a source, an operator, a sink."""
        return self.flow.graph.steps[step].body

    def layout(self, batch: Batch) -> StageLayout:
        """Stages and tasks of a batch."""
        key = plan, waiting, serial = batch.plan, batch.waiting, batch.serial_clocks
        if key not in self._layouts:
            found = layout(self.flow, plan, waiting, self.slots, serial_clocks=serial)
            self._layouts = {key: found}  # plans change rarely, and for good
        return self._layouts[key]

    def packed(self) -> bytes:
        """For the workers; what cannot be sent there is told before anything runs."""
        try:
            data: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise BuildError(
                Subject("flow", self.flow.name),
                "operators, sources and sinks that can be sent to Spark's workers",
                f"{type(error).__name__}: {error}",
                "open files, connections and locks inside the functions that use them",
            ) from error
        return data


@dataclass(frozen=True)
class SavedRegion:
    """What a region's replicas begin a batch with.

    Attributes:
        cached: By replica of the batch before, the name under which its state was cached, and its
            buckets.
        files: The files that hold the same, oldest first.
        foreign: Whether another engine wrote them: then this batch writes everything whole.
    """

    cached: tuple[tuple[str, tuple[int, ...]], ...] = ()
    files: tuple[StateFile, ...] = ()
    foreign: bool = False


@dataclass(frozen=True)
class Batch:
    """One micro-batch, as its tasks see it.

    Attributes:
        version: Number of the batch, and of the state that it makes.
        token: Of the run that owns the checkpoint; part of every file name.
        plan: What it runs under.
        slices: By source and reader, what to read.
        offsets: By source, where it stood before.
        over: Sources that have ended, or end with this batch whatever they read.
        state: By region.
        records: By source that stamps arrivals, the stamps of what this batch reads.
        arrived: By interleaved source, what to read.
        entries: By clock whose tasks each judge what they have read, the entry state that each of
            them assumes.
        serial_clocks: Whether each clock has one task, whatever the plan says.
    """

    version: int
    token: str
    plan: Plan
    slices: dict[str, list[list[Slice]]]
    offsets: dict[str, SourceOffsets]
    over: frozenset[str] = frozenset()
    state: dict[str, SavedRegion] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    arrived: dict[str, Arrived] = field(default_factory=dict)
    entries: Mapping[str, Sequence[Facts]] = field(default_factory=dict)
    serial_clocks: bool = False

    @property
    def waiting(self) -> frozenset[str]:
        """The regions at whose gates tuples wait, as files of gates say."""
        files = [file.region for saved in self.state.values() for file in saved.files]
        return frozenset(each.removesuffix(GATE) for each in files if each.endswith(GATE))


@dataclass(frozen=True)
class JobResult:
    """What the tasks of a job report."""

    reports: list[TaskReport]
