"""A policy at work on a case, and what it is worth against the referee.

- *Changes*: whenever load and conditions stand still for a while and the plan in force serves less
  than 95 % of what the best plan serves: plan changes until one does; infinite if none does before
  something else happens.
- *Regret*: tuples that the best plan of each moment would have read and the policy's did not, as a
  part. What is read later than it came counts as lost.
- *Over-provisioning*: thread seconds above those of the plan with fewest threads that serves the
  load within 5 %, as a part of those.
- *Rescales*: plan changes per hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from math import inf
from typing import Any

from policies_cases import Case, draw
from policies_referee import BEST, NEAR, Conditions, Referee
from random_loads import TraceSettings

from anabranch.adapt.guards import threads
from anabranch.adapt.policy import Policy
from anabranch.adapt.tuner import Tuner
from anabranch.engines.engine import Options
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.events import Decision, Event, Observed, Reconfiguration
from anabranch.planning.plan import Plan

WORTHWHILE = 1.5
SLICE_S = 20.0
HELD_S = 50.0
LOSS_S = 5
"""Tuples are counted as lost over so many seconds together, so that noise alone loses few."""


@dataclass(frozen=True)
class Phase:
    """A while in which conditions, and nearly the load, stay as they are.

    Attributes:
        begins_s: When it begins.
        ends_s: When it is over.
        load: Tuples a second that come to each source, at its middle.
        held: Whether nothing at all changes in it.
        referee: Knows what plans can carry.
    """

    begins_s: float
    ends_s: float
    load: float
    held: bool
    referee: Referee

    @property
    def goal(self) -> float:
        """What the best plan serves, in tuples a second of each source."""
        return min(self.load, self.referee.best)

    def good(self, plan: Plan) -> bool:
        """Whether a plan is within 5 % of the best."""
        return self.referee.capacity(plan) >= NEAR * self.goal


@dataclass(frozen=True)
class Arena:
    """A case with what the referee knows of it."""

    case: Case
    phases: tuple[Phase, ...]

    @staticmethod
    def of(number: int, seed: int, trace: TraceSettings, maps: str = BEST) -> Arena:
        bare, referee = _worthwhile(number, seed, trace, maps)
        case = bare.reloaded(referee.best)
        referees = {Conditions.at(case.scenario, 0.0): referee}
        phases = []
        for begins_s, ends_s in pairwise(_borders(case)):
            middle_s = (begins_s + ends_s) / 2
            conditions = Conditions.at(case.scenario, middle_s)
            if conditions not in referees:
                referees[conditions] = Referee(case, conditions, maps)
            load, held = _load(case, middle_s), _stands_still(case, begins_s, ends_s)
            phases.append(Phase(begins_s, ends_s, load, held, referees[conditions]))
        return Arena(case, tuple(phases))

    def phase(self, at_s: float) -> Phase:
        return next((p for p in self.phases if at_s < p.ends_s), self.phases[-1])


def _worthwhile(number: int, seed: int, trace: TraceSettings, maps: str) -> tuple[Case, Referee]:
    """The first case that parallelism helps; in the others, there is nothing to find."""
    for attempt in count():
        case = draw(number, seed, trace, attempt)
        referee = Referee(case, Conditions.at(case.scenario, 0.0), maps)
        if referee.best >= WORTHWHILE * referee.sequential:
            break
    return case, referee


def _load(case: Case, at_s: float) -> float:
    """Tuples a second for each source; infinite where there is more to read than anybody can."""
    rate = case.load.rate(at_s)
    return inf if rate is None else rate


def _borders(case: Case) -> list[float]:
    """Moments at which something happens, and in between where something changes gradually."""
    end_s = case.trace.seconds
    moments = sorted({0.0, end_s, *(m for m in case.scenario.moments() if m < end_s)})
    found = [0.0]
    for begins_s, ends_s in pairwise(moments):
        pieces = 1
        if not _stands_still(case, begins_s, ends_s):
            pieces = max(1, round((ends_s - begins_s) / SLICE_S))
        found += [begins_s + (ends_s - begins_s) * n / pieces for n in range(1, pieces + 1)]
    return found


def _stands_still(case: Case, begins_s: float, ends_s: float) -> bool:
    inner = (begins_s + 1e-3, ends_s - 1e-3)
    rates = {round(min(_load(case, at_s), 1e12), 6) for at_s in inner}
    return len(rates) == 1 and len({Conditions.at(case.scenario, at_s) for at_s in inner}) == 1


@dataclass
class Run:
    """What a policy did.

    Attributes:
        plans: From when on which plan was in force.
        journal: What it decided.
        seconds: By second, when it ended and what each source read.
    """

    plans: list[tuple[float, Plan]]
    journal: list[Decision] = field(default_factory=list)
    seconds: list[tuple[float, list[int]]] = field(default_factory=list)

    def plan(self, at_s: float) -> Plan:
        """The plan in force at a moment."""
        return next(plan for since_s, plan in reversed(self.plans) if since_s <= at_s + 1e-9)


def run(arena: Arena, policy: Policy[Any]) -> Run:
    """Let a policy tune a case, from one thread per region on."""
    case = arena.case
    start = Plan.sequential(case.flow)
    found = Run([(0.0, start)])
    engine = SimulatorEngine(
        case.flow, start, Options(), case.profile, case.machine, case.scenario, seed=case.seed
    )
    tuner = Tuner(case.flow, engine, policy, found.journal.append, limits=case.limits)

    def hear(event: Event) -> None:
        if isinstance(event, Reconfiguration):
            found.plans.append((event.at_s, Plan.from_json(event.after)))
        elif isinstance(event, Observed):
            seen = event.observation
            found.seconds.append((seen.at_s, [source.rows for source in seen.sources]))
        tuner.hear(event)

    engine.start(hear)
    engine.wait(case.trace.seconds)
    engine.stop()
    return found


@dataclass(frozen=True)
class Score:
    """What a run is worth; see the top of this file.

    Attributes:
        changes: Of each while in which some were needed.
        first: Those of the first while alone, from one thread on; empty if none were needed.
        regret: A part.
        over: A part.
        rescales: Per hour.
        failures: Plans that could not be applied, and policies that raised.
    """

    changes: tuple[float, ...]
    first: tuple[float, ...]
    regret: float
    over: float
    rescales: float
    failures: int


def score(arena: Arena, made: Run) -> Score:
    """Judge a run."""
    hours = arena.case.trace.seconds / 3600
    failures = sum(decision.outcome == "failed" for decision in made.journal)
    needed = list(needed_changes(arena, made))
    return Score(
        tuple(n for _, n in needed),
        tuple(n for phase, n in needed if phase.begins_s == 0),
        regret(arena, made),
        over_provisioning(arena, made),
        (len(made.plans) - 1) / hours,
        failures,
    )


def needed_changes(arena: Arena, made: Run) -> Iterator[tuple[Phase, float]]:
    """For each while in which the plan was not good at first: changes until one was."""
    for phase in arena.phases:
        if not phase.held or phase.ends_s - phase.begins_s < HELD_S:
            continue
        if phase.good(made.plan(phase.begins_s)):
            continue
        tried = [p for at_s, p in made.plans if phase.begins_s < at_s < phase.ends_s]
        good = (n for n, plan in enumerate(tried, 1) if phase.good(plan))
        yield phase, next(good, inf)


def regret(arena: Arena, made: Run) -> float:
    """Tuples that were not read when the best plan would have read them, as a part."""
    lost = total = 0.0
    for first in range(0, len(made.seconds), LOSS_S):
        window = made.seconds[first : first + LOSS_S]
        goal = sum(_goal(arena, at_s - 0.5) for at_s, _ in window)
        for source in range(arena.case.sources):
            read = sum(rows[source] for _, rows in window)
            lost += max(0.0, goal - read)
            total += goal
    return lost / total if total else 0.0


def _goal(arena: Arena, at_s: float) -> float:
    return min(_load(arena.case, at_s), arena.phase(at_s).referee.best)


def over_provisioning(arena: Arena, made: Run) -> float:
    """Thread seconds above those that were needed, as a part of these."""
    above = needed = 0.0
    for phase in arena.phases:
        least = phase.referee.cheapest(phase.load)
        moments = [phase.begins_s, *(t for t, _ in made.plans if phase.begins_s < t < phase.ends_s)]
        for begins_s, ends_s in pairwise([*moments, phase.ends_s]):
            above += max(0, threads(made.plan(begins_s)) - least) * (ends_s - begins_s)
        needed += least * (phase.ends_s - phase.begins_s)
    return above / needed
