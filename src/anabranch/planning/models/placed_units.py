"""What BriskStream's model replicates and places: operators, or regions of fused ones (eq. 6).

A *unit* is a run of operators that share a thread. Its costs are per tuple that comes into its
first operator: executing it is executing all its operators, as often as tuples reach them (eq. 6
with selectivities), while only the first one fetches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from anabranch.graph import StateKind
from anabranch.planning.answer import kind_of, most_replicas
from anabranch.planning.machine import Machine
from anabranch.planning.profile import NANOSECONDS, Profile

LEAST_SHARE = 1e-9
"""Part of the application's work that a unit has at least: a rate has to stay a number."""


@dataclass(frozen=True)
class Unit:
    """One run of operators in a thread of its own.

    Attributes:
        operators: Their names.
        execute_ns: Te: time to handle a tuple that lies in the memory of its own socket.
        tuple_bytes: N: size of a tuple that comes in.
        memory_bytes: M: memory traffic per tuple that comes in.
        reach_last: Tuples that reach its last operator per tuple that comes in.
        most: The most replicas that its state allows; None for any number.
        rate: Of a source: tuples that it reads per tuple that the application takes in.
    """

    operators: tuple[str, ...]
    execute_ns: float
    tuple_bytes: float
    memory_bytes: float
    reach_last: float
    most: int | None
    rate: float


@dataclass(frozen=True)
class UnitStream:
    """A stream between units: their numbers, and tuples on it per tuple into the producer."""

    producer: int
    consumer: int
    selectivity: float


@dataclass(frozen=True)
class Workload:
    """Units in an order in which producers come first, and streams between them."""

    units: tuple[Unit, ...]
    streams: tuple[UnitStream, ...]

    @cached_property
    def into(self) -> tuple[tuple[UnitStream, ...], ...]:
        """Streams that end in each unit."""
        return tuple(
            tuple(s for s in self.streams if s.consumer == number)
            for number in range(len(self.units))
        )

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """Units that nothing comes into."""
        return tuple(number for number, streams in enumerate(self.into) if not streams)

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        """Units that nothing comes out of."""
        producers = {s.producer for s in self.streams}
        return tuple(number for number in range(len(self.units)) if number not in producers)

    @cached_property
    def visits(self) -> tuple[float, ...]:
        """Tuples that come into each unit per tuple that the application takes in."""
        seen: list[float] = []
        for number, unit in enumerate(self.units):
            streams = self.into[number]
            arriving = sum(seen[s.producer] * s.selectivity for s in streams)
            seen.append(arriving if streams else unit.rate)
        return tuple(seen)

    @cached_property
    def sink_visits(self) -> float:
        """Tuples that sinks handle per tuple that the application takes in.

        Where nothing reaches a sink, as in a sample without a single alarm, tuples that are taken
        in count instead: a plan has to be good for something.
        """
        reached = sum(self.visits[number] * self.units[number].reach_last for number in self.sinks)
        return reached or 1.0

    @cached_property
    def work_ns(self) -> float:
        """Time to execute all that one tuple of the application causes."""
        return sum(v * u.execute_ns for v, u in zip(self.visits, self.units, strict=True))


def workload_of(
    profile: Profile, machine: Machine, runs: Sequence[tuple[str, ...]] | None = None
) -> Workload:
    """The units that runs of operators make on a machine; without runs, each operator is one.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> split, count = OperatorProfile("split", 100.0, 10.0), OperatorProfile("count", 5.0)
        >>> profile = chain([split, count])
        >>> fused = workload_of(profile, Machine.of_cores(4), [("split", "count")])
        >>> fused.units[0].execute_ns
        150.0
    """
    profile = profile.at_clock(machine.ghz)
    place = {operator.name: number for number, operator in enumerate(profile.operators)}
    given = runs if runs is not None else [(o.name,) for o in profile.operators]
    ordered = sorted(given, key=lambda run: place[run[0]])
    reached = [_reached(profile, run) for run in ordered]
    scale = NANOSECONDS[profile.unit or "ns"]
    least_ns = LEAST_SHARE * scale * profile.work
    units = tuple(
        _unit(profile, run, reach, scale, least_ns)
        for run, reach in zip(ordered, reached, strict=True)
    )
    unit_of = {name: number for number, run in enumerate(ordered) for name in run}
    streams = tuple(
        UnitStream(
            unit_of[s.producer],
            unit_of[s.consumer],
            s.selectivity * reached[unit_of[s.producer]][s.producer],
        )
        for s in profile.streams
        if unit_of[s.producer] != unit_of[s.consumer]
    )
    return Workload(units, streams)


def _reached(profile: Profile, run: tuple[str, ...]) -> dict[str, float]:
    reach = {run[0]: 1.0}
    for name in run[1:]:
        reach[name] = sum(
            reach[s.producer] * s.selectivity for s in profile.into(name) if s.producer in reach
        )
    return reach


def _unit(
    profile: Profile, run: tuple[str, ...], reach: dict[str, float], scale: float, least_ns: float
) -> Unit:
    members = [profile.by_name[name] for name in run]
    # Replicas of shared state all see every tuple: nothing that is dealt out evenly.
    most = 1 if kind_of(members) is StateKind.SHARED else most_replicas(members)
    return Unit(
        operators=run,
        execute_ns=max(least_ns, scale * sum(reach[o.name] * o.cost for o in members)),
        tuple_bytes=members[0].tuple_bytes,
        memory_bytes=sum(reach[o.name] * o.memory_bytes for o in members),
        reach_last=reach[run[-1]],
        most=most,
        rate=members[0].rate,
    )


def cache_lines(tuple_bytes: float, line_bytes: int, whole: bool = True) -> float:
    """Cache lines that a tuple fills: whole ones (eq. 2), or the ratio as it is (Table 3).

    Example:
        >>> cache_lines(216, 64), cache_lines(216, 64, whole=False)
        (4.0, 3.375)
    """
    lines = tuple_bytes / line_bytes
    return float(ceil(lines)) if whole else lines
