"""A scripted run of three regions whose throughput follows from their replicas, with a backlog."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.engines.simulator.flows import flow_of
from anabranch.events import Observation
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain
from tests.adapt.scripted import observation

NAMES = ("a", "b", "c")


def three_regions() -> Flow:
    """A chain of three regions, each partitioned by a key of its own."""
    return flow_of(
        chain(
            [
                OperatorProfile(name, 1.0, state=StateKind.PARTITIONED, key=(f"key_{name}",))
                for name in NAMES
            ]
        )
    )


def two_steps_of_one_region() -> Flow:
    """A chain of two steps with the same key, which can be cut into two pipelines."""
    keyed = {"state": StateKind.PARTITIONED, "key": ("k",)}
    return flow_of(chain([OperatorProfile(name, 1.0, **keyed) for name in ("one", "two")]))


class LinearSystem:
    """What is observed of it, second by second; use `script` with `ScriptedRun`.

    Args:
        rates: Tuples per second that one replica of each region can do.
        passes: Tuples out per tuple in, by region.
        offered: Tuples that come to the source in a second; None for as many as can be read.
        loss: Part of its rate that a replica loses to each other one.
    """

    def __init__(
        self,
        rates: Mapping[str, float],
        passes: Mapping[str, float],
        offered: Callable[[int], float | None],
        loss: float = 0.0,
    ) -> None:
        self._rates, self._passes, self._offered, self._loss = rates, passes, offered, loss
        self._backlog = 0.0

    def script(self, plan: Plan, second: int) -> Observation:
        """One second under a plan."""
        reach, capacities = self._reach(), {}
        for name in NAMES:
            replicas = plan.region(name).replicas
            each = self._rates[name] / (1 + self._loss * (replicas - 1))
            capacities[name] = replicas * each / reach[name]
        offered = self._offered(second)
        can = min(capacities.values())
        read = can if offered is None else min(can, self._backlog + offered)
        self._backlog += 0.0 if offered is None else offered - read
        into = {name: int(read * reach[name]) for name in NAMES}
        out = {name: int(read * reach[name] * self._passes[name]) for name in NAMES}
        busy = {name: [read / capacities[name]] for name in NAMES}
        spent = {name: plan.region(name).replicas * busy[name][0] for name in NAMES}
        steps = {name: (into[name], out[name], spent[name]) for name in NAMES}
        steps["c.output"] = (out["c"], out["c"], 0.0)
        busy["c.output"] = [0.0]
        return observation(
            plan,
            at_s=float(second + 1),
            rate=read,
            busy=busy,
            steps=steps,
            backlog=None if offered is None else int(self._backlog),
        )

    def _reach(self) -> dict[str, float]:
        reach, amount = {}, 1.0
        for name in NAMES:
            reach[name] = amount
            amount *= self._passes[name]
        return reach
