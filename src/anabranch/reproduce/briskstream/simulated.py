"""What the simulator shows of a placed plan: the stand-in for servers that are not here."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.engines.simulator.simulation import Simulation
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine
from anabranch.planning.profile import NANOSECONDS, Profile

WARM_UP_SHARE = 0.25
"""Virtual time before counting, as a part of the time counted: queues fill meanwhile."""


def simulated_throughput(
    profile: Profile, regions: Sequence[RegionChoice], machine: Machine, seconds: float
) -> float:
    """Tuples that sinks handle in virtual time, in the inverse of the profile's unit.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> profile = chain([OperatorProfile("read", 2.0), OperatorProfile("out", 1.0)], unit="us")
        >>> plan = [RegionChoice((("read",),)), RegionChoice((("out",),))]
        >>> round(simulated_throughput(profile, plan, Machine.of_cores(2), 1.0), 3)
        0.5
    """
    run = Simulation(profile, regions, machine)
    run.advance(WARM_UP_SHARE * seconds)
    before = _handled(run)
    run.advance(seconds)
    units = seconds * 1e9 / NANOSECONDS[profile.unit or "ns"]
    return (_handled(run) - before) / units


def _handled(run: Simulation) -> float:
    sinks = [o.name for o in run.profile.operators if not run.profile.out_of(o.name)]
    return sum(run.totals.operators[name].rows_in for name in sinks)
