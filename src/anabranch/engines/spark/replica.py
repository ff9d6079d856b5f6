"""One replica at work in a task: gate, channel, pipelines as threads, and where results go.

A replica that restores order waits until all of the batch is there; the others work on what comes.
Results go to replicas of the same task, or into the outbox, dealt out by the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from queue import Queue
from threading import Lock, Thread
from typing import Any, cast
from zlib import crc32

import numpy as np

from anabranch.engines.spark.layout import Link, RegionStage, StageLayout
from anabranch.engines.spark.meter import StepMeter
from anabranch.engines.spark.shuffle_rows import Outbox
from anabranch.engines.spark.task_inputs import RUN_ROWS, Batch, Program
from anabranch.engines.spark.task_report import StepWork
from anabranch.operators.base import Kernel
from anabranch.operators.timed import Facts, TimedKernel
from anabranch.planning.regions import Region, RegionKind
from anabranch.runtime.bucket_loads import BucketLoads, Loads
from anabranch.runtime.channel import Channel
from anabranch.runtime.early_verdicts import EarlyClock, Verdicts
from anabranch.runtime.gate import Gate
from anabranch.runtime.routing import Router
from anabranch.state.positions import START, Jumbo, Root, meet

CHANGELOG_ROWS = 1 << 22
"""Changes are told once per call, so a step that tells changes gets as much at a time as it can."""
CONDENSE_ROWS = 1 << 20
QUEUE_JUMBOS = 4

Results = tuple[Sequence[Jumbo | None], Sequence[Root]]


class TaskReplica:
    """One replica of a region (or one reader of a source) in one batch.

    Args:
        program: The flow.
        batch: The batch.
        layout: Its stages and tasks.
        station: Where the replicas of the region run.
        replica: Its number.
        task: By region, the replicas of its task; those upstream are there already.
        outbox: Takes what goes to other tasks.
    """

    def __init__(
        self,
        program: Program,
        batch: Batch,
        layout: StageLayout,
        station: RegionStage,
        replica: int,
        task: Mapping[str, TaskReplica],
        outbox: Outbox,
    ) -> None:
        self.program, self.station, self.replica = program, station, replica
        self.region = station.region
        self._layout, self._task, self._outbox = layout, task, outbox
        self._entering = self._layout.into(self.region.name)
        self._entry: Facts | None = None  # replica 0 of a clock has its memory
        if station.judges_slices and replica > 0:
            self._entry = batch.entries[self.region.name][replica]
        self.verdicts: Verdicts | None = None
        self.ordered = program.ordered[self.region.name]
        self.steady = self.ordered or self._comes_in_one_order()
        self.channel: Channel | None = None
        self.gate = Gate(0)
        self.meters: list[StepMeter] = []
        self.sink_rows: list[Jumbo] = []
        if self.region.kind is not RegionKind.SOURCE:
            plan = batch.plan.region(self.region.name)
            ports = len(program.flow.graph.steps[self.region.steps[0]].inputs)
            self.channel = Channel(program.flow, program.contexts, self.region, plan, replica)
            self.gate = Gate(ports, ordered=self.ordered)
            self.meters = [StepMeter(steps) for steps in plan.pipelines]
        self._came: defaultdict[int, dict[int, Root]] = defaultdict(dict)  # by link and producer
        self._reached: list[Root] = [START] * self._out_ports()
        self._stays: list[Link] = []
        self._routes: list[tuple[Link, Router]] = []
        self._loads: dict[str, BucketLoads] = {}  # by region that results are dealt out to
        for link in self._layout.out_of(self.region.name):
            if link.local:
                self._stays.append(link)
            else:
                dealt_for = self._layout.dealt_for(link)
                loads = self._loads_of(dealt_for)
                router = Router(dealt_for, batch.plan.region(dealt_for.name), loads)
                self._routes.append((link, router))
        self._condenser = self._find_condenser()
        self._held: list[Jumbo] = []
        self._taking = Lock()  # threads of several producers may bring something
        self._pipes = Pipes(self._run_pipeline, len(self.meters), self._send)

    def take(self, link: Link, jumbo: Jumbo) -> None:
        """Something came in: it waits for the rest of the batch, or is worked on at once."""
        with self._taking:
            if self.ordered:
                self.gate.add(link.number, link.in_port, jumbo, START)
            else:
                # Without order nothing can be promised before all is there.
                inputs: list[Jumbo | None] = [None] * self._in_ports()
                inputs[link.in_port] = jumbo
                self._pipes.put(inputs, START)

    def arrive(self, link: Link, producer: int, frontier: Root) -> None:
        """A replica upstream has sent all, and reports how far it has come."""
        self._came[link.number][producer] = frontier

    def emit(self, jumbo: Jumbo | None, frontier: Root) -> None:
        """A source has read something."""
        self._send([jumbo], [frontier])

    def finish(self) -> None:
        """All input is there: work on what waited."""
        if self.channel is not None:
            passed = [self._passed(link) for link in self._entering]
            if self.station.judges_slices:
                self._judge_slices(self.channel, passed)
            elif self.ordered:
                for link, frontier in zip(self._entering, passed, strict=True):
                    self.gate.add(link.number, link.in_port, None, frontier)
                most = CHANGELOG_ROWS if self._tells_changes() else RUN_ROWS
                for inputs, reached in self.gate.runs(most):
                    self._pipes.put(inputs, reached)
            else:
                self._pipes.put([None] * self._in_ports(), meet(passed))
            self._pipes.close()
            self._condense(most=-1)

    def _judge_slices(self, channel: Channel, passed: Sequence[Root]) -> None:
        """Judge what this task has read; replica 0 by the memory of the clock."""
        [step], [link], [frontier], [meter] = channel.kernels, self._entering, passed, self.meters
        clock = EarlyClock(cast(TimedKernel, channel.kernels[step]), self._entry)
        self.gate.add(link.number, link.in_port, None, frontier)
        meter.start()
        if self.replica == 0:
            self._send(clock.let_go(), clock.reached(START))
        for inputs, reached in self.gate.runs(RUN_ROWS):
            outputs = [None, None] if inputs[0] is None else clock.judge(inputs[0])
            meter.tap(step, inputs, outputs)
            self._send(outputs, clock.reached(reached))
        waiting = self.gate.length()[0] > 0
        self.verdicts = clock.verdicts(frontier, waiting=waiting)

    def pass_on(self) -> None:
        """Tell the next ones how far this station has come."""
        for link, _ in self._routes:
            self._outbox.frontier(link, self.replica, self._reached[link.out_port])
        for link in self._stays:
            self._task[link.consumer].arrive(link, self.replica, self._reached[link.out_port])

    def abandon(self) -> None:
        """Stop the threads after an error elsewhere."""
        self._pipes.abandon()

    def steps(self) -> dict[str, StepWork]:
        """What each step did so far."""
        return {step: work for meter in self.meters for step, work in meter.work().items()}

    def busy_s(self) -> float:
        """How long its busiest pipeline has worked."""
        spent = [sum(seconds for _, _, seconds in m.steps.values()) for m in self.meters]
        return max(spent, default=0.0)

    def dealt(self) -> dict[str, Loads]:
        """By region that results went to, what its buckets got."""
        return {region: loads.look() for region, loads in self._loads.items()}

    def _comes_in_one_order(self) -> bool:
        """Return whether input comes in the same order in any attempt."""
        if self.region.kind is RegionKind.SOURCE:
            return True
        link, *others = self._entering
        return not others and link.local and self._task[link.producer].steady

    def _passed(self, link: Link) -> Root:
        """How far a link has come: as far as the slowest replica, or as the furthest slice."""
        came = list(self._came[link.number].values())
        if not came:
            raise RuntimeError(f"nothing came over link {link}, not even how far it is")
        return max(came) if self._layout.stations[link.producer].sliced else meet(came)

    def _loads_of(self, consumer: Region) -> BucketLoads | None:
        if consumer.kind is not RegionKind.PARTITIONED:
            return None
        made = BucketLoads(consumer.buckets, consumer.key)
        return self._loads.setdefault(consumer.name, made)

    def _run_pipeline(
        self, pipeline: int, inputs: Sequence[Jumbo | None], frontier: Root
    ) -> Results:
        if self.channel is None:
            raise RuntimeError("a source has no pipeline")
        meter = self.meters[pipeline]
        meter.start()
        return self.channel.run(pipeline, inputs, frontier, meter.tap)

    def _send(self, outputs: Sequence[Jumbo | None], reached: Sequence[Root]) -> None:
        """Hand on what came out; partial results wait for others that they can be merged with."""
        self._reached = list(reached)
        if self._condenser is None:
            self._hand_on(outputs)
            return
        self._held += [j for j in outputs[:1] if j is not None]
        if sum(map(len, self._held)) >= CONDENSE_ROWS:
            self._condense(most=CONDENSE_ROWS // 2)

    def _condense(self, most: int) -> None:
        """Merge what waits; more than `most` rows go on at once: merging again would not pay."""
        if self._condenser is None or not self._held:
            return
        marks = tuple(mark for jumbo in self._held for mark in jumbo.marks)
        merged = self._condenser.condense(self._held) if len(self._held) > 1 else self._held[0]
        self._held = [Jumbo(merged.batch, merged.positions, marks)]
        if len(merged) > most:
            self._hand_on(self._held)
            self._held = []

    def _hand_on(self, outputs: Sequence[Jumbo | None]) -> None:
        if self.region.kind is RegionKind.SINK:
            self.sink_rows += [j for j in outputs if j is not None and len(j)]
            return
        for link, router in self._routes:
            jumbo = outputs[link.out_port]
            turn = None if self.steady else _turn(jumbo)
            for replica, share in enumerate(router.route(jumbo, turn)):
                if share is not None:
                    self._outbox.jumbo(link, replica, share)
        for link in self._stays:
            if (stays := outputs[link.out_port]) is not None:
                self._task[link.consumer].take(link, stays)

    def _find_condenser(self) -> Kernel | None:
        if self.channel is None:
            return None
        last = self.channel.kernels[self.region.steps[-1]]
        return last if last.condenses else None

    def _tells_changes(self) -> bool:
        contexts = self.program.contexts
        return any(t.changelog is not None for s in self.region.steps for t in contexts[s].outputs)

    def _in_ports(self) -> int:
        return len(self.program.flow.graph.steps[self.region.steps[0]].inputs)

    def _out_ports(self) -> int:
        return len(self.program.body(self.region.steps[-1]).out_ports)


def _turn(jumbo: Jumbo | None) -> int:
    """Which replica gets this where any would do, whatever came before it.

    When a machine is lost, Spark runs its tasks again for those who have not read their results
    yet; each jumbo tuple must go where it went the first time, or it is lost or doubled.
    """
    if jumbo is None or not len(jumbo):
        return 0
    return crc32(np.array(jumbo.positions.slice(0, 1).rows()).tobytes())


class Pipes:
    """The pipelines of a replica: the first in the caller's thread, each other one in its own.

    Args:
        run: Runs a pipeline on inputs up to a frontier.
        pipelines: How many there are.
        send: Takes what the last one gives.
    """

    def __init__(
        self,
        run: Callable[[int, Sequence[Jumbo | None], Root], Results],
        pipelines: int,
        send: Callable[[Sequence[Jumbo | None], Sequence[Root]], None],
    ) -> None:
        self._run, self._send = run, send
        self._queues: list[Queue[Any]] = [Queue(QUEUE_JUMBOS) for _ in range(pipelines - 1)]
        self._threads: list[Thread] = []
        self._error: BaseException | None = None

    def put(self, inputs: Sequence[Jumbo | None], frontier: Root) -> None:
        """Work on something; the later pipelines may still be at it when this returns."""
        if not self._threads and self._queues:
            self._threads = [
                Thread(target=self._work, args=(number,), daemon=True)
                for number in range(1, len(self._queues) + 1)
            ]
            for thread in self._threads:
                thread.start()
        self._hand_on(0, *self._run(0, inputs, frontier))
        self._raise()

    def close(self) -> None:
        """Wait until all is done."""
        if self._threads:
            self._queues[0].put(None)
            for thread in self._threads:
                thread.join()
        self._threads = []
        self._raise()

    def abandon(self) -> None:
        """Let the threads end without more work."""
        if self._threads:
            self._error = self._error or RuntimeError("abandoned")
            self._queues[0].put(None)
            for thread in self._threads:
                thread.join()
            self._threads = []

    def _work(self, pipeline: int) -> None:
        queue = self._queues[pipeline - 1]
        while (item := queue.get()) is not None:
            if self._error is None:  # after an error the queue is only emptied
                try:
                    self._hand_on(pipeline, *self._run(pipeline, *item))
                except BaseException as error:
                    self._error = error
        if pipeline <= len(self._queues) - 1:
            self._queues[pipeline].put(None)

    def _hand_on(
        self, pipeline: int, outputs: Sequence[Jumbo | None], reached: Sequence[Root]
    ) -> None:
        if pipeline < len(self._queues):
            self._queues[pipeline].put(([outputs[0]], reached[0]))
        else:
            self._send(outputs, reached)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
