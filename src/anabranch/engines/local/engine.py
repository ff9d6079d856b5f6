"""The local engine: units of the plan on worker processes of this machine, or all in one thread.

`LocalEngine` drives a session: it takes requests for other plans up, saves versions, observes every
second, and ends the run when all sinks have processed the end, when it is stopped, or when it
fails. After the death of a worker, a run with a checkpoint goes on from its last version.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.cpu_topology import cpu_sockets, require_sockets, usable_cpus
from anabranch.engines.engine import CHANGES, Options, caller_waits
from anabranch.engines.latency import Latencies
from anabranch.engines.local import forwarding
from anabranch.engines.local.crew import is_exiting
from anabranch.engines.local.profiler import PERIOD_S
from anabranch.engines.local.session import END_S, TICK_S, Session, WorkerLost
from anabranch.engines.local.site import must_return
from anabranch.engines.process_memory import keep_freed_memory
from anabranch.errors import EngineError, Subject, in_words
from anabranch.events import (
    Decision,
    Event,
    Kind,
    Observed,
    Reconfiguration,
    RunEnded,
    RunStarted,
)
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.source import require_one_part
from anabranch.planning.flow_problem import FlowModel
from anabranch.planning.machine import Machine
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan
from anabranch.planning.regions import shape_of
from anabranch.planning.starting import one_of_everything
from anabranch.runtime.coordinator import Passage

DRAIN_S = 5.0
"""How long a run that is stopped may take to finish what is under way."""
SAVE_S = 1.0
"""How often a version is saved."""
RESTARTS = 3
"""A run goes on from its checkpoint so often in succession after the death of a worker."""
RECOVERED = 5
"""Versions after which deaths are counted anew: the run has passed what killed a worker."""
RECOVERY = "recovery"
"""Names the source of journal entries about runs that go on after the death of a worker."""
WORKERS = "ANABRANCH_WORKERS"
"""An environment variable: the number of workers where none is given."""

log = logging.getLogger(__name__)


class LocalEngine:
    """One run of one flow on this machine; see `Engine`.

    Args:
        flow: The application.
        plan: How to begin; one replica of everything when left out.
        options: The user's options.
        profile: Whether to observe; off only to measure what observing costs.
    """

    name = "local"

    def __init__(
        self, flow: Flow, plan: Plan | None, options: Options, *, profile: bool = True
    ) -> None:
        self._flow, self._options, self._profile = flow, options, profile
        self._given = plan
        self._plan = plan or Plan.sequential(flow)
        self._workers = _workers(options)
        self._inline = self._workers == 0 and caller_waits.get()
        self._places = cpu_sockets()
        self._lock = threading.Lock()
        self._requested: Plan | None = None
        self._begun: Plan | None = None  # requested, and not in force yet
        self._changes: deque[Reconfiguration] = deque(maxlen=CHANGES)
        self._stopping = self._ended = False
        self._session: Session | None = None
        self._checkpoint: Checkpoint | None = None
        self._driver: threading.Thread | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self.latencies = Latencies()  # of the whole run; benchmarks forget those of their warm-up
        self._started_s = self._ended_s = self._saved_s = self._drained_s = 0.0
        self._rows = (0, 0)
        self._rows_before = (0, 0)
        self._restarts = 0
        self._restarted_at = -1  # the version from which it went on last
        self._caught_up: bool | None = None
        self._asked_caught_up = False

    # For users

    @property
    def plan(self) -> Plan:
        """Return the plan in force."""
        return self._plan

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read and written so far."""
        return self._rows

    @property
    def seconds(self) -> float:
        """Return how long it has worked, up to its end."""
        return (self._ended_s or time.monotonic()) - self._started_s

    @property
    def cores(self) -> int:
        """Processors that this process may use."""
        return len(usable_cpus())

    def model(self) -> Model | None:
        """Return the model of plans on this engine."""
        machine = self._options.machine or Machine.of_cores(self.cores)
        return FlowModel(self._flow, machine, machine.overheads.get(self.name))

    def reconfigurations(self) -> list[Reconfiguration]:
        """Return the newest plan changes."""
        return list(self._changes)

    def latency_ms(self, share: float) -> float:
        """Return the latency that a share of the tuples did not exceed."""
        return self.latencies.percentile(share)

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin."""
        refuse_what_it_cannot(self._flow, self._options)
        keep_freed_memory()
        self._tell = tell
        self._open_checkpoint()
        require_sockets(self._plan, self._places)
        last = None if self._checkpoint is None else self._checkpoint.last
        self._ended = last is not None and last.ended
        version = -1 if last is None else last.version
        shape = shape_of(self._flow)
        session = self._session = self._new_session()
        try:
            session.start()
            self._started_s = self._saved_s = time.monotonic()
            self._tell(RunStarted(self._flow.name, self.name, self._plan.to_json(), version, shape))
        except BaseException:
            session.abandon()
            raise
        if not self._inline:
            name = f"{self._flow.name}-driver"
            self._driver = threading.Thread(target=self._drive, name=name, daemon=True)
            self._driver.start()

    def caught_up(self) -> bool | None:
        """Return whether all that could be read was read, processed, and is visible."""
        if self._driver is None:
            self._drive(TICK_S)
        with self._lock:
            answer, self._caught_up = self._caught_up, None
            self._asked_caught_up = answer is None
        self._wake()
        return bool(answer)

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan: it is in force from the next epoch on."""
        plan.validate(self._flow)
        require_sockets(plan, self._places)
        with self._lock:
            self._requested = plan
        self._wake()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; raises what ended the run, if that was an error."""
        if threading.current_thread() is self._driver:
            raise EngineError(
                Subject("flow", self._flow.name),
                "somebody outside of the run who waits for its end",
                "a listener or sink that waits for the end of its own run",
                "wait in the thread that has started the run; a listener may stop it",
            )
        if self._driver is None and not self._over.is_set():
            self._drive(timeout_s)
        ended = self._over.wait(timeout_s) if self._driver is not None else self._over.is_set()
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Read no more, finish what is under way, fire nothing; from inside, do not wait."""
        self._stopping = True
        self._wake()
        if threading.current_thread() is self._driver:
            return
        # A worker that does not end is killed; a step in a thread of this process cannot be.
        own_thread = self._workers == 0 and self._driver is not None
        if not self.wait(DRAIN_S + END_S if own_thread else None):
            raise EngineError(
                forwarding.current.step or Subject("flow", self._flow.name),
                f"a step that returns within {DRAIN_S + END_S:.0f} s",
                "one that is still at work",
                "let the functions of this step return; its thread was left behind",
            )

    def _wake(self) -> None:
        if self._session is not None:
            self._session.wake()

    # Starting

    def _open_checkpoint(self) -> None:
        """Open the checkpoint, if one is wanted; settles the plan to begin with."""
        last = None
        if self._options.checkpoint is not None:
            self._checkpoint = Checkpoint.open(self._options.checkpoint, self._flow)
            last = self._checkpoint.last
        if self._given is None:
            known = None if last is None else Plan.from_json(last.plan)
            self._plan = known or one_of_everything(self._flow)

    def _new_session(self) -> Session:
        return Session(
            self._flow,
            self._plan,
            self._workers,
            self._options.rows,
            self._checkpoint,
            self.latencies,
            profile=self._profile,
        )

    # Driving

    def _drive(self, timeout_s: float | None = None) -> None:
        """Drive the session until the run is over, or for some time."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._over.is_set():
            if until_s is not None and time.monotonic() >= until_s:
                return
            try:
                self._turn()
            except WorkerLost as error:
                self._go_on_after(error)
            except BaseException as error:
                self._fail(error)

    def _turn(self) -> None:
        session = self._session
        assert session is not None
        if not self._ended:
            session.turn(TICK_S)
            self._rows = self._counted(session)
            for passage in session.passed:
                self._note_passage(passage)
            session.passed.clear()
            self._observe_if_due(session)
        self._answer(session)
        if self._ended or (self._stopping and self._is_drained(session)):
            self._finish()
            return
        coordinator = session.coordinator
        if self._stopping:
            if not self._drained_s:
                self._drained_s = time.monotonic()
                coordinator.stop()
                session.save()
            return
        if coordinator.ended and not coordinator.passing:
            if self._checkpoint is None:
                self._ended = True
            elif not coordinator.wants_epoch:
                session.save()
            return
        self._take_requests(session)

    def _take_requests(self, session: Session) -> None:
        """Begin the next epoch where a plan is requested, or a version is due."""
        coordinator = session.coordinator
        if coordinator.passing or coordinator.wants_epoch:
            return
        with self._lock:
            plan, self._requested = self._requested, None
        if plan is not None:
            self._begun = plan
            try:
                session.request(plan)
            except EngineError as error:  # no further worker can be had
                log.warning("%s; the plan stays as it is", error)
        elif self._checkpoint is not None and time.monotonic() - self._saved_s >= SAVE_S:
            if session.unsaved:
                session.save()
            self._saved_s = time.monotonic()

    def _is_drained(self, session: Session) -> bool:
        """Return whether what was under way is finished, or has taken too long."""
        coordinator = session.coordinator
        if not self._drained_s:
            return False
        if not (coordinator.passing or coordinator.wants_epoch):
            return True
        late = time.monotonic() - self._drained_s > DRAIN_S
        if late and self._checkpoint is None:
            log.warning("stopped after %.0f s: rows under way were dropped", DRAIN_S)
        return late

    def _note_passage(self, passage: Passage) -> None:
        self._saved_s = time.monotonic()
        if passage.saves and passage.ended:
            self._ended = True
        self._plan = passage.plan
        if passage.plan == self._begun:  # a version may be saved while its workers start
            self._begun = None
        moved = tuple(passage.before.diff(passage.plan))
        if moved and self._session is not None:
            change = Reconfiguration(
                self.seconds,
                self._session.profiler.number,
                passage.stood_s * 1000,
                moved,
                0,
                passage.before.to_json(),
                passage.plan.to_json(),
            )
            self._changes.append(change)
            self._tell(change)

    def _observe_if_due(self, session: Session) -> None:
        if self._profile and self.seconds - session.profiler.looked_s >= PERIOD_S:
            self._observe(session)
            session.survey()

    def _observe(self, session: Session) -> None:
        session.measure_home()
        self._rows = self._counted(session)
        self._tell(Observed(session.profiler.look(self.seconds, self._plan, session.rows[1])))

    def _counted(self, session: Session) -> tuple[int, int]:
        read, written = session.rows
        return self._rows_before[0] + read, self._rows_before[1] + written

    def _answer(self, session: Session) -> None:
        if self._asked_caught_up:
            answer = session.caught_up()
            if answer is not None:
                with self._lock:
                    self._caught_up, self._asked_caught_up = answer, False

    # Failures and the end

    def _go_on_after(self, error: WorkerLost) -> None:
        """Go on from the checkpoint in a new session, if there is one."""
        checkpoint, session = self._checkpoint, self._session
        assert session is not None
        last = None if checkpoint is None else checkpoint.last
        version = -1 if last is None else last.version
        if version >= self._restarted_at + RECOVERED:
            self._restarts = 0
        ends = self._stopping or is_exiting()
        if checkpoint is None or self._restarts >= RESTARTS or ends:
            self._fail(error)
            return
        self._restarts += 1
        self._restarted_at = version
        place = "the start" if version < 0 else f"version {version} of the checkpoint"
        why = f"{error}; going on from {place} (restart {self._restarts} of {RESTARTS})"
        log.warning("%s", why)
        try:
            self._tell(Decision(self.seconds, RECOVERY, Kind.NOTED, why))
            read = sum(s.rows_saved for s in session.coordinator.sources.values())
            self._rows_before = (
                self._rows_before[0] + read,
                self._rows_before[1] + session.rows_shown,
            )
            session.abandon()
            if last is not None:
                self._plan = Plan.from_json(last.plan)
            with self._lock:
                self._requested = self._requested or self._begun
            self._session = self._new_session()
            self._session.profiler.follow(session.profiler)
            self._session.start()
        except BaseException as again:
            self._fail(again)

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception | KeyboardInterrupt):
            error = must_return(Subject("flow", self._flow.name), error)
        self._error = self._error or error
        self._finish()

    def _finish(self) -> None:
        """End the workers, show what was written, report the end, and let those who wait go on."""
        session = self._session
        assert session is not None
        try:
            session.close(show_rest=self._error is None)
        except Exception as error:
            self._error = self._error or error
        try:
            self._observe(session)
            self._rows = self._counted(session)
        except Exception as error:
            self._error = self._error or error
        self._ended_s = time.monotonic()
        ended = self._ended and self._error is None
        try:
            self._tell(RunEnded(self.seconds, *self.rows, ended, in_words(self._error)))
        except Exception as error:
            self._error = self._error or error
        finally:
            self._over.set()


def refuse_what_it_cannot(flow: Flow, options: Options) -> None:
    """Name what this engine cannot do, before anything starts."""
    if not flow.names(Role.SINK):
        raise EngineError(
            Subject("flow", flow.name),
            "at least one sink, which says when the end has come",
            "none",
            "give every stream that matters a sink",
        )
    for name, source in flow.sources().items():
        if source.pushed:
            raise EngineError(
                name,
                "a source that the local engine can read",
                f"{source!r}, whose rows Spark brings",
                "run with engine='spark'",
            )
        require_one_part(name, source)
    for name, sink in flow.sinks().items():
        if sink.traits.dataframes:
            raise EngineError(
                name,
                "a sink that takes record batches",
                f"{sink!r}, which takes DataFrames",
                "run with engine='spark', or use ab.call",
            )
    given = {
        "master": options.master,
        "session": options.session,
        "conf": options.conf or None,
    }
    for option, value in given.items():
        if value is not None:
            raise EngineError(
                Subject("engine", "local"),
                "options that the local engine knows: plan, checkpoint, rows, workers, listener",
                f"{option}={value!r}",
                f"leave {option} out, or run with engine='spark'",
            )


def _workers(options: Options) -> int | None:
    """Return the number of workers that is given: by the caller, or else by the environment."""
    if options.workers is not None:
        return options.workers
    given = os.environ.get(WORKERS, "")
    if not given:
        return None
    if not given.isdecimal():
        raise EngineError(
            Subject("option", WORKERS),
            "a number of worker processes, 0 for none",
            repr(given),
            "leave it unset, or set it to a number",
        )
    return int(given)
