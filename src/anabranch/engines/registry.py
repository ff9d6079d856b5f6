"""Engines by name; each is imported when it is asked for, so that others need not be there."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.engine import Engine, Options
from anabranch.engines.simulator.scenario import Scenario
from anabranch.errors import EngineError, Subject, unknown
from anabranch.flow import Flow
from anabranch.planning.machine import Machine, with_overheads
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile

ENGINES = ("spark", "local")
"""Those that run operators and have results."""
SIMULATOR = "simulator"


@dataclass(frozen=True)
class Simulated:
    """What the simulator has to know.

    Attributes:
        machine: Where the flow runs; this machine when left out.
        profile: What steps cost; each is run by itself on the flow's data when left out.
        scenario: What happens meanwhile; nothing when left out.
        seed: Decides what is left to chance.
    """

    machine: Machine | None = None
    profile: Profile | None = None
    scenario: Scenario | None = None
    seed: int = 0


def require_results(name: str) -> None:
    """Refuse what is no engine that runs operators."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)


def engine_of(
    name: str,
    flow: Flow,
    plan: Plan | None,
    options: Options,
    simulated: Simulated | None = None,
) -> Engine:
    """The engine of a name."""
    if options.workers is not None and (name != "local" or options.workers < 0):
        raise EngineError(
            Subject("argument", "workers"),
            "a number of worker processes from 0 on, for the local engine",
            f"{options.workers} for {name}",
            "leave it out: other engines have workers of their own",
        )
    if name == "spark":
        from anabranch.engines.spark.engine import SparkEngine

        return SparkEngine(flow, plan, options)
    if name == "local":
        from anabranch.engines.local.engine import LocalEngine

        return LocalEngine(flow, plan, options)
    if name == SIMULATOR:
        return _simulator(flow, plan, options, simulated or Simulated())
    raise unknown("engine", name, [*ENGINES, SIMULATOR])


def _simulator(flow: Flow, plan: Plan | None, options: Options, given: Simulated) -> Engine:
    from anabranch.engines.measuring.profiling import profile_flow
    from anabranch.engines.simulator.engine import SimulatorEngine

    machine = given.machine or Machine.of_cores(len(usable_cpus()))
    profile = with_overheads(given.profile or profile_flow(flow), machine)
    return SimulatorEngine(flow, plan, options, profile, machine, given.scenario, seed=given.seed)
