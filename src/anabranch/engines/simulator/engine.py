"""The simulator as an engine: the same events as a real run, in virtual time.

Nothing happens but in `wait`, whose time-outs are virtual seconds: it lets time pass, tells an
observation every second, and takes up wishes for other plans. A policy that listens and wishes
cannot tell it from a run on threads, except that an hour takes a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch.engines.engine import CHANGES, Options
from anabranch.engines.simulator.costs import seconds_per_unit
from anabranch.engines.simulator.flows import names_of, require_profiled, specs_of, watched
from anabranch.engines.simulator.observing import PERIOD_S, SAMPLE_S, Observer
from anabranch.engines.simulator.scenario import Scenario
from anabranch.engines.simulator.simulation import Simulation
from anabranch.errors import EngineError, Subject
from anabranch.events import Event, Observed, Reconfiguration, RunEnded, RunStarted
from anabranch.flow import Flow
from anabranch.planning.flow_problem import FlowModel
from anabranch.planning.machine import Machine
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Overheads, Profile
from anabranch.planning.regions import shape_of
from anabranch.planning.starting import side_by_side

BATCH_ROWS = 16_384


class SimulatorEngine:
    """One run of one flow in virtual time; see `Engine`.

    Args:
        flow: The application; of a profile alone, `flow_of` makes one.
        plan: How to begin; as many replicas as cores when left out.
        options: What a user may say; `rows` ends each source after so many tuples.
        profile: What its operators cost.
        machine: Where it runs.
        scenario: What happens meanwhile; sources are called as in the flow.
        seed: Decides all that is left to chance.
        period_s: Virtual time between observations.

    Example:
        >>> from anabranch.engines.simulator.flows import flow_of
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain(
        ...     [OperatorProfile("parse", 2.0), OperatorProfile("count", 1.0)], unit="ms"
        ... )
        >>> flow = flow_of(profile)
        >>> plan = Plan.sequential(flow).with_pipelines("parse", 1, 1)
        >>> run = SimulatorEngine(flow, plan, Options(), profile, Machine.of_cores(2))
        >>> run.start(lambda event: None)
        >>> run.wait(10.0), run.rows
        (False, (5000, 5000))
    """

    name = "simulator"

    def __init__(
        self,
        flow: Flow,
        plan: Plan | None,
        options: Options,
        profile: Profile,
        machine: Machine,
        scenario: Scenario | None = None,
        *,
        seed: int = 0,
        period_s: float = PERIOD_S,
    ) -> None:
        self._flow, self._options, self._profile, self._machine = flow, options, profile, machine
        self._plan = plan or side_by_side(flow, machine.cores, BATCH_ROWS)
        self._period_s = period_s
        self._wish: Plan | None = None
        self._next: Plan | None = None
        self._changes: deque[Reconfiguration] = deque(maxlen=CHANGES)
        self._stopped = self._over = False
        if options.checkpoint is not None:
            raise EngineError(
                Subject("engine", "simulator"),
                "no checkpoint in a simulation, which has no state",
                str(options.checkpoint),
                "leave the checkpoint out",
            )
        require_profiled(flow, profile)
        self._plan.validate(flow)
        names = names_of(flow, profile)
        self.simulation = Simulation(
            profile,
            specs_of(flow, self._plan, profile, machine),
            machine,
            (scenario or Scenario()).for_sources(names.sources),
            seed,
            options.rows,
        )
        self._observer = Observer(self.simulation, names)
        self._tell: Callable[[Event], None] = lambda event: None

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._plan

    @property
    def rows(self) -> tuple[int, int]:
        """Tuples read and written so far."""
        return self._observer.rows()

    @property
    def seconds(self) -> float:
        """Virtual seconds since the start."""
        return self.simulation.now_s

    @property
    def cores(self) -> int:
        """Cores of the machine."""
        return self._machine.cores

    def model(self) -> Model | None:
        """What plans promise on threads, as the profile says that these cost."""
        unit_ns = seconds_per_unit(self._profile, self._machine) * 1e9
        known = self._profile.switching
        overheads = Overheads(known.thread_switch * unit_ns, known.replication * unit_ns)
        return FlowModel(self._flow, self._machine, overheads)

    def reconfigurations(self) -> list[Reconfiguration]:
        """The newest plan changes."""
        return list(self._changes)

    def latency_ms(self, share: float) -> float:
        """The latency that a share of the tuples did not exceed."""
        return self.simulation.waits.latencies.percentile(share)

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin; time passes in `wait` only."""
        self._tell = tell
        shape = shape_of(self._flow)
        tell(RunStarted(self._flow.name, self.name, self._plan.to_json(), -1, shape))

    def caught_up(self) -> bool:
        """Whether all that came was read and worked on."""
        sources = self.simulation.intake.sources.values()
        waiting = any(s.left > 0 and (s.greedy or s.backlog >= 1) for s in sources)
        return not waiting and self.simulation.network.waiting < 1

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan: each region takes it up at the next step."""
        plan.validate(self._flow)
        specs_of(self._flow, plan, self._profile, self._machine)  # refuses unknown places
        self._wish = plan

    def wait(self, timeout_s: float | None = None) -> bool:
        """Let virtual time pass until the end, or so many seconds; whether the end came.

        Without a time-out, an endless run goes on until somebody who listens stops it.
        """
        until = float("inf") if timeout_s is None else self.seconds + timeout_s
        while not self._over and self.seconds < until - 1e-9:
            self._turn(until)
        return self._over

    def stop(self) -> None:
        """End the run where it is."""
        self._stopped = True
        self._finish()

    def _turn(self, until: float) -> None:
        """A short while: take up a wish, let time pass, tell what there is to tell."""
        simulation = self.simulation
        if self._wish is not None and not simulation.changing.busy:
            self._begin_change(self._wish)
        look_s = self._observer.looked_s + self._period_s
        sample_s = max(SAMPLE_S, simulation.scenario.step_s)
        simulation.advance(min(until, look_s, self.seconds + sample_s) - self.seconds)
        self._observer.sample()
        if self._next is not None and not simulation.changing.busy:
            self._end_change(self._next)
        if self.seconds >= look_s - 1e-9:
            self._observe()
        if simulation.ended:
            self._finish()

    def _begin_change(self, wish: Plan) -> None:
        self._wish, self._next = None, wish
        self.simulation.switch(specs_of(self._flow, wish, self._profile, self._machine))

    def _end_change(self, after: Plan) -> None:
        before, self._plan, self._next = self._plan, after, None
        moved = tuple(before.diff(after))
        if not moved:
            return
        changing = self.simulation.changing
        told = Reconfiguration(
            changing.done_s,
            self._observer.number,
            changing.pause_s * 1e3,
            moved,
            int(changing.moved_buckets * self.simulation.scenario.switch.bucket_bytes),
            before.to_json(),
            after.to_json(),
        )
        self._changes.append(told)
        self._tell(told)

    def _observe(self) -> None:
        self._tell(Observed(self._observer.look(watched(self._plan))))

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        if self.seconds > self._observer.looked_s:
            self._observe()
        ended = self.simulation.ended
        self._tell(RunEnded(self.seconds, *self.rows, ended))
