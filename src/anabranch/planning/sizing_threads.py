"""Sizing for threads: machines of 1, 2, 3 … cores, until one has a plan that does.

Which plan: the one with fewest threads in the fission model (`models/fission.py`), given more
headroom as long as its latency (`models/latency.py`) is too long; and jumbo tuples as large as the
latency allows, since handing one over costs the same whatever it holds. At a low rate they are not
full when the engine hands them on; where that costs more than a region has time for, rows wait at
the source, and come in larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt

from anabranch.graph import StateKind
from anabranch.planning.answer import Answer, RegionChoice
from anabranch.planning.flow_model import cheapest, per_s
from anabranch.planning.machine import Machine
from anabranch.planning.models.fission import estimate, pipeline_times
from anabranch.planning.models.latency import NEVER_IDLE, Latency, gathered_rows, latency
from anabranch.planning.planners.exact import exact
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.region_options import Option, cuttings, options
from anabranch.planning.profile import Overheads, Profile
from anabranch.planning.sizing import Fit, Found, Shortfall, Target

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
