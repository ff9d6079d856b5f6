"""RLAS on the paper's applications and servers: time, rivals, constraints, and the certificate."""

from __future__ import annotations

from functools import partial

from harness import Report, seconds

from anabranch.planning.answer import Answer
from anabranch.planning.planners.placement_baselines import first_fit, os_placement, round_robin
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas, rlas_fix_l, rlas_fix_u
from anabranch.planning.planners.rlas_certified import rlas_certified
from anabranch.planning.planners.search.placing import Placing
from papers.briskstream.figures import random_placements
from papers.briskstream.inputs import APPLICATIONS, SERVERS, application, server
from papers.briskstream.model import rates

RANDOM_PLANS = 1000
LONGEST_S = 3.0


def add_rlas(report: Report, quick: bool) -> None:
    """Search times and RLAS against its rivals; without `--quick` also the certificate's gaps."""
    longest: list[float] = []
    behind: dict[str, list[float]] = {}
    violations = 0
    for where in SERVERS[:1] if quick else SERVERS:
        for app in APPLICATIONS:
            problem = Problem(application(app), server(where))
            answer = rlas(problem)
            taken = min(seconds(partial(rlas, problem)) for _ in range(1 if quick else 3))
            longest.append(taken)
            violations += len(rates(problem.profile, answer.regions, problem.machine).violations)
            report.add_figure(f"rlas_{app}_{where}_s", taken)
            for rival, share in shares_of(problem, answer).items():
                behind.setdefault(rival, []).append(share)
            if not quick:
                gap = rlas_certified(problem).gap
                report.add_figure(f"rlas_certified_{app}_{where}_gap", 0.0 if gap is None else gap)
    report.add_bar("rlas_longest_s", max(longest), LONGEST_S, at_least=False)
    report.add_bar("rlas_violated_constraints", float(violations), 0.0, at_least=False)
    for rival, shares in behind.items():
        report.add_bar(f"{rival}_share_of_rlas_most", max(shares), 1.0, at_least=False)


def shares_of(problem: Problem, answer: Answer) -> dict[str, float]:
    """What rivals reach, as a part of what RLAS does."""
    placing = Placing.of(problem)
    replicas = placing.replicas(answer)
    machine, limit = problem.machine, placing.room.limit
    random = random_placements(placing.workload, machine.sockets, limit, RANDOM_PLANS, seed=1)
    drawn = placing.model().rates(random).bounded
    reached = {
        "rlas_fix_l": rlas_fix_l(problem).throughput,
        "rlas_fix_u": rlas_fix_u(problem).throughput,
        "first_fit": first_fit(problem, replicas).throughput,
        "round_robin": round_robin(problem, replicas).throughput,
        "os": os_placement(problem, replicas).throughput,
        "best_random": float(drawn.max()) * placing.per_ns,
    }
    return {rival: rate / answer.throughput for rival, rate in reached.items()}
