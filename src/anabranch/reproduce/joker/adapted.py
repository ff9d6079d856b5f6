"""An application that adapts on the simulator: where it began, each step, where it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from anabranch.adapt.policies.organic import Organic
from anabranch.adapt.tuning import Tuner
from anabranch.engines.engine import Options
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.simulator.scenario import Scenario
from anabranch.events import Decision, Event, Observed, Reconfiguration
from anabranch.planning.plan import Plan
from anabranch.reproduce.joker.setting import JOKER, LIMITS, MACHINE, SCENARIO, Application

QUIET_DECISIONS = 5
"""A run is over when so many periods in a row brought nothing: two more than Joker itself waits."""
LONGEST_S = 3000.0

Shapes = dict[str, tuple[tuple[int, ...], int]]
"""By region: lengths of its pipelines, and its replicas."""


@dataclass(frozen=True)
class Step:
    """A change that was tried.

    Attributes:
        at_s: When it was decided.
        shapes: Regions as they ran during the trial.
        rate_per_s: Tuples read per second before.
        gain: What came of it, as a part of that.
        kept: Whether it stayed.
    """

    at_s: float
    shapes: Shapes
    rate_per_s: float
    gain: float
    kept: bool


@dataclass(frozen=True)
class Adapted:
    """A run.

    Attributes:
        before_per_s: Tuples that all sources read per second at first.
        after_per_s: The same when nothing changed any more.
        shapes: Regions in the end.
        threads: Threads in the end, sources among them.
        steps: What was tried.
        rates: Tuples read, second by second.
        replicas: By region, how many there were, second by second.
    """

    before_per_s: float
    after_per_s: float
    shapes: Shapes
    threads: int
    steps: tuple[Step, ...]
    rates: tuple[float, ...]
    replicas: dict[str, tuple[int, ...]]
    journal: tuple[str, ...] = field(repr=False, default=())

    @property
    def speedup(self) -> float:
        """How many times the throughput of the beginning."""
        return self.after_per_s / self.before_per_s


def shapes_of(plan: Plan) -> Shapes:
    """The regions of a plan that hold operators."""
    return {
        region.region: (tuple(map(len, region.pipelines)), region.replicas)
        for region in plan.regions
        if not region.region.endswith("-out")
    }


def threads_of(plan: Plan) -> int:
    """Threads that a plan has; sinks are none."""
    shapes = shapes_of(plan).values()
    return sum(len(cuts) * replicas for cuts, replicas in shapes) + len(plan.sources)


class _Notes:
    """What is heard of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rates: list[float] = []
        self.replicas: dict[str, list[int]] = {name: [] for name in shapes_of(plan)}
        self.decisions: list[tuple[Decision, float, Plan]] = []

    def hear(self, event: Event) -> None:
        """Take an event of the run."""
        if isinstance(event, Reconfiguration):
            self.plan = Plan.from_json(event.after)
        elif isinstance(event, Observed):
            seen = event.observation
            self.rates.append(seen.rows_in / seen.times.total_s)
            for name, (_, replicas) in shapes_of(self.plan).items():
                self.replicas[name].append(replicas)

    def decided(self, decision: Decision) -> None:
        """Take a decision: the rate is that of the second before, the plan the one in force."""
        self.decisions.append((decision, self.rates[-1], self.plan))


def adapt(
    application: Application,
    policy: Organic = JOKER,
    scenario: Scenario = SCENARIO,
    seconds: float | None = None,
) -> Adapted:
    """Run an application from one pipeline and one replica a region until nothing changes.

    Args:
        application: What runs.
        policy: Who adapts it.
        scenario: What happens meanwhile.
        seconds: How long; until nothing changes any more when left out.
    """
    flow = application.flow()
    plan = Plan.sequential(flow)
    engine = SimulatorEngine(flow, plan, Options(), application.profile(), MACHINE, scenario)
    notes = _Notes(plan)
    tuner = Tuner(flow, engine, policy, notes.decided, LIMITS)

    def hear(event: Event) -> None:
        notes.hear(event)
        tuner.hear(event)

    engine.start(hear)
    if seconds is not None:
        engine.wait(seconds)
    else:
        _settle(engine, notes, policy)
    return _told(notes)


def _settle(engine: SimulatorEngine, notes: _Notes, policy: Organic) -> None:
    """Let time pass until nothing was decided for a while."""
    quiet_s = policy.pace.settle + QUIET_DECISIONS * policy.pace.periods
    last_s = 0.0
    while engine.seconds < min(last_s + quiet_s, LONGEST_S):
        engine.wait(1.0)
        last_s = notes.decisions[-1][0].at_s if notes.decisions else 0.0


def rate_under(application: Application, plan: Plan, seconds: float = 4.0) -> float:
    """Tuples that are read per second under one plan."""
    engine = SimulatorEngine(
        application.flow(), plan, Options(), application.profile(), MACHINE, SCENARIO
    )
    notes = _Notes(plan)
    engine.start(notes.hear)
    engine.wait(seconds)
    return fmean(notes.rates[-2:])


def _told(notes: _Notes) -> Adapted:
    return Adapted(
        notes.rates[1],  # in the first second queues fill
        fmean(notes.rates[-2:]),
        shapes_of(notes.plan),
        threads_of(notes.plan),
        tuple(steps_of(notes.decisions)),
        tuple(notes.rates),
        {name: tuple(counts) for name, counts in notes.replicas.items()},
        tuple(str(decision) for decision, _, _ in notes.decisions),
    )


def steps_of(decisions: Sequence[tuple[Decision, float, Plan]]) -> list[Step]:
    """Each trial with its verdict."""
    found: list[Step] = []
    tried_s = before = decided_s = 0.0
    again = False  # whether what is tried takes the place of what was reverted
    for decision, rate, plan in decisions:
        if decision.outcome == "tried":
            again = again and decision.at_s == decided_s
            before = before if again else rate
            tried_s = decision.at_s
        elif decision.outcome in ("kept", "reverted"):
            kept, decided_s = decision.outcome == "kept", decision.at_s
            found.append(Step(tried_s, shapes_of(plan), before, rate / before - 1, kept))
            again = not kept
    return found
