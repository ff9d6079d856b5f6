"""What a planner answers: regions with pipelines, replicas and places, and what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from anabranch.graph import StateKind
from anabranch.planning.profile import OperatorProfile, Profile
from anabranch.planning.typed_json import Count


@dataclass(frozen=True)
class RegionChoice:
    """One region as a planner wants it.

    Attributes:
        pipelines: Its operators, cut into runs that share a thread.
        replicas: How many copies.
        placement: Socket of each replica; empty for anywhere.
    """

    pipelines: tuple[tuple[str, ...], ...]
    replicas: Count = 1
    placement: tuple[int, ...] = ()

    @property
    def operators(self) -> tuple[str, ...]:
        """Its operators in order."""
        return tuple(name for pipeline in self.pipelines for name in pipeline)

    @property
    def threads(self) -> int:
        """How many threads run it."""
        return self.replicas * len(self.pipelines)


@dataclass(frozen=True)
class Answer:
    """A plan for a profile.

    Attributes:
        regions: What runs how.
        throughput: Tuples per unit of time that the application takes in.
        utilization: Cores at work.
        bound: No plan can promise more than this; None where the planner does not know.
        at_sinks: Whether throughput and bound count tuples that reach sinks instead, as
            BriskStream does; unless none does.
    """

    regions: tuple[RegionChoice, ...]
    throughput: float
    utilization: float
    bound: float | None = None
    at_sinks: bool = False

    @property
    def threads(self) -> int:
        """How many threads it takes."""
        return sum(region.threads for region in self.regions)

    @property
    def gap(self) -> float | None:
        """How far the promise is below the bound, as a part of the bound."""
        if self.bound is None:
            return None
        return max(0.0, 1 - self.throughput / self.bound)

    def taken_in(self, profile: Profile) -> float:
        """The throughput in tuples that the application takes in, whatever the planner counts."""
        if not self.at_sinks:
            return self.throughput
        sinks = [name for name in profile.by_name if not profile.out_of(name)]
        return self.throughput / (sum(profile.visits[name] for name in sinks) or 1.0)

    def as_object(self, profile: Profile, planner: str, solve_ms: float) -> dict[str, Any]:
        """As the command line writes it."""
        answer: dict[str, Any] = {
            "planner": planner,
            "throughput": self.throughput,
            "utilization": self.utilization,
            "threads": self.threads,
            "solve_ms": round(solve_ms, 3),
        }
        if self.at_sinks:
            answer["throughput_in"] = self.taken_in(profile)
        if self.bound is not None:
            answer |= {"bound": self.bound, "gap": self.gap}
        answer["regions"] = [_region_object(profile, region) for region in self.regions]
        return answer


def _region_object(profile: Profile, region: RegionChoice) -> dict[str, Any]:
    members = [profile.by_name[name] for name in region.operators]
    found: dict[str, Any] = {
        "operators": list(region.operators),
        "kind": kind_of(members).value,
        "key": routing_key(members),
        "replicas": region.replicas,
        "pipelines": [list(pipeline) for pipeline in region.pipelines],
    }
    if region.placement:
        found["placement"] = list(region.placement)
    return found


def kind_of(operators: Sequence[OperatorProfile]) -> StateKind:
    """What a run of operators is as a whole (Pipelined Fission, eq. 1)."""
    states = {operator.state for operator in operators}
    for state in (StateKind.STATEFUL, StateKind.SHARED, StateKind.PARTITIONED):
        if state in states:
            return state
    return StateKind.STATELESS


def common_key(operators: Sequence[OperatorProfile]) -> frozenset[str]:
    """Columns in the key of every partitioned operator of a run; the run is routed by them."""
    keys = [frozenset(o.key) for o in operators if o.state is StateKind.PARTITIONED]
    return frozenset.intersection(*keys) if keys else frozenset()


def routing_key(operators: Sequence[OperatorProfile]) -> list[str]:
    """What a run is routed by; nothing unless it is partitioned as a whole."""
    return sorted(common_key(operators)) if kind_of(operators) is StateKind.PARTITIONED else []


def replicable(operators: Sequence[OperatorProfile]) -> bool:
    """Whether a run may have replicas: nothing stateful in it, and its keys have a common part."""
    kind = kind_of(operators)
    if kind is StateKind.STATELESS:
        return True
    if kind is StateKind.SHARED:
        return len(operators) == 1
    return kind is StateKind.PARTITIONED and bool(common_key(operators))


def most_speedup(operators: Sequence[OperatorProfile]) -> float:
    """How much faster any number of replicas can make a run (eq. 7).

    Bounds are given (`max_replicas`), or follow from keys: there is no work for more replicas than
    keys, and the replica with the most frequent key has at least its share of all tuples.

    Example:
        >>> skewed = OperatorProfile(
        ...     "count", 1.0, state=StateKind.PARTITIONED, key=("k",), keys=9, hottest_key_share=0.4
        ... )
        >>> most_speedup([skewed])
        2.5
    """
    if not replicable(operators):
        return 1.0
    bounds = [float(o.max_replicas) for o in operators if o.max_replicas is not None]
    for operator in operators:
        if operator.state is StateKind.PARTITIONED:
            bounds += [float(operator.keys)] if operator.keys else []
            bounds += [1 / operator.hottest_key_share] if operator.hottest_key_share else []
    return max(1.0, min(bounds, default=inf))


def most_replicas(operators: Sequence[OperatorProfile]) -> int | None:
    """The most replicas of a run that help; None for no bound."""
    bound = most_speedup(operators)
    return None if bound == inf else ceil(bound - 1e-9)
