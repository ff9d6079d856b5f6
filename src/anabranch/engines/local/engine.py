"""The local engine: a thread per pipeline replica, an elastic gate in front of every region.

`LocalEngine` builds sources, gates, regions and sinks from flow and plan, and drives them from one
thread of its own: it takes up wishes for other plans, looks at the probes every second, and ends
the run when all sinks have seen the end, when it is stopped, or when something fails.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.cpu_topology import Pins, cpu_sockets, require_sockets, usable_cpus
from anabranch.engines.engine import CHANGES, Options
from anabranch.engines.local.assembly import Assembly
from anabranch.engines.local.change import Change
from anabranch.engines.local.gate import Closed
from anabranch.engines.local.pool import Pool
from anabranch.engines.local.probe import Probe
from anabranch.engines.local.profiler import PERIOD_S, Profiler
from anabranch.engines.local.refusals import refuse_what_it_cannot
from anabranch.engines.local.region import RegionRun
from anabranch.engines.local.saving import Saver, require_own
from anabranch.engines.local.standstill import Standstill
from anabranch.engines.process_memory import keep_freed_memory
from anabranch.errors import EngineError, Subject, in_words
from anabranch.events import Event, Observed, Reconfiguration, RunEnded, RunStarted
from anabranch.flow import Flow
from anabranch.planning.flow_problem import FlowModel
from anabranch.planning.machine import Machine
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan
from anabranch.planning.regions import shape_of
from anabranch.planning.starting import side_by_side

TICK_S = 0.05
DRAIN_S = 5.0
SAVE_S = 1.0
END_S = 10.0
BATCH_ROWS = 16_384


class LocalEngine:
    """One run of one flow on threads; see `Engine`.

    Args:
        flow: The application.
        plan: How to begin; as many replicas as processors when left out.
        options: What a user may say.
        profile: Whether to observe; off only to measure what observing costs.
    """

    name = "local"

    def __init__(
        self, flow: Flow, plan: Plan | None, options: Options, *, profile: bool = True
    ) -> None:
        self._flow, self._options, self._profile = flow, options, profile
        self._given = plan
        self._plan = plan or Plan.sequential(flow)
        self._places = cpu_sockets()
        self._news = threading.Condition()
        self._wish: Plan | None = None
        self._change: Change | None = None
        self._changes: deque[Reconfiguration] = deque(maxlen=CHANGES)
        self._stop_wish = self._ended = False
        self._saver: Saver | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._started_s = self._ended_s = self._ticked_s = 0.0
        self._saved_s, self._saved_moves = 0.0, -1

    # What users see

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read and written so far."""
        return self._parts.rows_read(), self._parts.rows_written()

    @property
    def seconds(self) -> float:
        """How long it has worked, up to its end."""
        return (self._ended_s or time.monotonic()) - self._started_s

    @property
    def cores(self) -> int:
        """Processors that this process may use."""
        return len(usable_cpus())

    def model(self) -> Model | None:
        """What plans promise on threads."""
        machine = self._options.machine or Machine.of_cores(self.cores)
        return FlowModel(self._flow, machine, machine.overheads.get(self.name))

    def reconfigurations(self) -> list[Reconfiguration]:
        """The newest plan changes."""
        return list(self._changes)

    def latency_ms(self, share: float) -> float:
        """The latency that a share of the tuples did not exceed."""
        return self._parts.latencies.percentile(share)

    def region(self, name: str) -> RegionRun:
        """One region at work, for those who look closely."""
        return self._parts.region(name)

    def forget_latencies(self) -> None:
        """Count latencies anew from now on, after a warm-up."""
        self._parts.latencies.forget()

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin."""
        refuse_what_it_cannot(self._flow, self._options)
        keep_freed_memory()
        checkpoint = self._open_checkpoint()
        require_sockets(self._plan, self._places)
        self._tell = tell
        self._parts = Assembly(
            self._flow, self._plan, self._options.rows, checkpoint is not None, self._note_end
        )
        self._profiler = Profiler(self._parts.regions, self._parts.sources, self._parts.latencies)
        parts = self._parts
        self._standstill = Standstill(parts.gates, parts.edges, parts.alive)
        self._pool = Pool(self._flow.name)
        self._pins = Pins(self._places)
        try:
            self._begin(checkpoint)
        except BaseException:
            with suppress(Exception):  # why it did not start is the news
                self._close_sinks()
            raise

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        """Open the sinks, bring back what was saved, and let everybody work."""
        version = -1
        if checkpoint is None:
            self._parts.open_sinks()
        else:
            self._saver = Saver(self._flow, self._parts, checkpoint)
            self._saver.restore()
            version = -1 if checkpoint.last is None else checkpoint.last.version
            self._ended = checkpoint.last is not None and checkpoint.last.ended
        self._started_s = self._saved_s = time.monotonic()
        self._driver = threading.Thread(
            target=self._drive, name=f"{self._flow.name}-driver", daemon=True
        )
        shape = shape_of(self._flow)
        self._tell(RunStarted(self._flow.name, self.name, self._plan.to_json(), version, shape))
        if not self._ended:
            self._parts.start(self._start_thread)
        self._driver.start()

    def caught_up(self) -> bool:
        """Whether all that could be read was read, worked on, and is visible."""
        return self._parts.caught_up()

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan: each region takes it up at its next exact place."""
        plan.validate(self._flow)
        require_sockets(plan, self._places)
        with self._news:
            self._wish = plan
            self._news.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; raises what ended the run, if that was an error."""
        ended = self._over.wait(timeout_s)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Read no more, finish what is under way, fire nothing; from inside, do not wait."""
        with self._news:
            self._stop_wish = True
            self._news.notify_all()
        inside = threading.current_thread() is self._driver or self._pool.is_inside()
        if self._driver.ident is not None and not inside:
            self.wait()

    def _open_checkpoint(self) -> Checkpoint | None:
        """The checkpoint, if one is wanted; settles the plan to begin with."""
        last = checkpoint = None
        if self._options.checkpoint is not None:
            checkpoint = Checkpoint.open(self._options.checkpoint, self._flow)
            require_own(checkpoint)
            last = checkpoint.last
        if self._given is None:
            cores = len(usable_cpus())
            known = None if last is None else Plan.from_json(last.plan)
            self._plan = known or side_by_side(self._flow, cores, BATCH_ROWS)
        return checkpoint

    # Threads

    def _start_thread(self, probe: Probe, work: Callable[[], None]) -> None:
        probe.on = self._profile
        self._profiler.watch(probe)
        place = self._parts.place_of(probe)
        self._pool.run(lambda: self._run_thread(probe, place, work))

    def _run_thread(self, probe: Probe, place: str | None, work: Callable[[], None]) -> None:
        """A thread that ends for any reason but the end of the run ends the run."""
        try:
            self._pins.pin(place)
            probe.start()
            work()
        except Closed:
            pass
        except BaseException as error:
            self._fail(probe, error)
        finally:
            probe.end()
            with suppress(OSError):
                self._pins.pin(None)

    def _fail(self, probe: Probe, error: BaseException) -> None:
        if not isinstance(error, Exception):  # SystemExit and the like are no way out of a step
            error = EngineError(
                probe.step or Subject("region", probe.region),
                "a thread that works until the run ends",
                f"{type(error).__name__}: {error}",
                "return from the function instead, or call stop() on the run",
            )
        with self._news:
            self._error = self._error or error
            self._news.notify_all()

    def _note_end(self) -> None:
        """A sink has seen the end."""
        with self._news:
            self._ended = self._parts.all_ended()
            self._news.notify_all()

    # Driving

    def _drive(self) -> None:
        try:
            while not (self._ended or self._stop_wish or self._error):
                self._turn()
            if not self._error and self._pool.size:
                self._come_to_rest()
        except BaseException as error:  # of a listener
            self._error = self._error or error
        self._finish()

    def _turn(self) -> None:
        """Wait for news, or for the next tick."""
        with self._news:
            self._news.wait_for(self._has_news, TICK_S)
        self._tell_change()
        if self._saver is not None:
            due = time.monotonic() - self._saved_s >= SAVE_S
            if self._wish is not None or (due and self._parts.moves() != self._saved_moves):
                self._save_and_change(self._saver)
        elif self._change is None:
            self._begin_change()
        self._tick()

    def _begin_change(self) -> None:
        with self._news:
            wish, self._wish = self._wish, None
        if wish is not None:
            self._change = Change(self._parts, self._plan, wish, self._wake)

    def _save_and_change(self, saver: Saver) -> None:
        """Save a version; a plan that is wished for begins with the next one."""
        began = time.perf_counter()
        self._parts.hold()
        try:
            if not self._parts.settle(self._given_up):
                return  # the run ends, and has a save of its own
            saver.save(self._plan, ended=False)
            self._begin_change()
            if self._change is not None:
                with self._news:
                    self._news.wait_for(lambda: self._must_end() or self._change_is_done())
                if self._change_is_done():
                    self._change.held_s = time.perf_counter() - began
        finally:
            self._saved_s, self._saved_moves = time.monotonic(), self._parts.moves()
            self._parts.go_on()

    def _come_to_rest(self) -> None:
        """Finish what is under way, and save it if it is to be saved."""
        self._parts.read_no_more()
        until = time.monotonic() + DRAIN_S
        rested = self._parts.settle(lambda: self._too_late(until))
        self._ended = self._ended and rested
        self._tell_change()
        if self._saver is not None and rested:
            self._saver.save(self._plan, ended=self._ended)

    def _given_up(self) -> bool:
        """Asked while everybody comes to rest, which may take as long as a step takes."""
        self._tick()
        return self._must_end()

    def _too_late(self, until: float) -> bool:
        """Who stops a run does not wait for ever; one that comes to its end is finished."""
        self._tick()
        stopped = self._stop_wish and time.monotonic() > until
        return stopped or self._error is not None

    def _must_end(self) -> bool:
        return bool(self._stop_wish or self._error)

    def _change_is_done(self) -> bool:
        return self._change is not None and self._change.done

    def _has_news(self) -> bool:
        wanted = self._change is None and self._wish is not None
        return self._ended or self._must_end() or self._change_is_done() or wanted

    def _wake(self) -> None:
        with self._news:
            self._news.notify_all()

    def _note_change(self, change: Change) -> None:
        self._change = None
        self._plan = change.after
        told = change.told(self._elapsed(), self._profiler.number)
        if told is not None:
            self._changes.append(told)
            self._tell(told)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked_s < TICK_S:
            return
        self._ticked_s = now
        self._standstill.look()
        for sink in self._parts.sinks:
            sink.remind()
        if self._profile:
            self._profiler.sample()
            if self._elapsed() - self._profiler.looked_s >= PERIOD_S:
                self._observe()

    def _observe(self) -> None:
        seen = self._profiler.look(self._elapsed(), self._plan, self._parts.rows_written())
        self._tell(Observed(seen))

    def _finish(self) -> None:
        """End the threads, show what was written, tell the end, and let those who wait go on."""
        for last_thing in (self._end_threads, self._let_sinks_go, self._tell_change, self._observe):
            try:
                last_thing()
            except Exception as error:
                self._error = self._error or error
        self._ended_s = time.monotonic()
        ended = self._ended and self._error is None
        try:
            self._tell(RunEnded(self._elapsed(), *self.rows, ended, in_words(self._error)))
        except Exception as error:
            self._error = self._error or error
        finally:
            self._over.set()

    def _end_threads(self) -> None:
        self._parts.close()
        stuck = self._pool.end(END_S)
        if stuck:
            raise EngineError(
                self._parts.running() or Subject("flow", self._flow.name),
                f"every thread to end within {END_S:.0f} s",
                f"{len(stuck)} still at work",
                "let the functions of this step return; its thread was left behind",
            )

    def _let_sinks_go(self) -> None:
        """What was written becomes visible if nothing failed; then the sinks are closed."""
        try:
            if self._saver is None and self._error is None:
                self._parts.commit_sinks()
        finally:
            self._close_sinks()

    def _close_sinks(self) -> None:
        if self._saver is not None:
            self._saver.close()
        else:
            self._parts.close_sinks()

    def _tell_change(self) -> None:
        if self._change is not None and self._change.done:
            self._note_change(self._change)

    def _elapsed(self) -> float:
        return time.monotonic() - self._started_s
