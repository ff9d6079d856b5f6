"""Joker's figures 5 to 20: applications that adapt on the simulator.

A run says where it began, what each step gained and where it ended. Figures 5, 6, 8, 9 and 12 show
how much adaptation gains by what operators cost; the others show single adaptations step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from anabranch.adapt.policies.organic import Actions, Organic
from anabranch.adapt.tuner import Tuner
from anabranch.engines.engine import Options
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.simulator.scenario import Load, Scenario
from anabranch.events import Decision, Event, Observed, Reconfiguration
from anabranch.planning.plan import Plan
from papers.joker.applications import (
    JOKER,
    LIMITS,
    MACHINE,
    SCENARIO,
    TOPOLOGIES,
    Application,
    costly_and_cheap,
    finance,
    monitoring,
    one_operator,
    one_region,
    selectivities,
    two_operators,
    word_count,
)

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


MULTIPLICATIONS = "multiplications of each operator"
GAINS = (0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Point:
    """Where an adaptation ended.

    Attributes:
        x: What was varied.
        speedup: Throughput over that of one thread a region.
        threads: Threads in the end, sources among them.
        shapes: Regions in the end.
        together: Whether several regions were changed in one step that was kept.
    """

    x: float
    speedup: float
    threads: int
    shapes: Shapes
    together: bool


@dataclass(frozen=True)
class Curves:
    """A figure: what is varied, and points by name of the series."""

    figure: str
    varied: str
    series: dict[str, tuple[Point, ...]]

    def speedups(self, name: str) -> list[float]:
        """One series."""
        return [point.speedup for point in self.series[name]]

    @property
    def xs(self) -> list[float]:
        """What was varied."""
        return [point.x for point in next(iter(self.series.values()))]


def figure_5(multiplications: Sequence[float]) -> Curves:
    """A region of four operators, by each order of actions."""
    series = {
        actions.value: _points(
            (m, one_region(*[m] * 4), replace(JOKER, actions=actions)) for m in multiplications
        )
        for actions in Actions
    }
    return Curves("figure 5", MULTIPLICATIONS, series)


def fission_only_with(buckets: int, multiplications: float) -> float:
    """What replicas alone bring to figure 5's region when its state has so many parts."""
    application = replace(one_region(*[multiplications] * 4), buckets=buckets)
    return adapt(application, replace(JOKER, actions=Actions.FISSION_ONLY)).speedup


def figure_6(multiplications: Sequence[float], operators: Sequence[int]) -> Curves:
    """Regions of several lengths."""
    series = {
        f"{n} operators": _points((m, one_region(*[m] * n), JOKER) for m in multiplications)
        for n in operators
    }
    return Curves("figure 6", MULTIPLICATIONS, series)


def figure_8(multiplications: Sequence[float]) -> Curves:
    """Several regions: trees and chains."""
    series = {
        name: _points((m, build(m), JOKER) for m in multiplications)
        for name, build in TOPOLOGIES.items()
    }
    return Curves("figure 8", MULTIPLICATIONS, series)


def figure_9(multiplications: Sequence[float]) -> Curves:
    """A region that costs eight times as much as the one behind it."""
    points = _points((m, costly_and_cheap(m), JOKER) for m in multiplications)
    return Curves("figure 9", "multiplications of the costly operator", {"fusion first": points})


def figure_12(multiplications: Sequence[float]) -> Curves:
    """Figure 5's region with several thresholds of what a change has to gain."""
    series = {
        f"gain {gain:g}": _points(
            (m, one_region(*[m] * 4), replace(JOKER, gain=gain)) for m in multiplications
        )
        for gain in GAINS
    }
    return Curves("figure 12", MULTIPLICATIONS, series)


def _points(cases: Iterable[tuple[float, Application, Organic]]) -> tuple[Point, ...]:
    return tuple(_point(x, adapt(application, policy)) for x, application, policy in cases)


def _point(x: float, run: Adapted) -> Point:
    return Point(x, run.speedup, run.threads, run.shapes, changes_together(run))


def changes_together(run: Adapted) -> bool:
    """Whether some step that was kept changed more than one region.

    A region changes against the step before it that was kept, or against one of everything.
    """
    now: Shapes = {name: ((sum(cuts),), 1) for name, (cuts, _) in run.shapes.items()}
    for step in run.steps:
        if step.kept:
            if sum(now[name] != shape for name, shape in step.shapes.items()) > 1:
                return True
            now = step.shapes
    return False


LOADS_PER_S = (40e3, 80e3, 160e3, 320e3, 640e3)
"""Figure 11: from 40 to 640 thousand tuples a second."""
LOAD_S = 60.0
UNBALANCED, BALANCED = (0.75, 0.10), (0.45, 0.40)
"""Costs of figure 14's and figure 15's operators, as parts of the thread's time."""
MORE_REPLICAS = 4
FIGURE_16 = (1024, 32, 32, 1024, 1024)


@dataclass(frozen=True)
class Traces:
    """Adaptations of one figure, by what differs between them."""

    figure: str
    title: str
    runs: dict[str, Adapted]

    def only(self) -> Adapted:
        """The run of a figure that has one."""
        (run,) = self.runs.values()
        return run


def figure_10() -> Traces:
    """Operators of several costs and selectivities."""
    return Traces("figure 10", "costs and selectivities", {"run": adapt(selectivities())})


def figure_11() -> Traces:
    """A load that doubles, with several thresholds of what is busy."""
    load = Load(tuple((LOAD_S * n, rate) for n, rate in enumerate(LOADS_PER_S)))
    scenario = replace(SCENARIO, loads=(load,))
    seconds = LOAD_S * (len(LOADS_PER_S) + 1)
    runs = {
        f"busy {busy:g}": adapt(one_operator(), replace(JOKER, busy=busy), scenario, seconds)
        for busy in (0.5, 0.8, 0.95)
    }
    return Traces("figure 11", "threshold of what is busy, under a growing load", runs)


def figure_14() -> Traces:
    """Two operators of unlike cost, with several thresholds of what a split has to promise.

    As in the paper, the source is saturated after four more replicas.
    """
    free = two_operators(*UNBALANCED, saturated_per_s=None)
    wide = Plan.sequential(free.flow()).with_replicas("m1", 1 + MORE_REPLICAS)
    saturated = rate_under(free, wide)
    application = two_operators(*UNBALANCED, saturated_per_s=saturated)
    runs = {
        f"utility {utility:g}": adapt(application, replace(JOKER, utility=utility))
        for utility in (0.2, 0.1)
    }
    return Traces("figure 14", "threshold of splits, unbalanced costs", runs)


def figure_15() -> Traces:
    """Two operators of like cost."""
    application = two_operators(*BALANCED, saturated_per_s=None)
    runs = {
        f"utility {utility:g}": adapt(application, replace(JOKER, utility=utility))
        for utility in (0.2, 0.9)
    }
    return Traces("figure 15", "threshold of splits, balanced costs", runs)


def figure_16() -> Traces:
    """A long adaptation, second by second."""
    run = adapt(one_region(*FIGURE_16))
    return Traces("figure 16", "throughput during an adaptation", {"run": run})


def figure_18() -> Traces:
    """Word count."""
    return Traces("figure 18", "word count", {"run": adapt(word_count())})


def figure_19() -> Traces:
    """Finance."""
    return Traces("figure 19", "finance", {"run": adapt(finance())})


def figure_20() -> Traces:
    """Network monitoring."""
    return Traces("figure 20", "network monitoring", {"run": adapt(monitoring())})


FIGURES = (
    figure_10,
    figure_11,
    figure_14,
    figure_15,
    figure_16,
    figure_18,
    figure_19,
    figure_20,
)
