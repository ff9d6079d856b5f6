"""Policies against each other: random flows, machines, loads and troubles, in virtual time.

    python benchmarks/policies.py --scenarios 20 --policies auto,ds2 --seed 1
    python benchmarks/policies.py --show 7 --policies auto

Every policy starts from one thread per region and sees an observation a second. What they are
measured by is said in `policies_runs.py`, what the best plan is in `policies_referee.py`; the same
seed always gives the same figures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from policies_referee import BEST, MAPS
from policies_runs import Arena, needed_changes, run, score
from policies_tables import Done, as_json, cell, show_scenarios, show_summary
from random_loads import TraceSettings

from anabranch.adapt.guards import threads
from anabranch.adapt.policy import Policy
from anabranch.adapt.registry import POLICIES
from anabranch.adapt.registry import policy as find_policy
from anabranch.planning.plan import Plan

SCENARIOS, QUICK_SCENARIOS = 200, 4
WORKERS = 2
TRACE = TraceSettings()


@dataclass(frozen=True)
class Task:
    """One scenario for all policies, so that the referee looks at it once."""

    number: int
    seed: int
    policies: tuple[str, ...]
    maps: str = BEST


def perform(task: Task) -> Done:
    """Let every policy tune a scenario, and judge them."""
    arena = Arena.of(task.number, task.seed, TRACE, task.maps)
    scores = {name: score(arena, run(arena, find_policy(name))) for name in task.policies}
    return Done(task.number, arena.case.kind, scores)


def perform_all(tasks: Sequence[Task], workers: int) -> list[Done]:
    """In the order of the tasks, whoever is done first."""
    if workers == 1:
        return [perform(task) for task in tasks]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return list(pool.imap(perform, tasks, chunksize=1))


def available(names: Sequence[str]) -> tuple[str, ...]:
    """Those that can be imported; the others are told."""
    found = []
    for name in names:
        try:
            find_policy(name)
        except ImportError as error:
            print(f"left out: {name} ({error})", file=sys.stderr)
        else:
            found.append(name)
    return tuple(found)


# One scenario, for who debugs a policy


def show_scenario(task: Task) -> None:
    """What happens, what would be best, and what policies did."""
    arena = Arena.of(task.number, task.seed, TRACE, task.maps)
    case, scenario = arena.case, arena.case.scenario
    print(f"{case.number}: {case.kind}, {case.machine.cores} cores × {case.machine.parallel_share}")
    print(f"  regions {[(r.name, r.kind.value) for r in case.topology.working]}")
    for o in case.profile.operators:
        print(f"  {o.name}: {o.cost:.2f} us, ×{o.selectivity:.2f}, {o.state.value}")
    print(f"  {case.profile.switching}, {case.limits}")
    print(f"  noise {scenario.noise:.2f}, skew {dict(scenario.skew)}, {scenario.switch}")
    for happening in (*scenario.drifts, *scenario.stragglers):
        print(f"  {happening}")
    for phase in arena.phases:
        print(
            f"  {phase.begins_s:6.1f}–{phase.ends_s:5.1f} s: load {phase.load:9,.0f}/s of "
            f"{phase.referee.best:9,.0f}/s, {phase.referee.cheapest(phase.load)} threads do"
            f"{'' if phase.held else ', changing'}"
        )
    for name in task.policies:
        show_run(arena, find_policy(name))


def show_run(arena: Arena, policy: Policy[Any]) -> None:
    """A policy's journal, and what its plans are worth."""
    made = run(arena, policy)
    print(f"\n{policy.name}: {cell(score(arena, made))}")
    lines = [(d.at_s, f"{d.outcome}: {d.why}") for d in made.journal]
    for at_s, plan in made.plans:
        phase = arena.phase(at_s)
        part = phase.referee.capacity(plan) / phase.goal
        told = f"{threads(plan)} threads carry {part:.0%} of the goal: {in_short(arena, plan)}"
        lines.append((at_s, f"→ {told}"))
    for phase, count in needed_changes(arena, made):
        lines.append((phase.ends_s, f"  (since {phase.begins_s:.0f} s: {count} changes)"))
    for at_s, line in sorted(lines, key=lambda each: each[0]):
        print(f"  {at_s:6.1f} s {line}")


def in_short(arena: Arena, plan: Plan) -> str:
    """Replicas × operators of each pipeline, region by region."""
    working = {region.name for region in arena.case.topology.working}
    return ", ".join(
        f"{r.region} {r.replicas}×{'|'.join(str(len(p)) for p in r.pipelines)}"
        for r in plan.regions
        if r.region in working
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--quick", action="store_true", help="a few scenarios: within 45 s")
    parser.add_argument("--scenarios", type=int, help=f"how many; {SCENARIOS} when left out")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--policies", default=",".join(POLICIES), help="names, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--maps", choices=MAPS, default=BEST, help="of the referee")
    parser.add_argument("--show", type=int, metavar="ID", help="one scenario with its journal")
    options = parser.parse_args(arguments)
    policies = available(options.policies.split(","))
    if options.show is not None:
        show_scenario(Task(options.show, options.seed, policies, options.maps))
        return
    count = options.scenarios or (QUICK_SCENARIOS if options.quick else SCENARIOS)
    numbers = range(options.first, options.first + count)
    tasks = [Task(number, options.seed, policies, options.maps) for number in numbers]
    done = perform_all(tasks, options.workers)
    if options.json:
        print(as_json(done, policies))
    else:
        show_scenarios(done, policies)
        show_summary(done, policies)


if __name__ == "__main__":
    main()
