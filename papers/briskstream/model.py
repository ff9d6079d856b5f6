"""BriskStream's model of a placed plan in full: rates by unit, demands by resource, fetching.

Planners need the throughput and the cores at work alone (`anabranch.planning.models.briskstream`,
which also lists readings and deviations); the paper's tables and figures need the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.errors import PlanError, Subject
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine, Matrix
from anabranch.planning.models.briskstream import placed_rate
from anabranch.planning.models.placed_rates import EVENLY, Counts, Fetch, Floats, RateModel
from anabranch.planning.models.placed_units import Workload, cache_lines, workload_of
from anabranch.planning.profile import NANOSECONDS, Profile


@dataclass(frozen=True)
class UnitRates:
    """One unit, over all its replicas; rates are in the inverse of the profile's unit.

    Attributes:
        operators: What it runs.
        arriving: Tuples offered to it.
        processed: Tuples that it handles.
        emitted: Tuples that come out of it, over all streams; of a sink, what it handles.
        execute: Te per tuple, in the profile's unit.
        fetch: Tf per tuple, the mean over what it handles, in the profile's unit.
        by_socket: Tuples that it handles on each socket.
    """

    operators: tuple[str, ...]
    arriving: float
    processed: float
    emitted: float
    execute: float
    fetch: float
    by_socket: tuple[float, ...]

    @property
    def over_supplied(self) -> bool:
        """Whether it is offered more than it can handle: a bottleneck."""
        return self.arriving > self.processed * (1 + EVENLY)


@dataclass(frozen=True)
class Demand:
    """What a plan asks of one resource.

    Attributes:
        resource: `cpu` (cores), `memory` or `link` (bytes per nanosecond, that is GB/s).
        place: The socket, or the two sockets of a link.
        asked: How much.
        there: How much there is.
    """

    resource: str
    place: tuple[int, ...]
    asked: float
    there: float

    @property
    def violated(self) -> bool:
        """Whether more is asked than there is."""
        return self.asked > self.there * (1 + EVENLY)


@dataclass(frozen=True)
class Rates:
    """What the model says of a plan.

    Attributes:
        throughput: R: tuples that sinks handle, if every demand were met.
        bounded: What it really gets: R at the rate that every unit keeps up with, slowed down by
            the worst overload.
        utilization: Cores at work at the bounded rate.
        units: Rates of each unit, producers first.
        demands: On every socket and link, at the unbounded rate.
        fetching: Cores that wait for tuples from socket (row) to socket (column): figure 15.
    """

    throughput: float
    bounded: float
    utilization: float
    units: tuple[UnitRates, ...]
    demands: tuple[Demand, ...]
    fetching: Matrix

    @property
    def violations(self) -> tuple[Demand, ...]:
        """Demands that are not met."""
        return tuple(demand for demand in self.demands if demand.violated)

    @property
    def bottlenecks(self) -> tuple[tuple[str, ...], ...]:
        """Units that are offered more than they can handle: the bottlenecks."""
        return tuple(unit.operators for unit in self.units if unit.over_supplied)

    @property
    def by_operators(self) -> Mapping[tuple[str, ...], UnitRates]:
        """Rates by what a unit runs."""
        return {unit.operators: unit for unit in self.units}


def rates(
    profile: Profile,
    regions: Sequence[RegionChoice],
    machine: Machine,
    *,
    input_rate: float | None = None,
    fetch: Fetch = Fetch.BY_DISTANCE,
    whole_lines: bool = True,
) -> Rates:
    """What a plan does on a machine.

    Args:
        profile: The application.
        regions: Each is a unit of fused operators, with replicas and their sockets.
        machine: Where it runs.
        input_rate: Tuples that come from outside, in the inverse of the profile's unit.
        fetch: What to believe of fetching; all but the default are wrong on purpose.
        whole_lines: Eq. 2 as printed; Table 3 needs the exact ratio.

    Example:
        >>> from anabranch.planning.profile import OperatorProfile, chain
        >>> read = OperatorProfile("read", 100.0)
        >>> count = OperatorProfile("count", 200.0, tuple_bytes=64)
        >>> profile = chain([read, count])
        >>> two = Machine("two", 2, 4, latency_ns=((0.0, 300.0), (300.0, 0.0)))
        >>> near = [RegionChoice((("read",),), 1, (0,)), RegionChoice((("count",),), 2, (0, 0))]
        >>> far = [near[0], RegionChoice((("count",),), 2, (1, 1))]
        >>> rates(profile, near, two).throughput, rates(profile, far, two).throughput
        (0.01, 0.004)
    """
    workload = workload_of(profile, machine, [region.operators for region in regions])
    per_ns = NANOSECONDS[profile.unit or "ns"]
    model = RateModel(
        workload, machine, fetch, whole_lines, None if input_rate is None else input_rate / per_ns
    )
    return _single_rates(model, _placed_counts(workload, regions, machine), per_ns)


def _placed_counts(workload: Workload, regions: Sequence[RegionChoice], machine: Machine) -> Counts:
    """Replicas by unit and socket; spread evenly where a region has no placement."""
    by_operators = {region.operators: region for region in regions}
    counts = np.zeros((len(workload.units), machine.sockets))
    for number, unit in enumerate(workload.units):
        region = by_operators[unit.operators]
        if not region.placement:
            counts[number] = region.replicas / machine.sockets
            continue
        wrong = [s for s in region.placement if not 0 <= s < machine.sockets]
        if wrong or len(region.placement) != region.replicas:
            raise PlanError(
                Subject("region", unit.operators[0]),
                f"a socket below {machine.sockets} for each of {region.replicas} replicas",
                str(list(region.placement)),
                "place each replica once",
            )
        for socket in region.placement:
            counts[number, socket] += 1
    return counts


def _single_rates(model: RateModel, counts: Counts, per_ns: float) -> Rates:
    """Rates of one placement by unit and resource."""
    batch = model.rates(counts[None])
    units = tuple(
        _unit_rates(model, number, batch.arriving[0], batch.processed[0], batch.handling_ns[0])
        for number in range(len(model.workload.units))
    )
    waits = np.zeros((model.sockets, model.sockets))
    for number, lines in enumerate(model.lines):
        moved = np.outer(batch.origin[0, number], batch.processed[0, number])
        waits += moved * lines * model.latency[: model.sockets, : model.sockets]
    bounded, utilization = placed_rate(model, counts)
    return Rates(
        float(batch.throughput[0]) * per_ns,
        bounded * per_ns,
        utilization,
        tuple(_in_unit(unit, per_ns) for unit in units),
        tuple(_demands(model, batch.cpu[0], batch.memory[0], batch.traffic[0])),
        tuple(tuple(float(v) for v in row) for row in waits),
    )


def _unit_rates(
    model: RateModel, number: int, arriving: Floats, processed: Floats, handling: Floats
) -> UnitRates:
    unit = model.workload.units[number]
    handled = float(processed[number].sum())
    out = sum(s.selectivity for s in model.workload.streams if s.producer == number)
    spent = float((processed[number] * handling[number]).sum())
    return UnitRates(
        operators=unit.operators,
        arriving=float(arriving[number].sum()),
        processed=handled,
        emitted=handled * (unit.reach_last if number in model.workload.sinks else out),
        execute=unit.execute_ns,
        fetch=max(0.0, spent / handled - unit.execute_ns) if handled else 0.0,
        by_socket=tuple(float(rate) for rate in processed[number]),
    )


def _in_unit(unit: UnitRates, per_ns: float) -> UnitRates:
    return UnitRates(
        unit.operators,
        unit.arriving * per_ns,
        unit.processed * per_ns,
        unit.emitted * per_ns,
        unit.execute / per_ns,
        unit.fetch / per_ns,
        tuple(rate * per_ns for rate in unit.by_socket),
    )


def _demands(model: RateModel, cpu: Floats, memory: Floats, traffic: Floats) -> list[Demand]:
    within = range(model.sockets)
    found = [Demand("cpu", (i,), float(cpu[i]), model.cores) for i in within]
    if not model.machine.bandwidth_mb_s:
        return found
    there = model.bandwidth
    found += [Demand("memory", (i,), float(memory[i]), float(there[i, i])) for i in within]
    return found + [
        Demand("link", (i, j), float(traffic[i, j]), float(there[i, j]))
        for i in within
        for j in within
        if i != j
    ]


def fetch_ns(
    tuple_bytes: float, machine: Machine, producer: int, consumer: int, whole: bool = True
) -> float:
    """Tf: time to bring a tuple from the producer's socket to the consumer's (eq. 2).

    Example:
        >>> fetch_ns(100, Machine.of_cores(4), 0, 0)
        0.0
    """
    lines = cache_lines(tuple_bytes, machine.cache_line_bytes, whole)
    return lines * machine.latency(producer, consumer)
