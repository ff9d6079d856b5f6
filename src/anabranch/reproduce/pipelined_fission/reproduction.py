"""Pipelined Fission (Gedik, Özsema, Öztürk, 2016): its figures by the model and on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.planning.profile import Overheads
from anabranch.reproduce.claims import Claim
from anabranch.reproduce.machine import Machine, free_share
from anabranch.reproduce.pipelined_fission.bench import bench
from anabranch.reproduce.pipelined_fission.claims import model_claims
from anabranch.reproduce.pipelined_fission.engine import (
    EngineCurves,
    EnginePoint,
    engine_sweeps,
    run_log_watch,
    run_sweep,
)
from anabranch.reproduce.pipelined_fission.engine_claims import (
    engine_claims,
    log_watch_claims,
    time_claims,
)
from anabranch.reproduce.pipelined_fission.logwatch import (
    PAPER_CORES,
    PAPER_SPEEDUP,
    CoresPoint,
    figure_18,
    replication_for,
)
from anabranch.reproduce.pipelined_fission.model import (
    Curves,
    SolveTime,
    compute,
    figure_4,
    figure_12,
    sweeps,
)

FIGURE_4_OPERATORS, FIGURE_4_THREADS = (2, 4, 6, 8, 10), (2, 4, 8, 12, 16)


@dataclass(frozen=True)
class Effort:
    """How much is computed and measured.

    Attributes:
        chains: Chains of each point of figures 5 to 11; 1000 in the paper.
        sizes: Operators and cores of figure 12.
        solves: Problems of each size.
        engine_points: Values of each of figures 13 to 16.
        engine_chains: Chains of each; 50 in the paper.
        seconds: How long one core would need for a run.
        repeats: Runs of each plan; medians count.
    """

    chains: int = 150
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9)
    solves: int = 15
    engine_points: int = 4
    engine_chains: int = 3
    seconds: float = 0.6
    repeats: int = 3


FULL = Effort()
QUICK = Effort(
    chains=8,
    sizes=(3, 6, 9),
    solves=3,
    engine_points=2,
    engine_chains=1,
    seconds=0.25,
    repeats=1,
)


@dataclass(frozen=True)
class Reproduction:
    """All that was computed and measured, and what follows from it."""

    effort: Effort
    machine: Machine
    seconds: float
    figure_4: dict[int, list[int]]
    curves: list[Curves]
    figure_12: list[SolveTime]
    overheads_us: Overheads
    engine: list[EngineCurves]
    figure_18: list[CoresPoint]
    log_watch_replication_us: float
    log_watch_here: EnginePoint
    claims: list[Claim]

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {"paper": "pipelined-fission", **asdict(self)}


def reproduce(effort: Effort = FULL, tell: Callable[[str], None] = print) -> Reproduction:
    """Compute and measure everything, one thing after the other; `tell` hears what comes next."""
    started_s = time.monotonic()
    free = free_share()
    curves = []
    for sweep in sweeps():
        tell(f"{sweep.figure}: {sweep.varied}, by the model")
        curves.append(compute(sweep, effort.chains))
    tell("figure 12: how long planners take")
    times = figure_12(effort.sizes, effort.solves)
    tell("figure 18: LogWatch by the model")
    log_watch = figure_18(range(1, PAPER_CORES + 1))
    replication = replication_for(PAPER_SPEEDUP, PAPER_CORES)
    tell("sections 5.3.1 and 5.3.2: overheads of the local engine")
    with bench(effort.seconds) as runs:
        overheads = runs.overheads_us(effort.repeats)
        engine = []
        for figure in engine_sweeps(effort.engine_points):
            tell(f"{figure.figure}: {figure.varied}, on the local engine")
            chains, repeats = effort.engine_chains, effort.repeats
            engine.append(run_sweep(figure, runs, overheads, chains, repeats))
        tell("figure 18: LogWatch on the local engine")
        here = run_log_watch(runs, overheads, effort.repeats)
    machine = Machine.here(min(free, free_share()))
    return Reproduction(
        effort,
        machine,
        time.monotonic() - started_s,
        figure_4(FIGURE_4_OPERATORS, FIGURE_4_THREADS),
        curves,
        times,
        overheads,
        engine,
        log_watch,
        replication,
        here,
        [
            *model_claims(curves),
            *time_claims(times),
            *engine_claims(engine, machine),
            *log_watch_claims(log_watch, replication, here, machine),
        ],
    )
