"""The interleaved run: one thread executes a plan step by step, in an order drawn from a seed.

Replicas, pipelines, bounded queues, gates, epoch switches and checkpoints are the real ones; only
the scheduler is not: it picks the next thing that could happen. So every bug of concurrency is a
seed that shows it again. Barriers placed in the sources part the epochs; as each passes a region,
state is snapshot and handed over; a crash forgets everything but the last complete checkpoint.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pyarrow as pa

from anabranch.engines.channel import Channel, Snapshot, hand_over
from anabranch.errors import BuildError, StateError, Subject
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.reader import Offsets, SourceReader
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.planning.regions import RegionKind, needs_order, region_edges, regions
from anabranch.state.epochs import Epochs
from anabranch.state.gate import Gate
from anabranch.state.positions import is_end
from anabranch.testing.region_run import (
    InterleavedOutlet,
    InterleavedRegion,
    LinkName,
    Links,
    ReplicaRun,
)
from anabranch.testing.result import RunResult, Tap

CAPACITIES = (1, 2, 8, 1_000_000)
STEP_LIMIT = 2_000_000


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
        seed: Decides every choice: who runs next, batch sizes, moments of change and of crash.
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
    return _Interleaved(flow, start, Random(seed), list(changes), crashes, max_batch, tap).run()


@dataclass
class _Checkpoint:
    """What survives a crash: the epoch to go on with, and everybody's state at its start."""

    epoch: int
    plan: Plan
    offsets: dict[str, Offsets] = field(default_factory=dict)
    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    leftovers: dict[str, bytes] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    counters: dict[str, Counters] = field(default_factory=dict)

    def complete(self, sources: int, found: int) -> bool:
        return len(self.offsets) == sources and len(self.leftovers) == found - sources


class _SourceRun:
    """The readers of one source in one epoch."""

    def __init__(
        self, name: str, epoch: int, readers: list[SourceReader], outlets: list[InterleavedOutlet]
    ):
        self.name, self.epoch, self.readers, self.outlets = name, epoch, readers, outlets

    @property
    def over(self) -> bool:
        return all(r.ended for r in self.readers)

    def offsets(self) -> Offsets:
        return {part: row for reader in self.readers for part, row in reader.offsets.items()}


class _Interleaved:
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
        self.flow, self.rng, self.tap, self.max_batch = flow, rng, tap, max_batch
        self.contexts = flow.contexts()
        self.found = {r.name: r for r in regions(flow)}
        self.edges = region_edges(flow, tuple(self.found.values()))
        self.ordered = {name: needs_order(flow, region) for name, region in self.found.items()}
        self.source_ranks = {n: rank for rank, n in enumerate(flow.names(Role.SOURCE))}
        for name in self.source_ranks:
            if not flow.sources()[name].bounded:
                raise BuildError(
                    name,
                    "a bounded source",
                    "an endless one",
                    "give it a number of rows, e.g. generate(…, rows=1000)",
                )
        self.changes, self.crashes = changes, crashes
        self.written: dict[str, list[pa.RecordBatch]] = {n: [] for n in flow.names(Role.SINK)}
        self.events: list[str] = []
        self.saved = _Checkpoint(0, plan)
        self._restore()

    def run(self) -> RunResult:
        for _ in range(STEP_LIMIT):
            if self.crashes and self.rng.random() < 0.02:
                self.crashes -= 1
                self.events.append(f"crash; going on from epoch {self.saved.epoch}")
                self._restore()
            if self.rng.random() < 0.05:
                self._ask_for_switch()
            if not self._one_step():
                break
        self._check_end()
        return RunResult(self._tables(), self._counters(), self.events)

    # --- scheduling ---------------------------------------------------------------------------

    def _one_step(self) -> bool:
        """Let one of those who could do something now do it; False when nobody can.

        They are asked in an order of chance until one has something to do: to ask all of them at
        every step would take longer than what they do.
        """
        replicas = (replica for run in self.active.values() for replica in run.replicas)
        everyone: list[_SourceRun | ReplicaRun] = [*self.sources.values(), *replicas]
        while everyone:
            one = everyone.pop(self.rng.randrange(len(everyone)))
            choices = self._reads(one) if isinstance(one, _SourceRun) else self._works(one)
            if choices:
                self.rng.choice(choices)()
                return True
        return False

    def _reads(self, source: _SourceRun) -> list[Callable[[], None]]:
        """What a source could do now."""
        reads: list[Callable[[], None]] = [
            partial(self._read, source, number)
            for number, reader in enumerate(source.readers)
            if not reader.ended and source.outlets[number].has_room()
        ]
        if source.epoch < self.epochs.newest:
            reads.append(partial(self._switch_source, source))
        return reads

    def _works(self, replica: ReplicaRun) -> list[Callable[[], None]]:
        """What a replica could do now."""
        return [
            *(partial(replica.take, name) for name in replica.intakes()),
            *(partial(self._work, replica, pipeline) for pipeline in replica.workable()),
        ]

    def _read(self, source: _SourceRun, number: int) -> None:
        jumbo, frontier = source.readers[number].read(self.rng.randint(1, self.max_batch))
        source.outlets[number].send([jumbo], [frontier], self.rng)

    def _work(self, replica: ReplicaRun, pipeline: int) -> None:
        replica.work(pipeline, self.rng, self.tap)
        if replica.emitted:
            self.written[replica.channel.region.name] += [j.batch for j in replica.emitted]
            replica.emitted = []
        run = self.active[replica.channel.region.name]
        if run.done:
            self._switch_region(run)

    # --- epochs -------------------------------------------------------------------------------

    def _ask_for_switch(self) -> None:
        """Ask for the next plan, or for a checkpoint under the same one."""
        if all(s.over for s in self.sources.values()):
            return
        if self.changes and self.rng.random() < 0.7:
            self.epochs.request(self.changes.pop(0))
        settled = all(s.epoch == self.epochs.newest for s in self.sources.values())
        if settled and self.rng.random() < 0.7:
            old = self.epochs.plan(self.epochs.newest)
            epoch = self.epochs.begin()
            self.pending[epoch] = _Checkpoint(epoch, self.epochs.plan(epoch))
            self.events.append(f"epoch {epoch}: {'; '.join(old.diff(self.epochs.plan(epoch)))}")

    def _switch_source(self, source: _SourceRun) -> None:
        for outlet in source.outlets:
            outlet.send_barrier()
        epoch = source.epoch + 1
        self.pending[epoch].offsets[source.name] = dict(source.offsets())
        self.sources[source.name] = self._source_run(source.name, epoch, source.offsets())
        self._complete(epoch)

    def _switch_region(self, old: InterleavedRegion) -> None:
        """The barrier has passed: save the state, then hand it over to the next epoch."""
        epoch, name = old.epoch + 1, old.region.name
        checkpoint = self.pending[epoch]
        channels = [r.channel for r in old.replicas]
        leftover = old.leftover()
        checkpoint.snapshots[name] = [c.snapshot() for c in channels]
        checkpoint.leftovers[name] = pickle.dumps(leftover)
        if name in self.written:
            checkpoint.written[name] = len(self.written[name])
        self._count(old)
        for step in old.region.steps:
            checkpoint.counters[step] = replace(self.counted.get(step, Counters()))
        new = self._region_run(name, epoch)
        hand_over(channels, [r.channel for r in new.replicas])
        new.preload(leftover)
        self.active[name] = new
        self._complete(epoch)

    def _complete(self, epoch: int) -> None:
        if self.pending[epoch].complete(len(self.sources), len(self.found)):
            self.saved = self.pending.pop(epoch)
            self.epochs.forget(before=epoch)

    # --- building and restoring ----------------------------------------------------------------

    def _restore(self) -> None:
        """Forget everything and go on from the last complete checkpoint."""
        saved = self.saved
        self.epochs: Epochs[Plan] = Epochs(saved.plan, saved.epoch)
        self.links = Links(self.rng.choice(CAPACITIES))
        self.pending: dict[int, _Checkpoint] = {}
        for sink, batches in self.written.items():
            del batches[saved.written.get(sink, 0) :]
        self.counted = {s: replace(lost) for s, lost in saved.counters.items()}
        self.sources = {
            name: self._source_run(name, saved.epoch, saved.offsets.get(name, {}))
            for name in self.source_ranks
        }
        self.active: dict[str, InterleavedRegion] = {}
        for name, region in self.found.items():
            if region.kind is RegionKind.SOURCE:
                continue
            run = self.active[name] = self._region_run(name, saved.epoch)
            for replica in run.replicas:
                for snapshot in saved.snapshots.get(name, []):
                    replica.channel.restore(snapshot)
            if name in saved.leftovers:
                run.preload(pickle.loads(saved.leftovers[name]))

    def _source_run(self, name: str, epoch: int, offsets: Offsets) -> _SourceRun:
        plan = self.epochs.plan(epoch)
        shares = plan.source(name).replicas
        source = self.flow.sources()[name]
        rank = self.source_ranks[name]
        readers = [
            SourceReader(source, rank, share=i, shares=shares, offsets=offsets)
            for i in range(shares)
        ]
        return _SourceRun(
            name, epoch, readers, [self._outlet(name, epoch, i) for i in range(shares)]
        )

    def _region_run(self, name: str, epoch: int) -> InterleavedRegion:
        plan = self.epochs.plan(epoch)
        region, own = self.found[name], plan.region(name)
        ports = len(self.flow.graph.steps[region.steps[0]].inputs)
        replicas = []
        for replica in range(own.replicas):
            incoming = [
                (LinkName(edge.number, epoch, producer, replica), edge.in_port)
                for edge in self.edges
                if edge.consumer == name
                for producer in range(self._replicas(edge.producer, plan))
            ]
            channel = Channel(self.flow, self.contexts, region, own, replica)
            outlet = self._outlet(name, epoch, replica)
            gate = Gate(ports, ordered=self.ordered[name])
            replicas.append(ReplicaRun(channel, gate, incoming, self.links, outlet))
        return InterleavedRegion(region, own, epoch, replicas)

    def _outlet(self, name: str, epoch: int, replica: int) -> InterleavedOutlet:
        edges = [edge for edge in self.edges if edge.producer == name]
        return InterleavedOutlet(
            edges, self.found, self.epochs.plan(epoch), epoch, replica, self.links
        )

    def _replicas(self, name: str, plan: Plan) -> int:
        if self.found[name].kind is RegionKind.SOURCE:
            return plan.source(name).replicas
        return plan.region(name).replicas

    # --- results --------------------------------------------------------------------------------

    def _count(self, run: InterleavedRegion) -> None:
        for replica in run.replicas:
            for step, kernel in replica.channel.kernels.items():
                self.counted.setdefault(step, Counters()).add(kernel.context.counters)

    def _counters(self) -> dict[str, Counters]:
        for run in self.active.values():
            self._count(run)
        return {n: self.counted.get(n, Counters()) for n in self.flow.names(Role.OPERATOR)}

    def _tables(self) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_batches(batches, schema=self.contexts[name].inputs[0].schema)
            for name, batches in self.written.items()
        }

    def _check_end(self) -> None:
        for name in self.written:
            for replica in self.active[name].replicas:
                if not is_end(replica.gate.frontier) or replica.gate.has_news():
                    raise StateError(
                        Subject("run", name),
                        "the end of the stream at every sink",
                        "a standstill",
                        "report this seed: the run could not go on",
                    )
