"""Busy operators on the local engine, under plans for one core or several.

The local engine gives each region of a flow its own threads, so even its sequential plan would use
every core. Runs for n cores therefore happen in a process that is kept to n of them. How much work
a unit of cost is, is measured once and the same for all; so is the size of jumbo tuples, which what
a thread switch costs per tuple depends on.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median

from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.engines.measuring.calibration import calibrate, this_machine
from anabranch.engines.measuring.multiplying import nanoseconds_a_multiplication
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.for_flow import as_plan, problem_for
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.planners.planner import THREADS_PER_CORE, Problem
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from anabranch.testing.busy import SINK, SOURCE, busy_flow

ROWS_A_BATCH = 64
"""Tuples of a jumbo tuple: few, since busy operators are dear, so that a run has many of them."""
LEAST_BATCHES, MOST_BATCHES = 20, 600
"""The most are for calibration, whose operators are cheap."""
END_COST_US = 0.2
"""What source and sink are taken to need per tuple; busy ones do next to nothing."""
APPROACHES = ("sequential", "fission", "exact")
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
            for name in APPROACHES
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
