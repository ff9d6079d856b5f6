"""Sizing for threads: machines of 1, 2, 3 … cores, until one has a plan that does.

Which plan: the one with fewest threads in the fission model (`models/fission.py`), given more
headroom as long as its latency (`models/latency.py`) is too long; and jumbo tuples as large as the
latency allows, since handing one over costs the same whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

from anabranch.plan.answer import Answer
from anabranch.plan.flow_model import cheapest, per_s
from anabranch.plan.machine import Machine
from anabranch.plan.models.fission import estimate, pipeline_times
from anabranch.plan.models.latency import latency
from anabranch.plan.planners.exact import exact
from anabranch.plan.planners.planner import Problem
from anabranch.plan.planners.search.region_options import Option, cuttings, options
from anabranch.plan.profile import Overheads, Profile, State
from anabranch.plan.sizing import Fit, Found, Shortfall, Target

MORE_HEADROOM = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0)
CALIBRATED_ROWS = 16_384
"""Rows of the jumbo tuples that `anabranch calibrate` measures with."""
BATCHES = (16_384, 8_192, 4_096, 2_048, 1_024, 512, 256)


@dataclass(frozen=True)
class Cores:
    """What an application can run on.

    Attributes:
        machine: What cores are like; their number does not matter.
        regions: The regions of the application.
        batches: Rows of a jumbo tuple that it may use, most first.
        per_jumbo: Whether what parallelism costs was measured with jumbo tuples of
            `CALIBRATED_ROWS`; else it is the same for each tuple.
    """

    machine: Machine
    regions: tuple[tuple[str, ...], ...]
    batches: tuple[int, ...] = (1,)
    per_jumbo: bool = False

    def problem(self, profile: Profile, cores: int, batch_rows: int) -> Problem:
        """What to ask a planner."""
        known = self._with_batches(profile, batch_rows)
        return Problem(known, self.of(cores), None, self.regions)

    def of(self, cores: int) -> Machine:
        """So many cores, on one socket."""
        near = replace(self.machine, sockets=1, latency_ns=(), bandwidth_mb_s=(), nodes=1)
        return replace(near, name=f"{cores} cores", cores_per_socket=cores)

    def _with_batches(self, profile: Profile, rows: int) -> Profile:
        """A profile with what parallelism costs when jumbo tuples hold so many rows.

        Handing one over costs the same whatever it holds; what replicas cost was found to grow
        with the root (`docs/benchmarks.md`, 2,048 against 16,384 rows).
        """
        if not self.per_jumbo:
            return profile
        dearer, known = CALIBRATED_ROWS / rows, profile.switching
        overheads = Overheads(known.thread_switch * dearer, known.replication * sqrt(dearer))
        return replace(profile, overheads=overheads)


def fewest_cores(profile: Profile, target: Target, place: Cores) -> Found:
    """The fewest cores that do; of equals the largest jumbo tuples.

    Example:
        >>> from anabranch.plan.profile import OperatorProfile, chain
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
            for found in _ways(place.problem(profile, cores, batch_rows), target, batch_rows):
                if target.in_time(found.latency_ms):
                    return found
                tried.append(found)
    if not tried:
        return _too_little(place.problem(profile, target.most_cores, place.batches[0]))
    nearest = min(tried, key=lambda each: each.latency_ms)
    return _too_late(place.problem(profile, nearest.cores, nearest.batch_rows), nearest, rate)


def _ways(problem: Problem, target: Target, batch_rows: int) -> Iterator[Fit]:
    """Plans that carry the rate, with more and more headroom."""
    profile, units = problem.profile, per_s(problem.profile)
    rate = target.rate_per_s / units
    last: Answer | None = None
    for more in MORE_HEADROOM:
        answer = cheapest(problem, 1 / (rate * (1 + target.headroom) * more))
        if answer is None:
            return
        if last is None or answer.regions != last.regions:
            promised = estimate(profile, answer.regions, problem.machine.capacity)
            work = sum(times.work for times in promised.regions)
            p99 = latency(profile, answer.regions, rate, batch_rows).p99
            yield Fit(
                problem.machine.cores,
                answer,
                promised.throughput * units,
                rate * work,
                p99 / units * 1e3,
                batch_rows,
            )
        last = answer


# Why not


def _too_late(problem: Problem, nearest: Fit, rate: float) -> Shortfall:
    """What takes longest where the latency is shortest."""
    found = latency(problem.profile, nearest.answer.regions, rate, nearest.batch_rows)
    slowest, ms = found.slowest, 1e3 / per_s(problem.profile)
    rows = f"{nearest.batch_rows} row" + ("s" if nearest.batch_rows > 1 else "")
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
        if operator.state is State.STATEFUL:
            return f": {operator.name} is stateful, and so has no replicas"
    bounded = [o.name for o in members if o.max_replicas is not None or o.keys is not None]
    if bounded:
        return f": {bounded[0]} has nothing to do for more replicas"
    return ": more replicas cost more than they gain"
