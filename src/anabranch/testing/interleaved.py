"""The interleaved run: one thread executes a plan step by step, in an order drawn from a seed.

Coordinator, hosts, units, gates and epoch switches are those of every engine (`runtime/`); only the
driver is not: it picks the next thing that could happen, a message that arrives or a unit that
runs. So every bug of concurrency is a seed that shows it again. Messages between hosts are pickled,
as between processes. A crash forgets everything but the last epoch that was saved whole.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from anabranch.engines.local.site import SinkOutflow
from anabranch.errors import BuildError, StateError, Subject
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.io.offsets import Run, SourceOffsets
from anabranch.io.staged import MemoryStage
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind
from anabranch.runtime.channel import Snapshot
from anabranch.runtime.coordinator import Coordinator, Passage
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import HOME, Message, Report, UnitId
from anabranch.runtime.routing import Router
from anabranch.runtime.sink_order import Prepared, SinkOrder
from anabranch.runtime.unit import Unit
from anabranch.state.positions import Jumbo
from anabranch.testing.result import RunResult, Tap

MOST_WORKERS = 3
STEP_LIMIT = 2_000_000
COORDINATOR = -1
PACES = (1.0, 1.0, 0.1, 0.01)


def run_interleaved(
    flow: Flow,
    plan: Plan | None = None,
    seed: int = 0,
    *,
    changes: Sequence[Plan] = (),
    crashes: int = 0,
    max_batch: int = 8,
    tap: Tap | None = None,
) -> RunResult:
    """Run a bounded flow under a plan, in an order drawn from `seed`.

    Args:
        flow: The application; its sinks are not written, their rows are returned.
        plan: Where it starts; one replica of everything when not given.
        seed: Decides every choice: how many hosts there are, who runs next, which message arrives,
            batch sizes, moments of change and of crash.
        changes: Plans to switch to, one after another, at moments drawn from the seed.
        crashes: How often all is lost but the last checkpoint.
        max_batch: Largest batch a source reader takes; it stands in for the plan's own batch size
            and throttle, which matter to speed alone.
        tap: Called after every call of a kernel.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build(text="a b a")
        >>> plan = Plan.sequential(flow).with_replicas("count", 2)
        >>> sorted(r["n"] for r in run_interleaved(flow, plan, seed=7).rows("out"))[-1]
        2
    """
    start = plan if plan is not None else Plan.sequential(flow)
    for each in (start, *changes):
        each.validate(flow)
    return Interleaved(flow, start, Random(seed), list(changes), crashes, max_batch, tap).run()


@dataclass
class _Saved:
    """What survives a crash: the epoch to go on with, and everybody's state at its start."""

    epoch: int
    plan: Plan
    offsets: dict[str, SourceOffsets] = field(default_factory=dict)
    units: dict[UnitId, tuple[Snapshot, bytes]] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    counters: dict[str, Counters] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)


class Interleaved:
    """One interleaved run.

    Args:
        flow: The application.
        plan: The plan to begin with.
        rng: Makes every choice.
        changes: The plans to switch to.
        crashes: How many crashes there are.
        max_batch: The largest batch.
        tap: Called after every call of a kernel.
    """

    def __init__(
        self,
        flow: Flow,
        plan: Plan,
        rng: Random,
        changes: list[Plan],
        crashes: int,
        max_batch: int,
        tap: Tap | None,
    ) -> None:
        self._flow, self._rng, self._tap, self._max_batch = flow, rng, tap, max_batch
        for name, source in flow.sources().items():
            if not (source.bounded or source.interleaved):
                raise BuildError(
                    name,
                    "a bounded source",
                    "an endless one",
                    "give it a number of rows, e.g. generate(…, rows=1000)",
                )
        self._topology = Topology(flow)
        # With one claim at a time a source is read slowly, and more can happen meanwhile.
        slow = [name for name in flow.names(Role.SOURCE) if rng.random() < 0.6]
        self._changes = [_slowed(each, slow) for each in changes]
        self._crashes = crashes
        self.written: dict[str, list[pa.RecordBatch]] = {n: [] for n in flow.names(Role.SINK)}
        self._events: list[str] = []
        self._now_s = 0.0
        self.saved = _Saved(0, _slowed(plan, slow))
        self.start_over()

    def run(self) -> RunResult:
        """Run to the end of all sources."""
        for _ in range(STEP_LIMIT):
            if self._crashes and self._rng.random() < 0.02:
                self._crashes -= 1
                self._events.append(f"crash; going on from epoch {self.saved.epoch}")
                self.start_over()
            if self._rng.random() < 0.25:
                self._ask_for_switch()
            if not self._one_step():
                break
        if not self._coordinator.ended:
            raise StateError(
                Subject("run", self._flow.name),
                "the end of the stream at every sink",
                "a standstill",
                "report this seed: the run could not go on",
            )
        return RunResult(self._tables(), self._counters(), self._events, self._interleavings())

    def start_over(self) -> None:
        """Forget everything, and go on from the last epoch that was saved whole."""
        saved, workers = self.saved, self._rng.randint(0, MOST_WORKERS)
        for sink, batches in self.written.items():
            self.written[sink] = _first_rows(batches, saved.written.get(sink, 0))
        self._orders = {sink: SinkOrder() for sink in self.written}
        self._stage = MemoryStage()
        self._rows_of: dict[str, Counter[int]] = {sink: Counter() for sink in self.written}
        self._coordinator = Coordinator(
            self._topology,
            saved.plan,
            workers,
            now_s=self._now_s,
            offsets=saved.offsets,
            counters={step: replace(counted) for step, counted in saved.counters.items()},
            epoch=saved.epoch,
            claim_rows=lambda most: self._rng.randint(1, self._max_batch),
        )
        self._hosts = [self._host(number) for number in range(workers + 1)]
        self._wires: dict[tuple[int, int], deque[bytes | Message]] = {}
        self._paces: dict[UnitId, float] = {}

    # Scheduling

    def _one_step(self) -> bool:
        """Let one thing happen; False when nothing can."""
        self._now_s += 1.0
        wires = [ends for ends, messages in self._wires.items() if messages]
        if wires and self._rng.random() < 0.5:
            self._deliver(*self._rng.choice(wires))
            return True
        runnable = [(host, unit) for host in self._hosts for unit in host.runnable()]
        if runnable:
            paces = [self._pace_of(unit) for _, unit in runnable]
            [(host, unit)] = self._rng.choices(runnable, paces)
            self._run(host, unit)
            return True
        if wires:
            self._deliver(*self._rng.choice(wires))
            return True
        return self._tick() or self._relaxed()

    def _pace_of(self, unit: UnitId) -> float:
        """Return how often a unit runs: some are slow, so that others overtake them."""
        if unit not in self._paces:
            self._paces[unit] = self._rng.choice(PACES)
        return self._paces[unit]

    def _relaxed(self) -> bool:
        """Let sources give out more than usual, and return whether the run goes on."""
        if self._coordinator.ended:
            return False
        self._coordinator.relax()
        self._now_s += 1.0
        return self._tick()

    def _tick(self) -> bool:
        """Let the coordinator give out rows; whether anything came of it."""
        passage = self._coordinator.tick(self._now_s)
        if passage is not None and passage.saves:
            self._keep(passage)
        return self._post(COORDINATOR, self._coordinator.take_outbox()) or passage is not None

    def _run(self, host: Host, unit: UnitId) -> None:
        upto = None
        if unit in host.units and self._rng.random() < 0.5:
            cuts = host.units[unit].cuts()
            upto = self._rng.choice(cuts) if cuts else None
        host.run(unit, upto)
        self._post(host.number, host.take_outbox())

    def _post(self, sender: int, messages: Sequence[tuple[int, Message]]) -> bool:
        for host, message in messages:
            receiver = COORDINATOR if isinstance(message, Report) else host
            wire = self._wires.setdefault((sender, receiver), deque())
            apart = {sender, receiver} != {COORDINATOR, HOME}
            wire.append(pickle.dumps(message, protocol=5) if apart else message)
        return bool(messages)

    def _deliver(self, sender: int, receiver: int) -> None:
        sent = self._wires[sender, receiver].popleft()
        message: Message = pickle.loads(sent) if isinstance(sent, bytes) else sent
        if receiver == COORDINATOR:
            self._coordinator.receive(message, self._now_s)
            if self._rng.random() < 0.5:
                self._tick()
        else:
            host = self._hosts[receiver]
            host.receive(message)
            self._post(receiver, host.take_outbox())

    def _ask_for_switch(self) -> None:
        """Ask for the next plan, or for a checkpoint under the same one."""
        coordinator = self._coordinator
        if coordinator.passing or all(each.over for each in coordinator.sources.values()):
            return
        if self._changes and self._rng.random() < 0.7:
            self._perhaps_widen()
            coordinator.request(self._changes.pop(0))
        if self._rng.random() < 0.7:
            coordinator.save()

    def _perhaps_widen(self) -> None:
        """Start a further host, or not."""
        workers = len(self._hosts) - 1
        if workers < MOST_WORKERS and self._rng.random() < 0.3:
            self._hosts.append(self._host(workers + 1))
            self._coordinator.widen(workers + 1)

    def _host(self, number: int) -> Host:
        return Host(number, self._topology, self, turn=self._rng.randrange)

    def _keep(self, passage: Passage) -> None:
        """Keep an epoch that is over and saved whole: a crash goes back to it."""
        moved = "; ".join(passage.before.diff(passage.plan))
        self._events.append(f"epoch {passage.epoch}: {moved}")
        finished = range(self.saved.epoch, passage.epoch)
        written = {
            sink: self.saved.written.get(sink, 0) + sum(rows[epoch] for epoch in finished)
            for sink, rows in self._rows_of.items()
        }
        counters = {step: replace(c) for step, c in self._coordinator.counters.items()}
        runs = self._interleavings(passage.offsets)
        for name, source in self._coordinator.sources.items():
            source.note_saved(passage.offsets[name])
        self.saved = _Saved(
            passage.epoch,
            passage.plan,
            passage.offsets,
            dict(passage.saved),
            written,
            counters,
            runs,
        )

    # What hosts need

    def now_s(self) -> float:
        """Return the number of steps so far."""
        return self._now_s

    def outflow(self, unit: UnitId) -> SinkOutflow:
        """Collects the rows of a replica of a sink."""
        schema = self._topology.contexts[unit.region].inputs[0].schema
        outflow = _Counted(unit, collect(), schema, self._stage, None, self._show)
        outflow.rows_of = self._rows_of[unit.region]
        return outflow

    def _show(self, prepared: Prepared) -> None:
        receipts = [segment.receipt for segment in self._orders[prepared.sink].take(prepared)]
        self.written[prepared.sink] += self._stage.rows(receipts)
        self._stage.discard(receipts)

    def save(self, epoch: int, unit: Unit, waiting: Sequence[Jumbo | None]) -> Any:
        """Keep the state of a unit as bytes."""
        return unit.channel.snapshot(), pickle.dumps(list(waiting))

    def restore(self, unit: Unit, first: bool) -> Sequence[Jumbo | None]:
        """Bring back what was saved of a region, as far as it belongs to a unit."""
        region, kernels = unit.region, unit.channel.kernels
        waiting: list[Jumbo | None] = [None] * self._topology.ports[region.name]
        router = Router(region, unit.plan)
        for other, (snapshot, left) in self.saved.units.items() if first else ():
            if other.region != region.name:
                continue
            unit.channel.restore({s: p for s, p in snapshot.items() if s in kernels})
            if region.kind is RegionKind.SHARED and other.replica > 0:
                continue  # all its replicas had the same tuples
            if unit.id.pipeline == 0 and other.pipeline == 0:
                router.add_share(waiting, pickle.loads(left), unit.id.replica)
        return waiting

    def watch(self, unit: UnitId, steps: tuple[str, ...]) -> _Tapped | None:
        """Calls what the caller gave."""
        return None if self._tap is None else _Tapped(self._tap)

    # Results

    def _counters(self) -> dict[str, Counters]:
        found = {n: replace(self._coordinator.counters[n]) for n in self._flow.names(Role.OPERATOR)}
        for host in self._hosts:
            for unit in host.units.values():
                for step, kernel in unit.channel.kernels.items():
                    if step in found:
                        found[step].add(kernel.context.counters)
        return found

    def _interleavings(
        self, offsets: Mapping[str, SourceOffsets] | None = None
    ) -> dict[str, list[Run]]:
        """Return in which order interleaved sources were read, up to some offsets or until now."""
        newest = {
            name: source.runs if offsets is None else offsets[name].runs
            for name, source in self._coordinator.sources.items()
        }
        return {
            name: [*self.saved.runs.get(name, ()), *newest[name]]
            for name, source in self._flow.sources().items()
            if source.interleaved
        }

    def _tables(self) -> dict[str, pa.Table]:
        contexts = self._topology.contexts
        return {
            name: pa.Table.from_batches(batches, schema=contexts[name].inputs[0].schema)
            for name, batches in self.written.items()
        }


def _slowed(plan: Plan, sources: Sequence[str]) -> Plan:
    """Return a plan under which some sources have one claim under way at a time."""
    for source in sources:
        plan = plan.with_source(source, in_flight_limit=1)
    return plan


class _Counted(SinkOutflow):
    """Counts rows by epoch."""

    rows_of: Counter[int]

    def write(self, jumbo: Jumbo, born_s: float | None) -> None:
        super().write(jumbo, born_s)
        self.rows_of[self._epoch] += len(jumbo)


def _first_rows(batches: Sequence[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    """Return the batches of the first rows; no batch has rows of several epochs."""
    found: list[pa.RecordBatch] = []
    for batch in batches:
        if rows <= 0:
            break
        found.append(batch)
        rows -= batch.num_rows
    assert rows == 0, "rows of a version that was saved are not in order, or not all written"
    return found


class _Tapped:
    """Passes the calls of kernels on."""

    def __init__(self, tap: Tap) -> None:
        self.tap = tap

    def begin(self) -> None:
        """Measure nothing."""

    def read(self, jumbo: Jumbo | None) -> None:
        """Count nothing."""
