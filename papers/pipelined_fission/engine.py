"""Pipelined Fission's figures 13 to 16 and 18 on the local engine, with busy operators.

Where the paper has threads, the local engine has worker processes: as many as the plan has replicas
or pipelines of a region. Another process coordinates them, so even a sequential plan would use two
cores. Runs for n cores therefore happen in a process that is kept to n of them, and with it the
workers that it starts. The work of one unit of cost is measured once and is the same for all runs;
so is the size of jumbo tuples, on which the cost of a thread switch per tuple depends.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import exp, log
from statistics import mean, median

import numpy as np

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.engines.measuring.busy_flows import SINK, SOURCE, busy_flow
from anabranch.engines.measuring.calibration import calibrate, this_machine
from anabranch.engines.measuring.processor import nanoseconds_a_multiplication
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.flow_problem import as_plan, problem_for
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.planners.planner import THREADS_PER_CORE, Problem
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from papers.pipelined_fission.model import MEASURED, SEED, US_PER_UNIT, log_watch
from papers.pipelined_fission.random_profiles import TABLE_1, ChainSettings, random_chain

ROWS_A_BATCH = 64
"""Tuples of a jumbo tuple: few, since busy operators are dear, so that a run has many of them."""
LEAST_BATCHES, MOST_BATCHES = 20, 600
"""The most are for calibration, whose operators are cheap."""
END_COST_US = 0.2
"""What source and sink are taken to need per tuple; busy ones do next to nothing."""
ONE_CORE = Machine.of_cores(1)


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        profile: A chain, in microseconds.
        machine: What it is planned for, and whose number of cores the run is kept to.
        seconds: How long it would take one core.
        planner: Who plans it; None for the pipelines and replicas that are given, which the one
            region between source and sink then has.
        pipelines: Lengths of the region's pipelines.
        replicas: Of the region.
    """

    profile: Profile
    machine: Machine
    seconds: float
    planner: str | None
    pipelines: tuple[int, ...] = (1,)
    replicas: int = 1


@dataclass(frozen=True)
class Ran:
    """What came out: tuples per second, and the plan in words."""

    rows_per_s: float
    plan: str


class Bench:
    """Runs jobs, each in a process that is kept to its cores; calibration can use it, too."""

    def __init__(
        self, workers: dict[int, ProcessPoolExecutor], machine: Machine, seconds: float
    ) -> None:
        """Start nothing."""
        self.machine, self.seconds = machine, seconds
        self._workers = workers
        self._multiplication_ns = nanoseconds_a_multiplication()

    def rate_per_s(self, profile: Profile, pipelines: Sequence[int], replicas: int) -> float:
        """Tuples a second of one region, on all cores."""
        given = Job(profile, self.machine, self.seconds, None, tuple(pipelines), replicas)
        return self.run(given).rows_per_s

    def run(self, job: Job) -> Ran:
        """Run it once, alone."""
        worker = self._workers[job.machine.cores]
        return worker.submit(run_job, job, self._multiplication_ns).result()

    def compared(self, profile: Profile, repeats: int) -> dict[str, Ran]:
        """Each approach on one chain: sequential on one core, the others on all; medians.

        They take turns, so that a slow moment of the machine hits all of them.
        """
        jobs = {
            name: Job(
                profile, ONE_CORE if name == "sequential" else self.machine, self.seconds, name
            )
            for name in MEASURED
        }
        rounds = [{name: self.run(job) for name, job in jobs.items()} for _ in range(repeats)]
        return {
            name: Ran(median(one[name].rows_per_s for one in rounds), rounds[0][name].plan)
            for name in jobs
        }

    def overheads_us(self, repeats: int) -> Overheads:
        """What parallelism costs on the local engine (sections 5.3.1 and 5.3.2)."""
        found = calibrate(self, self.machine, repeats).overheads
        return Overheads(found.thread_switch / 1e3, found.replication / 1e3)


@contextmanager
def bench(seconds: float) -> Iterator[Bench]:
    """A bench with processes for one core and for all of them; runs take so long on one core."""
    context = multiprocessing.get_context("spawn")
    machine = this_machine()
    with ExitStack() as stack:
        workers = {
            cores: stack.enter_context(
                ProcessPoolExecutor(1, context, initializer=_keep_to, initargs=(cores,))
            )
            for cores in {1, machine.cores}
        }
        yield Bench(workers, machine, seconds)


def _keep_to(cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def run_job(job: Job, multiplication_ns: float) -> Ran:
    """Run a job in this process."""
    batches = 1e6 * job.seconds / job.profile.work / ROWS_A_BATCH
    rows = ROWS_A_BATCH * round(min(max(batches, LEAST_BATCHES), MOST_BATCHES))
    flow = busy_flow(job.profile, rows, multiplication_ns=multiplication_ns)
    plan = planned(flow, job).with_source(SOURCE, batch_rows=ROWS_A_BATCH)
    engine = LocalEngine(flow, plan, Options())
    started_s = time.perf_counter()
    engine.start(lambda event: None)
    engine.wait()
    return Ran(rows / (time.perf_counter() - started_s), str(plan))


def planned(flow: Flow, job: Job) -> Plan:
    """The plan of a job for its flow."""
    if job.planner is not None:
        problem = problem_for(flow, with_ends(job.profile), job.machine)
        return as_plan(flow, PLANNERS[job.planner](_roomy(problem)))
    plan = Plan.sequential(flow)
    (name,) = (one.region for one in plan.regions if one.region != SINK)
    return plan.with_pipelines(name, *job.pipelines).with_replicas(name, job.replicas)


def with_ends(profile: Profile) -> Profile:
    """The profile of the whole flow: source and sink added, one replica each.

    Example:
        >>> [one.name for one in with_ends(chain([OperatorProfile("a", 1.0)])).operators]
        ['source', 'a', 'sink']
    """
    source, sink = (
        OperatorProfile(name, END_COST_US, state=StateKind.STATEFUL) for name in (SOURCE, SINK)
    )
    return chain([source, *profile.operators, sink], profile.overheads, profile.unit)


def _roomy(problem: Problem) -> Problem:
    """A flow's regions need a thread each; what parallelism may add comes on top."""
    most = problem.least_threads + THREADS_PER_CORE * problem.machine.cores
    return replace(problem, threads=most)


@dataclass(frozen=True)
class EngineSweep:
    """A figure: what is varied, and the chains' settings at each value."""

    figure: str
    varied: str
    settings: dict[float, ChainSettings]


@dataclass(frozen=True)
class EnginePoint:
    """What the engine did at one value.

    Attributes:
        x: The value.
        rows_per_s: Tuples a second by approach, geometric means over chains.
        same_plans: Part of the chains for which the heuristic finds the very plan of `exact`.
    """

    x: float
    rows_per_s: dict[str, float]
    same_plans: float

    @property
    def of_optimal(self) -> float:
        """What the heuristic's plans reach of the optimal ones."""
        return self.rows_per_s["fission"] / self.rows_per_s["exact"]

    @property
    def speedup(self) -> float:
        """What the heuristic's plans gain over one core."""
        return self.rows_per_s["fission"] / self.rows_per_s["sequential"]


@dataclass(frozen=True)
class EngineCurves:
    """A figure as it came out."""

    figure: str
    varied: str
    points: tuple[EnginePoint, ...]


def engine_sweeps(points: int) -> tuple[EngineSweep, ...]:
    """Figures 13 to 16, each with so many values over its range.

    Example:
        >>> [(one.figure, list(one.settings)) for one in engine_sweeps(2)][:2]
        [('figure 13', [0.3, 1.0]), ('figure 14', [50.0, 250.0])]
    """

    def values(first: float, last: float) -> list[float]:
        return [round(float(x), 2) for x in np.linspace(first, last, points)]

    return (
        EngineSweep(
            "figure 13",
            "mean selectivity",
            {x: replace(TABLE_1, selectivity_mean=x) for x in values(0.3, 1.0)},
        ),
        EngineSweep(
            "figure 14",
            "mean operator cost",
            {x: replace(TABLE_1, cost_mean=x) for x in values(50, 250)},
        ),
        EngineSweep(
            "figure 15",
            "operators",
            {round(x): replace(TABLE_1, operators=round(x)) for x in values(2, 8)},
        ),
        EngineSweep(
            "figure 16",
            "fraction of stateless operators",
            {x: replace(TABLE_1, stateless=x) for x in values(0, 0.8)},
        ),
    )


def run_sweep(
    sweep: EngineSweep, runs: Bench, overheads: Overheads, chains: int, repeats: int
) -> EngineCurves:
    """All points of a figure: so many chains each, so many runs of each plan."""
    return EngineCurves(
        sweep.figure,
        sweep.varied,
        tuple(
            _point(x, _drawn(settings, overheads, chains), runs, repeats)
            for x, settings in sweep.settings.items()
        ),
    )


def run_log_watch(runs: Bench, overheads: Overheads, repeats: int) -> EnginePoint:
    """LogWatch on one core and on all there are."""
    return _point(runs.machine.cores, [log_watch(overheads)], runs, repeats)


def in_microseconds(profile: Profile, overheads: Overheads) -> Profile:
    """A chain of Table 1 in the paper's time, with the overheads of the engine here.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile
        >>> scaled = in_microseconds(chain([OperatorProfile("a", 200.0)]), Overheads())
        >>> round(scaled.work, 9), scaled.unit
        (19.0, 'us')
    """
    operators = [replace(one, cost=one.cost * US_PER_UNIT) for one in profile.operators]
    return chain(operators, overheads, unit="us")


def _drawn(settings: ChainSettings, overheads: Overheads, chains: int) -> list[Profile]:
    rng = np.random.default_rng(SEED)
    return [in_microseconds(random_chain(rng, settings), overheads) for _ in range(chains)]


def _point(x: float, profiles: Sequence[Profile], runs: Bench, repeats: int) -> EnginePoint:
    ran = [once_if_equal(runs.compared(profile, repeats)) for profile in profiles]
    return EnginePoint(
        x,
        {name: exp(mean(log(one[name].rows_per_s) for one in ran)) for name in MEASURED},
        mean(one["fission"].plan == one["exact"].plan for one in ran),
    )


def once_if_equal(ran: dict[str, Ran]) -> dict[str, Ran]:
    """Where both planners find the same plan, what differs between its runs is noise."""
    first, second = ran["fission"], ran["exact"]
    if first.plan != second.plan:
        return ran
    both = Ran(mean((first.rows_per_s, second.rows_per_s)), first.plan)
    return ran | {"fission": both, "exact": both}
