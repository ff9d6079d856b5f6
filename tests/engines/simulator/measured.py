"""What simulations are asked in tests."""

from __future__ import annotations

from typing import Any

from anabranch.engines.simulator.scenario import Scenario
from anabranch.engines.simulator.simulation import Simulation
from anabranch.graph import StateKind
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.profile import OperatorProfile, Profile, chain


def operator(name: str, cost: float, selectivity: float = 1.0, **more: Any) -> OperatorProfile:
    return OperatorProfile(name, cost, selectivity, **more)


def keyed(name: str, cost: float, **more: Any) -> OperatorProfile:
    return OperatorProfile(name, cost, state=StateKind.PARTITIONED, key=("k",), **more)


def in_ms(*operators: OperatorProfile) -> Profile:
    """A chain whose costs are milliseconds: rates come out in thousands a second."""
    return chain(list(operators), unit="ms")


def alone(*names: str) -> list[RegionChoice]:
    """Every operator a region of its own, once."""
    return [RegionChoice(((name,),)) for name in names]


def simulation(
    profile: Profile,
    regions: list[RegionChoice],
    machine: Machine | int = 64,
    seed: int = 0,
    rows: int | None = None,
    **happening: Any,
) -> Simulation:
    """A run with short queues, so that it is soon as it stays."""
    place = Machine.of_cores(machine) if isinstance(machine, int) else machine
    scenario = Scenario(**({"queue_tuples": 20} | happening))
    return Simulation(profile, regions, place, scenario, seed, rows)


def rate(run: Simulation, seconds: float = 4.0, source: str | None = None) -> float:
    """Tuples that one source reads a second from now on."""
    name = source or next(iter(run.intake.sources))
    before = run.intake.sources[name].read
    run.advance(seconds)
    return (run.intake.sources[name].read - before) / seconds


def settled_rate(run: Simulation, warm_up: float = 4.0) -> float:
    """The same when queues have filled."""
    run.advance(warm_up)
    return rate(run)
