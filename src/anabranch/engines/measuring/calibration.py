"""Calibration: what parallelism costs on an engine, and what this machine can do.

Pipelined Fission (Gedik, Özsema, Öztürk), §5.3.1 and 5.3.2: throughputs of two small programs give
the thread switching overhead (eq. 15 to 17) and the replication cost (eq. 18 and 19, whose printed
denominator is a misprint: it follows from 18).

Deviations:
- The paper's pipelines and replicas are threads. On the local engine they are on worker processes:
  its thread switching overhead is what handing tuples to another process costs.
- The paper assumes that threads on cores of their own do not slow each other down. On a small
  machine they do, and the machine is the reason, not the engine. So a number of threads counts as
  the cores that it is worth (`effective`); where cores are independent and there are enough of
  them, the equations are the paper's.
- What source and sink do is not counted: what they spend on handing tuples over is found in δ and
  c_p as well, which can make δ twice what it is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Protocol

from anabranch.engines.cpu_topology import cpu_sockets
from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.engines.measuring.busy_flows import SOURCE, busy_flow, replaying
from anabranch.engines.measuring.processor import (
    clock_ghz,
    copying_mb_s,
    multiplying_s,
    nanoseconds_a_multiplication,
)
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, chain
from anabranch.planning.regions import RegionKind, regions
from anabranch.planning.starting import LOCAL_BATCH_ROWS

REPEATS = 5
PROBE_S = 0.05

CHEAP_US = 0.3
"""Cost of an operator to calibrate with: little enough for overheads to show beside it."""


class Bench(Protocol):
    """Runs busy operators on an engine.

    An implementer owes: tuples a second, in the steady state, of one region made of the operators
    of the profile, behind a source and before a sink that cost next to nothing.
    """

    def rate_per_s(self, profile: Profile, pipelines: Sequence[int], replicas: int) -> float:
        """The rate of a region that is cut so and has so many replicas."""


Quartiles = tuple[float, float, float]


@dataclass(frozen=True)
class Calibrated:
    """What was measured, in nanoseconds a tuple: how far repetitions lay apart.

    Attributes:
        thread_switch: What equation 17 gave.
        stateless: Replication cost of a stateless operator.
        partitioned: The same of a partitioned one, whose tuples are dealt out by key.
    """

    thread_switch: Quartiles
    stateless: Quartiles
    partitioned: Quartiles

    @property
    def overheads(self) -> Overheads:
        """What planners take: medians, never below 0; of two ways to replicate, the dearer."""
        dearer = max(self.stateless[1], self.partitioned[1])
        return Overheads(max(0.0, self.thread_switch[1]), max(0.0, dearer))


def thread_switch_ns(one_thread: float, two_threads: float, effective: float = 2.0) -> float:
    """δ by equation 17, from tuples a second; `effective` is what two threads are worth.

    Example:
        >>> round(thread_switch_ns(one_thread=1e9 / 200, two_threads=1e9 / 110), 6)
        10.0
    """
    return 1e9 * (effective / 2 / two_threads - 1 / (2 * one_thread))


def replication_ns(rates: dict[int, float], effective: Callable[[int], float] = float) -> float:
    """c_p by equation 19, from the tuples a second of two numbers of replicas.

    Example:
        >>> round(replication_ns({1: 1e9 / 100, 2: 1e9 / 55}), 6)
        5.0
    """
    (few, slow), (many, fast) = sorted(rates.items())
    cores = {few: effective(few), many: effective(many)}
    left = cores[few] / slow - cores[many] / fast
    return 1e9 * left / (cores[few] * log2(few) - cores[many] * log2(many))


def calibrate(
    bench: Bench, machine: Machine, repeats: int = REPEATS, switching: Bench | None = None
) -> Calibrated:
    """Overheads of an engine; programs take turns, so that a slow moment hits all of them alike.

    Args:
        bench: Runs them.
        machine: Where.
        repeats: How often, behind a first turn that warms up.
        switching: Runs those that tell what a thread switch costs, if it is another bench.
    """
    pair = chain([OperatorProfile("a", CHEAP_US), OperatorProfile("b", CHEAP_US)], unit="us")
    one = chain([OperatorProfile("a", 2 * CHEAP_US)], unit="us")
    keyed = OperatorProfile("a", 2 * CHEAP_US, state=StateKind.PARTITIONED, key=("key",))
    most = max(2, machine.cores)

    def effective(threads: int) -> float:
        return 1.0 if threads == 1 else min(float(threads), machine.capacity)

    def switch() -> float:
        whole, cut = ((switching or bench).rate_per_s(pair, p, 1) for p in ((2,), (1, 1)))
        return thread_switch_ns(whole, cut, effective(2))

    def replication(program: Profile) -> float:
        rates = {n: bench.rate_per_s(program, (1,), n) for n in (1, most)}
        return replication_ns(rates, effective)

    turns = [
        (switch(), replication(one), replication(chain([keyed], unit="us")))
        for _ in range(1 + repeats)
    ]
    return Calibrated(*(_quartiles(figures) for figures in zip(*turns[1:], strict=True)))


def _quartiles(values: Sequence[float]) -> Quartiles:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def this_machine(name: str = "this machine", tries: int = 7) -> Machine:
    """Sockets, cores, clock, memory bandwidth, and what all cores are worth at once."""
    sockets = cpu_sockets()
    cores = max(len(cpus) for cpus in sockets.values())
    total = sum(len(cpus) for cpus in sockets.values())
    bandwidth = max(copying_mb_s() for _ in range(3))
    return Machine(
        name,
        len(sockets),
        cores,
        ghz=clock_ghz(),
        # Between sockets this process cannot tell whose memory it copies: no matrix, no bound.
        bandwidth_mb_s=((bandwidth,),) if len(sockets) == 1 else (),
        parallel_share=statistics.median(parallel_share(total) for _ in range(tries)),
    )


def parallel_share(cores: int) -> float:
    """Speed of so many busy threads at once, as a part of their speeds one by one."""
    if cores == 1:
        return 1.0
    work = 1e9 * PROBE_S / nanoseconds_a_multiplication()
    alone = multiplying_s(work)
    together = multiplying_s(work, cores)
    alone = (alone + multiplying_s(work)) / 2  # before and after: the clock drifts
    return min(1.0, alone / together)


# Busy flows on the local engine, timed in their steady state.

WARM_UP = 0.3
"""Part of the time that is not counted: readers first fill the queues."""
FIRST_ROWS_S = 10.0
"""How long a run may take until rows have come to its sink: new workers need a moment to start."""
POLL_S = 0.01
BATCHES_HELD = 8

SWITCH_ROWS = 1024
"""Tuples of a jumbo tuple to measure its handing over with."""


class LocalBench:
    """A `Bench` of the local engine.

    Args:
        batch_rows: Tuples of a jumbo tuple.
        seconds: How long each program runs.
    """

    def __init__(self, batch_rows: int = LOCAL_BATCH_ROWS, seconds: float = 0.4) -> None:
        self._batch_rows, self._seconds = batch_rows, seconds

    def rate_per_s(self, profile: Profile, pipelines: Sequence[int], replicas: int) -> float:
        """The rate of a region that is cut so and has so many replicas."""
        flow = replaying(busy_flow(profile, None), BATCHES_HELD * self._batch_rows)
        plan = Plan.sequential(flow).with_source(SOURCE, batch_rows=self._batch_rows)
        region = next(
            r for r in regions(flow) if r.kind not in (RegionKind.SOURCE, RegionKind.SINK)
        )
        plan = plan.with_replicas(region.name, replicas).with_pipelines(region.name, *pipelines)
        return steady_rate_per_s(flow, plan, self._seconds)


def calibrate_local(machine: Machine, batch_rows: int, repeats: int = REPEATS) -> Calibrated:
    """Overheads of the local engine, with jumbo tuples of so many rows.

    Worker processes hand over jumbo tuples through shared memory, and most of the cost is paid per
    jumbo tuple. It is measured with small ones, where it shows, and divided among the tuples of
    larger ones.
    """
    benches = LocalBench(batch_rows), LocalBench(SWITCH_ROWS)
    found = calibrate(benches[0], machine, repeats, benches[1])
    low, median, high = (SWITCH_ROWS * each / batch_rows for each in found.thread_switch)
    return replace(found, thread_switch=(low, median, high))


def steady_rate_per_s(flow: Flow, plan: Plan, seconds: float) -> float:
    """Return the tuples a second that a flow without end reads, once it is under way."""
    engine = LocalEngine(flow, plan, Options())
    engine.start(lambda event: None)
    try:
        until_s = time.monotonic() + FIRST_ROWS_S
        while not engine.rows[1] and time.monotonic() < until_s and not engine.wait(POLL_S):
            pass
        engine.wait(WARM_UP * seconds)
        before, since_s = engine.rows[0], time.monotonic()
        engine.wait((1 - WARM_UP) * seconds)
        return (engine.rows[0] - before) / (time.monotonic() - since_s)
    finally:
        engine.stop()
