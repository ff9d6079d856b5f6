"""A session: the coordinator, the host at home and the workers, from a start until an end.

A session belongs to one thread, which calls `turn` again and again. A run without failures has one
session; when a worker dies, a run with a checkpoint goes on from its last version in a further one.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from threading import Event

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.identity import require_same_parts
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sinks import OutboxStage, Sinks
from anabranch.engines.checkpoint.state_files import Chain
from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.latency import Latencies
from anabranch.engines.local.crew import WorkerProcess, shared_crew
from anabranch.engines.local.forwarding import Logged, Printed, show
from anabranch.engines.local.loop import (
    Broadcast,
    Close,
    Closed,
    Durable,
    LocalJob,
    Ping,
    Pong,
    Ready,
    Steps,
    work,
)
from anabranch.engines.local.mesh import Lost, Mesh
from anabranch.engines.local.meter import Measured
from anabranch.engines.local.profiler import Profiler
from anabranch.engines.local.site import LocalSite
from anabranch.engines.local.status_page import NO_STEP
from anabranch.engines.local.versions import next_chain
from anabranch.engines.local.worker import Failed
from anabranch.errors import EngineError, Subject
from anabranch.flow import Flow
from anabranch.io.sink import Stage
from anabranch.io.staged import MemoryStage
from anabranch.io.two_phase_commit import NEWEST
from anabranch.operators.base import Counters
from anabranch.planning.plan import Plan
from anabranch.runtime.coordinator import Coordinator, Passage
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.runtime.messages import (
    HOME,
    Acks,
    Done,
    Finished,
    Handover,
    Message,
    Report,
    Survey,
)
from anabranch.runtime.sink_order import Prepared, Segment, SinkOrder

TICK_S = 0.05
"""The longest that a turn waits."""
QUIET_S = 0.05
"""How long nothing is reported before workers are asked whether they are idle."""
LOOK_S = 1.0
"""How often it is checked that no worker has died."""
END_S = 10.0
"""How long workers have to end."""
CLEAN_EVERY = 8


class WorkerLost(EngineError):
    """A worker process has died."""


class Session:
    """One attempt to run a flow.

    Args:
        flow: The application.
        plan: The plan to begin with.
        workers: The number of worker processes; None leaves it to the plan.
        limit: Rows to read of each source at most.
        checkpoint: Where versions are saved.
        profile: Whether to measure.
        latencies: Takes how long rows took.
    """

    def __init__(
        self,
        flow: Flow,
        plan: Plan,
        workers: int | None,
        limit: int | None,
        checkpoint: Checkpoint | None,
        latencies: Latencies,
        *,
        profile: bool = True,
    ) -> None:
        self._flow, self._given, self._checkpoint = flow, workers, checkpoint
        self._topology = Topology(flow)
        self._latencies = latencies
        last = None if checkpoint is None else checkpoint.last
        durable = None
        if checkpoint is not None:
            durable = Durable(checkpoint.storage, checkpoint.token, last)
        self._job = LocalJob(flow, durable, profile)
        self._workers: list[WorkerProcess] = []
        self._starting: set[int] = set()  # workers that are not ready yet
        self._requested: Plan | None = None  # waits for them
        self._mesh: Mesh | None = None
        self._woken = Event()
        self.coordinator = Coordinator(
            self._topology,
            plan,
            self._wanted(plan),
            limit=limit,
            now_s=time.monotonic(),
            offsets=None if last is None else last.offsets,
            counters=None if last is None else _counters(last),
        )
        self._stage: Stage = MemoryStage()
        self._sinks: Sinks | None = None
        schemas = {name: self._topology.contexts[name].inputs[0].schema for name in flow.sinks()}
        self._schemas = schemas
        if checkpoint is not None:
            self._sinks = Sinks(flow.sinks(), schemas, checkpoint.storage)
            self._stage = OutboxStage(checkpoint.storage)
        self._site = LocalSite(
            self._topology,
            self._stage,
            None if durable is None else durable.for_units(),
            self._show,
            Steps(flow, None).enter,
            profile=profile,
        )
        self._home = Host(HOME, self._topology, self._site)
        self.profiler = Profiler(self._topology, self.coordinator, latencies)
        self.rows_shown = 0
        self._shown: Counter[str] = Counter()  # by sink, the version that is visible
        self._orders = {name: SinkOrder() for name in flow.sinks()}
        self._closed: set[int] = set()
        self._pings = 0
        self._pongs: dict[int, Pong] = {}
        self._last_pongs: dict[int, Pong] = {}
        self._asked_s: float | None = None
        self._reported_s = self._looked_s = time.monotonic()
        self._unsaved = False
        self._chain: Chain = ()
        self._surveying = False
        self.passed: list[Passage] = []

    # Starting

    def start(self) -> None:
        """Open the sinks, bring back what was saved, and let everybody work."""
        if self._checkpoint is None:
            for name, sink in self._flow.sinks().items():
                sink.open(self._schemas[name])
                # Nobody keeps receipts without a checkpoint: what was prepared before is lost.
                sink.sweep(NEWEST)
        else:
            last = self._checkpoint.last
            ended = last is not None and last.ended
            require_same_parts(self._checkpoint.storage, self._flow.sources(), ended=ended)
            self._checkpoint.require_newest()
            assert self._sinks is not None
            self._sinks.open(last)
        self._hire(self._wanted(self.coordinator.plan))
        self._post(self.coordinator.take_outbox())

    def _wanted(self, plan: Plan) -> int:
        """Return how many workers a plan needs, or as many of them as are given."""
        given = self._given
        cores, most = len(usable_cpus()) if given is None else given, 1
        for region in plan.regions:
            units = region.replicas * len(region.pipelines)
            spread = min(units, max(cores, region.replicas))
            most = max(most, spread, *(worker + 1 for worker in region.workers))
        for source in plan.sources:
            most = max(most, source.replicas, *(worker + 1 for worker in source.workers))
        return most if given is None else min(most, given)

    def _hire(self, count: int) -> None:
        """Have so many workers, connected and at work."""
        missing = count - len(self._workers)
        if missing <= 0:
            return
        crew = shared_crew()
        new = crew.take(missing)
        self._workers += new
        if self._mesh is None:
            self._mesh = Mesh(HOME)
        steps = {name: step.body for name, step in self._flow.graph.steps.items()}
        known = set(self._mesh.peers)
        try:
            numbers = crew.extend(self._mesh, new)
            self._starting.update(numbers)
            crew.run(self._mesh, work, self._job, steps=steps, to=numbers)
        except BaseException:
            # Without a job they have nothing to end.
            self._closed.update(set(self._mesh.peers) - known)
            raise

    # Requests

    def wake(self) -> None:
        """Let a turn that waits in another thread go on."""
        self._woken.set()
        if (mesh := self._mesh) is not None:  # the session may end meanwhile
            mesh.wake()

    def request(self, plan: Plan) -> None:
        """Ask for another plan; with a checkpoint a version is saved before it.

        Its epoch does not begin before the workers that it needs are ready: tuples would wait for
        processes that still import their modules.
        """
        self._hire(self._wanted(plan))
        self._requested = plan
        self._begin_when_ready()

    def _begin_when_ready(self) -> None:
        plan = self._requested
        if plan is None or self._starting:
            return
        self._requested = None
        self.coordinator.widen(self._wanted(plan))
        self.coordinator.request(plan)
        if self._checkpoint is not None:
            self.coordinator.save()

    def save(self) -> None:
        """Ask for a version, or without a checkpoint only for everything to be finished."""
        if self._checkpoint is None:
            self.coordinator.request(self.coordinator.plan)
        else:
            self.coordinator.save()

    @property
    def unsaved(self) -> bool:
        """Return whether anything happened since the last version."""
        return self._unsaved

    # Turning

    def turn(self, wait_s: float) -> None:
        """Let what can happen here happen; wait for messages if that is nothing."""
        runnable = self._home.runnable()
        if runnable:
            self._site.run(self._home, runnable[0])
            self._settle()
            wait_s = 0.0
        for outflow in self._site.outflows.values():
            outflow.show_if_due()
        now_s = time.monotonic()
        wake_s = self.coordinator.wake_s(now_s)
        if wake_s is not None:
            wait_s = min(wait_s, max(0.0, wake_s - now_s))
        self._receive(wait_s)
        self._tick()

    def _tick(self) -> None:
        now_s = time.monotonic()
        passage = self.coordinator.tick(now_s)
        self._post(self.coordinator.take_outbox())
        self._settle()
        if passage is not None:
            if passage.saves:
                self._publish(passage)
            self.passed.append(passage)
        self._look_for_standstill(now_s)
        self._look_for_the_dead(now_s)

    def _settle(self) -> None:
        """Carry away what the host at home has sent."""
        while messages := self._home.take_outbox():
            self._post(messages)

    def _post(self, messages: Sequence[tuple[int, Message]]) -> None:
        for host, message in messages:
            if isinstance(message, Report):
                self._report(message)
            elif host == HOME:
                self._home.receive(message)
            else:
                assert self._mesh is not None
                self._mesh.send(host, message, by_value=isinstance(message, Handover))

    def _receive(self, wait_s: float) -> None:
        if self._mesh is None:
            if wait_s:
                self._woken.wait(wait_s)
            self._woken.clear()
            return
        messages = deque(self._mesh.poll(wait_s))
        try:
            while messages:
                self._take(*messages.popleft())
        finally:
            self._mesh.put_back(messages)  # what comes after an error is for `close`
        self._settle()

    def _take(self, sender: int, message: object) -> None:
        if isinstance(message, Report):
            self._report(message)
        elif isinstance(message, Measured):
            self.profiler.note(sender, message)
        elif isinstance(message, Printed | Logged):
            show(message)
        elif isinstance(message, Prepared):
            self._show(message)
        elif isinstance(message, Pong):
            if message.number == self._pings:
                self._pongs[sender] = message
        elif isinstance(message, Failed):
            self._closed.add(sender)
            message.error.add_note(f"in worker {sender}:\n{message.traceback}")
            raise message.error
        elif isinstance(message, Lost):
            if message.number not in self._closed:
                raise self._lost(message.number)
        elif isinstance(message, Closed):
            self._closed.add(sender)
        elif isinstance(message, Broadcast):
            for delivery in message.for_host(HOME):
                self._home.receive(delivery)
        elif isinstance(message, Ready):
            self._starting.discard(sender)
            self._begin_when_ready()
        else:
            self._home.receive(message)  # type: ignore[arg-type]

    def _report(self, message: Report) -> None:
        now_s = time.monotonic()
        if self._is_progress(message):
            self._reported_s, self._asked_s, self._last_pongs = now_s, None, {}
        self._unsaved = True
        if isinstance(message, Done):
            self.profiler.forget_counters(message.unit)
        self.coordinator.receive(message, now_s)
        if isinstance(message, Finished) and self._checkpoint is None:  # nothing is read again
            source = self.coordinator.sources[message.reader.region]
            source.forget_runs()
            source.forget_arrivals()

    def _is_progress(self, message: Report) -> bool:
        """Return whether a report shows that sources that are held up may go on by themselves.

        Another source that has a row now and then does not count.
        """
        if isinstance(message, Acks):
            names = {chunk.source for chunk in message.changes}
        elif isinstance(message, Finished):
            names = {message.reader.region}
        else:
            return True
        return any(self.coordinator.sources[name].held_up for name in names)

    def _look_for_the_dead(self, now_s: float) -> None:
        """Notice dead workers whose connections are still open, in processes that steps forked."""
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            for number in self._dead():
                raise self._lost(number)

    def _dead(self) -> list[int]:
        """Return the workers that have died and not ended before."""
        return [
            number
            for number, worker in enumerate(self._workers, 1)
            if number not in self._closed and worker.returncode is not None
        ]

    def _lost(self, number: int) -> WorkerLost:
        worker = self._workers[number - 1]
        step = self._step_of(worker)
        return WorkerLost(
            Subject("engine", f"local, worker {number}") if step is None else step,
            "a worker process that works until the run ends",
            f"worker {number} (process {worker.pid}) {worker.describe_exit()}",
            "run with a checkpoint, which lets a run go on from its last version; a worker that is "
            "killed by SIGKILL may have used too much memory",
        )

    def _step_of(self, worker: WorkerProcess) -> str | None:
        number = worker.status.step
        return None if number == NO_STEP else list(self._flow.graph.steps)[number]

    # Standstills, and whether all is done

    def _look_for_standstill(self, now_s: float) -> None:
        """Let sources give out more when everybody waits for rows that nobody may read."""
        if not self.coordinator.held_up or now_s - self._reported_s < QUIET_S:
            return
        if self._idle(now_s):
            self.coordinator.relax()
            self._asked_s = None
            self._last_pongs = {}

    def _idle(self, now_s: float) -> bool:
        """Return whether nobody has anything to do: asked twice, with nothing sent in between."""
        if self._home.runnable():
            return False
        if self._mesh is None:
            return True
        if self._asked_s is None:
            self._ask(now_s)
            return False
        if len(self._pongs) < len(self._workers):
            return False
        pongs = list(self._pongs.values())
        quiet = all(pong.idle for pong in pongs) and not _under_way(pongs)
        counts = {n: (pong.sent, pong.received) for n, pong in self._pongs.items()}
        before = {n: (pong.sent, pong.received) for n, pong in self._last_pongs.items()}
        self._last_pongs = dict(self._pongs)
        if quiet and counts == before:
            return True
        self._ask(now_s)
        return False

    def _ask(self, now_s: float) -> None:
        assert self._mesh is not None
        self._pings += 1
        self._pongs = {}
        self._asked_s = now_s
        self._mesh.send_all(self._mesh.peers, Ping(self._pings))

    def caught_up(self) -> bool | None:
        """Return whether all that could be read is visible; None while that is being found out."""
        sources = self.coordinator.sources.values()
        now_s = time.monotonic()
        for source in sources:
            source.pause(now_s)
        if not self._surveying:
            self._surveying = True
            self._ask_sources([survey for source in sources for survey in source.survey_all()])
            return None
        if any(source.asking for source in sources):
            return None
        if not all(source.is_read(now_s) for source in sources):
            self._surveying = False
            return False
        if not self._idle(now_s):
            return None
        self._surveying = False
        self._asked_s = None
        pongs = self._last_pongs.values()
        holds = self._home.holds_back() or any(pong.holds_back for pong in pongs)
        later = self._site.shows_later() or any(pong.shows_later for pong in pongs)
        later = later or any(order.held() for order in self._orders.values())
        return not (holds or later or self.coordinator.passing)

    def survey(self) -> None:
        """Ask the sources how much waits to be read."""
        if not (self.coordinator.wants_epoch or self.coordinator.passing):
            sources = self.coordinator.sources.values()
            self._ask_sources([survey for each in sources for survey in each.survey_backlog()])

    def _ask_sources(self, surveys: Sequence[Survey]) -> None:
        units = self.coordinator.layout.units
        self._post([(units[survey.reader], survey) for survey in surveys])
        self._settle()

    # Sinks and versions

    def _show(self, prepared: Prepared) -> None:
        """Make rows visible that no others can precede, in a run without a checkpoint."""
        name = prepared.sink
        ready = self._orders[name].take(prepared)
        if not ready:
            return
        self._shown[name] += 1
        receipts = [segment.receipt for segment in ready]
        self._flow.sinks()[name].commit(self._shown[name], receipts, self._stage)
        self._stage.discard(receipts)
        self._note_shown(ready)

    def _note_shown(self, segments: Sequence[Segment]) -> None:
        now_s = time.monotonic()
        ages = [age for segment in segments for age in segment.ages]
        self.rows_shown += sum(rows for _, rows in ages)
        self._latencies.note([((now_s - born_s) * 1000, rows) for born_s, rows in ages])

    def _publish(self, passage: Passage) -> None:
        """Publish a version: everything of an epoch is saved."""
        checkpoint, sinks = self._checkpoint, self._sinks
        assert checkpoint is not None
        assert sinks is not None
        written: dict[str, list[Segment]] = defaultdict(list)
        files = []
        for unit, each in passage.saved.items():
            files += each.files
            if each.segments:
                written[unit.region] += each.segments
        for segments in written.values():
            segments.sort(key=lambda segment: segment.receipt.place)
        receipts = {s: tuple(each.receipt for each in written[s]) for s in written}
        last = checkpoint.last
        with sinks.aborting(receipts):
            manifest = Manifest(
                0 if last is None else last.version + 1,
                checkpoint.token,
                passage.plan.to_json(),
                offsets=passage.offsets,
                state=next_chain(self._chain, files, passage.before),
                sinks=receipts,
                counters={s: c.counts() for s, c in self.coordinator.counters.items()},
                ended=passage.ended,
            )
        # After this the manifest may be there even if it raises: nothing is aborted any more.
        checkpoint.publish(manifest)
        self._chain = manifest.state
        sinks.commit(manifest, checkpoint.require_owned)
        for segments in written.values():
            self._note_shown(segments)
        for name, source in self.coordinator.sources.items():
            source.note_saved(passage.offsets[name])
            source.forget_arrivals()
        sinks.clean(manifest)
        if manifest.version % CLEAN_EVERY == 0 or passage.ended:
            checkpoint.clean()
            sinks.sweep(manifest)
        self._unsaved = False

    # Observing

    def measure_home(self) -> None:
        """Note what the host at home has done."""
        self.profiler.note(HOME, self._site.measured(self._home))

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read, and tuples that have come to sinks, in this session."""
        read = sum(source.rows_read for source in self.coordinator.sources.values())
        return read, self.profiler.rows_written(self._site.rows_written())

    # Ending

    def close(self, *, show_rest: bool) -> None:
        """End the workers; what sinks have is shown, or it is gone."""
        with ExitStack() as closing:
            closing.callback(self._close_sinks)
            closing.callback(self._site.abort)
            closing.callback(self._abort_held)
            closing.callback(self._dismiss, show_rest)
            if show_rest:
                for outflow in self._site.outflows.values():
                    outflow.show()

    def _abort_held(self) -> None:
        """Remove rows that wait for others which will not come."""
        for name, order in self._orders.items():
            if held := order.held():
                receipts = [segment.receipt for segment in held]
                self._flow.sinks()[name].abort(receipts, self._stage)

    def _close_sinks(self) -> None:
        if self._sinks is not None:
            self._sinks.close()
            return
        with ExitStack() as closing:
            for sink in reversed(list(self._flow.sinks().values())):
                closing.callback(sink.close)

    def _dismiss(self, show_rest: bool) -> None:
        """Let the workers report for the last time; kill those that do not end."""
        if self._mesh is None:
            return
        mesh = self._mesh
        try:
            for number in self._starting:  # they have no rows, and still import their modules
                self._workers[number - 1].end()
            self._closed |= self._starting
            expected = set(mesh.peers)
            mesh.send_all(mesh.peers, Close(show_rest))
            until_s = time.monotonic() + END_S
            while expected - self._closed and time.monotonic() < until_s:
                dead: list[tuple[int, object]] = [(n, Lost(n)) for n in self._dead()]
                for sender, message in mesh.poll(TICK_S) + dead:
                    if isinstance(message, Lost):
                        expected.discard(message.number)
                        shows = show_rest and self._checkpoint is None
                        if shows and message.number not in self._closed:
                            raise self._lost(message.number)  # with rows that were not shown
                    elif isinstance(message, Failed) and not show_rest:
                        self._closed.add(sender)  # the run has failed already
                    elif isinstance(message, Printed | Logged | Measured | Closed) or (
                        show_rest and isinstance(message, Prepared | Failed)
                    ):
                        self._take(sender, message)
            if stuck := sorted(expected - self._closed):
                for number in stuck:  # it would be given more time to become idle
                    self._workers[number - 1].end()
                raise self._stuck(stuck)
        finally:
            mesh.close()
            self._mesh = None
            shared_crew().give_back(self._workers)

    def _stuck(self, numbers: Sequence[int]) -> EngineError:
        workers = [self._workers[number - 1] for number in numbers]
        steps = [step for step in map(self._step_of, workers) if step is not None]
        return EngineError(
            steps[0] if steps else Subject("flow", self._flow.name),
            f"every worker to end within {END_S:.0f} s",
            f"{len(workers)} still at work",
            "let the functions of this step return; its process was killed",
        )

    def abandon(self) -> None:
        """End a session that has failed, without a further error."""
        with suppress(Exception):
            self.close(show_rest=False)


def _under_way(pongs: Sequence[Pong]) -> bool:
    return sum(pong.sent for pong in pongs) != sum(pong.received for pong in pongs)


def _counters(last: Manifest) -> dict[str, Counters]:
    return {step: Counters.of(counts) for step, counts in last.counters.items()}
