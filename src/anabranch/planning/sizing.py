"""Sizing: how many cores a rate and a latency need, and how sure that is.

What is needed depends on the engine: threads, or micro-batches. How sure that is: the same
question is asked again with costs that are lower and higher by
as much as the models were off on this project's engines (`docs/benchmarks.md`: half of the plans
that were measured are predicted within a tenth, three in four within 15 %); the higher ones are
also a deviation above the median, as the profile's 99th percentiles tell. The interval is what
these two need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, inf, sqrt

from anabranch.errors import PlanError, Subject
from anabranch.graph import StateKind
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.flow_problem import cheapest, per_s
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import estimate, pipeline_times
from anabranch.planning.models.latency import NEVER_IDLE, Latency, deviation, gathered_rows, latency
from anabranch.planning.planners.exact import exact
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.region_options import Option, cuttings, options
from anabranch.planning.profile import OperatorProfile, Overheads, Profile

MODEL_ERROR = 0.15
"""Three in four of the plans that were measured are predicted within this."""
HEADROOM = 0.2
MOST_CORES = 64


@dataclass(frozen=True)
class Target:
    """What an application shall do.

    Attributes:
        rate_per_s: Tuples a second that its sources read together.
        latency_ms: What 99 in a hundred tuples may take at most; None for any time.
        headroom: Part of the rate that the plan shall be able to carry on top.
        most_cores: Cores beyond which nobody looks.
    """

    rate_per_s: float
    latency_ms: float | None = None
    headroom: float = HEADROOM
    most_cores: int = MOST_CORES

    def __post_init__(self) -> None:
        """Check values."""
        for name, value in (("rate", self.rate_per_s), ("latency-ms", self.latency_ms)):
            if value is not None and not 0 < value < inf:
                raise PlanError(
                    Subject("argument", name),
                    "a number above 0",
                    str(value),
                    "say what is asked for",
                )
        if not 0 <= self.headroom < inf:
            raise PlanError(
                Subject("argument", "headroom"),
                "a part of 0 or more",
                str(self.headroom),
                "0.2 is a fifth on top",
            )

    def in_time(self, latency_ms: float) -> bool:
        """Whether a latency is short enough, which one without end never is.

        Example:
            >>> Target(100.0).in_time(1e6), Target(100.0).in_time(inf)
            (True, False)
        """
        return latency_ms < inf and (self.latency_ms is None or latency_ms <= self.latency_ms)


@dataclass(frozen=True)
class Fit:
    """Cores that do, and how.

    Attributes:
        cores: How many.
        answer: The plan.
        rate_per_s: The most that it carries.
        busy_cores: Cores at work at the rate that is asked for.
        latency_ms: What 99 in a hundred tuples do not exceed at that rate.
        batch_rows: Rows of a jumbo tuple at most, or of a micro-batch.
    """

    cores: int
    answer: Answer
    rate_per_s: float
    busy_cores: float
    latency_ms: float
    batch_rows: int


@dataclass(frozen=True)
class Shortfall:
    """Why no number of cores does.

    Attributes:
        what: `rate` or `latency`.
        best: The greatest rate a second, or the shortest latency in milliseconds.
        because: What bounds it.
    """

    what: str
    best: float
    because: str


Found = Fit | Shortfall


@dataclass(frozen=True)
class Sizing:
    """What an application needs for a target.

    Attributes:
        name: What it is called.
        target: For what.
        fit: What it needs, or why nothing does.
        well: The same if costs are as low as they may be.
        badly: The same if they are as high.
    """

    name: str
    target: Target
    fit: Found
    well: Found
    badly: Found


def size(name: str, profile: Profile, target: Target, find: Callable[[Profile], Found]) -> Sizing:
    """Find what an application needs, and between what that lies.

    Args:
        name: What it is called.
        profile: What its operators cost.
        target: What it shall do.
        find: The least that does, if operators cost what a profile says.
    """
    fit, well, badly = (find(each) for each in (profile, *bounds(profile)))
    return Sizing(name, target, fit, well, badly)


def bounds(profile: Profile) -> tuple[Profile, Profile]:
    """The same profile if costs are as low, and as high, as they may be.

    Example:
        >>> from anabranch.planning.profile import chain
        >>> low, high = bounds(chain([OperatorProfile("parse", 100.0)]))
        >>> round(low.by_name["parse"].cost), round(high.by_name["parse"].cost)
        (85, 115)
    """
    return _times(profile, lambda operator: 1 - MODEL_ERROR), _times(
        profile, lambda operator: (1 + MODEL_ERROR) * exp(deviation(operator) or 0.0)
    )


def _times(profile: Profile, factor: Callable[[OperatorProfile], float]) -> Profile:
    operators = tuple(
        replace(o, cost=o.cost * factor(o), cost_p99=o.cost_p99 and o.cost_p99 * factor(o))
        for o in profile.operators
    )
    return replace(profile, operators=operators)


# Sizing for threads: machines of 1, 2, 3 … cores, until one has a plan that does.
#
# Which plan: the one with fewest threads in the fission model (`models/fission.py`), given more
# headroom as long as its latency (`models/latency.py`) is too long; and jumbo tuples as large as
# the latency allows, since handing one over costs the same whatever it holds. At a low rate they
# are not full when the engine hands them on; where that costs more than a region has time for, rows
# wait at the source, and come in larger ones.

MORE_HEADROOM = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0)
CALIBRATED_ROWS = 16_384
"""Rows of the jumbo tuples that `anabranch calibrate` measures with."""
BATCHES = (16_384, 8_192, 4_096, 2_048, 1_024, 512, 256)
MORE_ROWS = 2
"""How many times larger the jumbo tuples are that are tried next, where small ones cost much."""
CALL_S = 0.0003
"""What a step takes for a jumbo tuple, however few rows it has: word count's steps take 0.05 to
0.75 ms for one row on two cores."""


@dataclass(frozen=True)
class Cores:
    """What an application can run on.

    Attributes:
        machine: What cores are like; their number does not matter.
        regions: The regions of the application.
        batches: Rows of a jumbo tuple that it may use, most first.
        per_jumbo: Whether what parallelism costs was measured with jumbo tuples of
            `CALIBRATED_ROWS`; else it is the same for each tuple.
        linger_s: How long the engine waits for a jumbo tuple to be full.
    """

    machine: Machine
    regions: tuple[tuple[str, ...], ...]
    batches: tuple[int, ...] = (1,)
    per_jumbo: bool = False
    linger_s: float = inf

    def problem(self, profile: Profile, cores: int, batch_rows: float) -> Problem:
        """What to ask a planner."""
        known = self._with_jumbos(profile, batch_rows)
        return Problem(known, self.of(cores), None, self.regions)

    def of(self, cores: int) -> Machine:
        """So many cores, on one socket."""
        near = replace(self.machine, sockets=1, latency_ns=(), bandwidth_mb_s=(), nodes=1)
        return replace(near, name=f"{cores} cores", cores_per_socket=cores)

    def _with_jumbos(self, profile: Profile, rows: float) -> Profile:
        """A profile with what steps and parallelism cost when jumbo tuples hold so many rows.

        Calling a step and handing a jumbo tuple over cost the same whatever it holds; what replicas
        cost was found to grow with the root (`docs/benchmarks.md`, 2,048 against 16,384 rows).
        """
        if not self.per_jumbo:
            return profile
        dearer, known = CALIBRATED_ROWS / rows, profile.switching
        overheads = Overheads(known.thread_switch * dearer, known.replication * sqrt(dearer))
        calls = max(0.0, 1 / rows - 1 / CALIBRATED_ROWS) * CALL_S * per_s(profile)
        operators = tuple(
            replace(o, cost=o.cost + calls / profile.visits[o.name])
            if profile.visits[o.name] > 0
            else o
            for o in profile.operators
        )
        return replace(profile, operators=operators, overheads=overheads)


def fewest_cores(profile: Profile, target: Target, place: Cores) -> Found:
    """The fewest cores that do; of equals the largest jumbo tuples.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> work = chain([OperatorProfile("parse", 3.0), OperatorProfile("count", 1.0)], unit="ms")
        >>> place = Cores(Machine.of_cores(1), (("parse", "count"),))
        >>> found = fewest_cores(work, Target(rate_per_s=500.0), place)
        >>> found.cores, found.answer.threads, found.rate_per_s
        (3, 3, 750.0)
    """
    tried: list[Fit] = []
    rate = target.rate_per_s / per_s(profile)
    least = max(1, ceil(rate * profile.at_clock(place.machine.ghz).work))
    for cores in range(least, target.most_cores + 1):
        for batch_rows in place.batches:
            for found in _ways(_Trial(place, profile, cores, batch_rows), target):
                if target.in_time(found.latency_ms):
                    return found
                tried.append(found)
    if not tried:
        return _too_little(place.problem(profile, target.most_cores, place.batches[0]))
    nearest = min(tried, key=lambda each: (each.latency_ms, -each.rate_per_s))
    return _too_late(_Trial(place, profile, nearest.cores, nearest.batch_rows), nearest, rate)


@dataclass(frozen=True)
class _Running:
    """A plan at a rate.

    Attributes:
        rows: Of the jumbo tuples that come about.
        work: Per tuple of the application.
        latency: On the slowest way.
        p99: What 99 in a hundred tuples do not exceed; without end if cores do not keep up.
    """

    rows: float
    work: float
    latency: Latency
    p99: float


@dataclass(frozen=True)
class _Trial:
    """So many cores, and jumbo tuples of at most so many rows."""

    place: Cores
    profile: Profile
    cores: int
    batch_rows: int

    @property
    def problem(self) -> Problem:
        """What to ask a planner: jumbo tuples are full at the greatest rate."""
        return self.place.problem(self.profile, self.cores, self.batch_rows)

    def running(self, regions: Sequence[RegionChoice], rate: float) -> _Running:
        """What comes about: of the jumbo tuples that regions keep up with, the fastest."""
        linger = self.place.linger_s * per_s(self.profile)
        rows = gathered_rows(rate, self.batch_rows, linger)
        best = self._with_rows(regions, rate, rows)
        while rows < self.batch_rows:
            rows = min(self.batch_rows, MORE_ROWS * rows)
            larger = self._with_rows(regions, rate, rows)
            if best.p99 < inf and larger.p99 >= best.p99:
                break  # they cost no less, and take longer to gather
            best = larger
        return best

    def _with_rows(self, regions: Sequence[RegionChoice], rate: float, rows: float) -> _Running:
        problem = self.place.problem(self.profile, self.cores, rows)
        promised = estimate(problem.profile, regions, problem.machine.capacity)
        found = latency(problem.profile, regions, rate, rows)
        keeps_up = rate < NEVER_IDLE * promised.throughput
        work = sum(times.work for times in promised.regions)
        return _Running(rows, work, found, found.p99 if keeps_up else inf)


def _ways(trial: _Trial, target: Target) -> Iterator[Fit]:
    """Plans that carry the rate, with more and more headroom."""
    problem, units = trial.problem, per_s(trial.profile)
    rate = target.rate_per_s / units
    last: Answer | None = None
    for more in MORE_HEADROOM:
        answer = cheapest(problem, 1 / (rate * (1 + target.headroom) * more))
        if answer is None:
            return
        if last is None or answer.regions != last.regions:
            running = trial.running(answer.regions, rate)
            yield Fit(
                trial.cores,
                answer,
                answer.throughput * units,
                rate * running.work,
                running.p99 / units * 1e3,
                trial.batch_rows,
            )
        last = answer


# Why not


def _too_late(trial: _Trial, nearest: Fit, rate: float) -> Shortfall:
    """What takes longest where the latency is shortest."""
    if nearest.latency_ms == inf:
        because = "whoever is always at work lets rows wait without end: leave some headroom"
        return Shortfall("rate", nearest.rate_per_s, because)
    running, ms = trial.running(nearest.answer.regions, rate), 1e3 / per_s(trial.profile)
    found, slowest = running.latency, running.latency.slowest
    rows = f"{running.rows:,.0f} row" + ("s" if running.rows > 1 else "")
    because = (
        f"region {slowest.region.operators[0]} works {slowest.work * ms:.3g} ms on {rows}, "
        f"which wait {slowest.wait * ms:.3g} ms before"
    )
    if found.gathering > slowest.work + slowest.wait:
        because = f"{rows} take {found.gathering * ms:.3g} ms to come"
    return Shortfall("latency", nearest.latency_ms, because)


def _too_little(problem: Problem) -> Shortfall:
    """What bounds the rate, however many cores there are."""
    best = exact(problem).throughput * per_s(problem.profile)
    fastest = [_fastest(problem, run) for run in problem.runs]
    slowest = max(reversed(fastest), key=lambda option: option.turn)
    if best * slowest.turn < per_s(problem.profile) * (1 - 1e-9):
        return Shortfall("rate", best, f"{problem.machine.name} are all at work")
    times = pipeline_times(problem.profile, slowest.pipelines)
    names = slowest.pipelines[times.index(max(times))]
    because = f"{' · '.join(names)} is the bottleneck{_why(problem, names)}"
    return Shortfall("rate", best, because)


def _fastest(problem: Problem, run: Sequence[str]) -> Option:
    """The fastest way to run a region, whatever it takes."""
    ways = cuttings(problem.profile, run, True)[len(run)]
    found = options(problem.profile, run, ways, problem.most_threads, True)
    return min(found, key=lambda option: option.turn)


def _why(problem: Problem, names: Sequence[str]) -> str:
    members = [problem.profile.by_name[name] for name in names]
    for operator in members:
        if operator.state is StateKind.STATEFUL:
            return f": {operator.name} is stateful, and so has no replicas"
    bounded = [o.name for o in members if o.max_replicas is not None or o.keys is not None]
    if bounded:
        return f": {bounded[0]} has nothing to do for more replicas"
    return ": more replicas cost more than they gain"


# Sizing for micro-batches: how long a batch takes that holds what came during the one before.
#
# At a rate, batches grow until one takes as long as its rows took to come. There is such a batch as
# long as the cores keep up; a row waits for it at most once as long as it takes, and then that
# long.

LONGEST_S = 600.0
"""Batches that would take longer do not keep up."""
HALVINGS = 16


@dataclass(frozen=True)
class SizedBatches:
    """Micro-batches on so many cores.

    Attributes:
        answer: The plan.
        seconds: How long a batch of so many rows takes.
        work_s: Processor seconds per row.
    """

    answer: Answer
    seconds: Callable[[int], float]
    work_s: float

    def steady_s(self, rate_per_s: float) -> float | None:
        """How long batches take that follow each other at a rate; None if they never keep up.

        Example:
            >>> batches = SizedBatches(Answer((), 0.0, 0.0), lambda rows: 0.2 + rows / 1000, 0.001)
            >>> round(batches.steady_s(500.0), 3), batches.steady_s(1000.0)
            (0.4, None)
        """
        high = self.seconds(1)
        low = 0.0
        while self._takes_longer(high, rate_per_s):
            low, high = high, 2 * high
            if high > LONGEST_S:
                return None
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            longer = self._takes_longer(middle, rate_per_s)
            low, high = (middle, high) if longer else (low, middle)
        return high

    def _takes_longer(self, seconds: float, rate_per_s: float) -> bool:
        """Whether a batch of what comes in some time takes longer than that time."""
        return self.seconds(max(1, round(rate_per_s * seconds))) > seconds

    def greatest_rate(self, near: float) -> float:
        """The rate of batches so long that what is fixed hardly counts."""
        rows = max(1, round(near * LONGEST_S))
        return rows / self.seconds(rows)


def fewest_slots(target: Target, on: Callable[[int], SizedBatches]) -> Found:
    """The fewest cores that do.

    Args:
        target: What is asked for.
        on: Micro-batches on so many cores.
    """
    rate = target.rate_per_s
    shortest_s = most = 0.0
    for cores in range(1, target.most_cores + 1):
        batches = on(cores)
        able, taken_s = batches.greatest_rate(rate), batches.steady_s(rate)
        most = max(most, able)
        if able < rate * (1 + target.headroom) or taken_s is None:
            continue
        if target.in_time(latency_ms(taken_s)):
            return Fit(
                cores,
                batches.answer,
                able,
                rate * batches.work_s,
                latency_ms(taken_s),
                round(rate * taken_s),
            )
        shortest_s = min(shortest_s or taken_s, taken_s)
    if shortest_s:
        because = f"a batch takes {shortest_s * 1e3:,.0f} ms, and a row may wait for the one before"
        return Shortfall("latency", latency_ms(shortest_s), because)
    return Shortfall("rate", most, f"{target.most_cores} cores do not keep up")


def latency_ms(batch_s: float) -> float:
    """What nearly all rows do not exceed: a batch to wait for, and the batch that they are in."""
    return 2 * batch_s * 1e3
