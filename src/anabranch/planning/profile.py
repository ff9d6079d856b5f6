"""Profiles: what planners, models and the simulator know of an application.

A profile names operators with their cost, selectivity and state, and the streams between them. It
comes from `anabranch profile`, from a running engine, or from a file that somebody wrote by hand; a
file without edges is a chain in the order listed. Costs are per tuple that comes in, in any one
unit; rates that follow from them are in its inverse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Any, Literal

from anabranch.errors import PlanError, Subject, nearest
from anabranch.graph import StateKind
from anabranch.planning.typed_json import (
    Amount,
    Count,
    Index,
    Positive,
    Share,
    Text,
    is_number,
    read_document,
    refused,
    shown,
)

MOST = 1e100
"""Beyond this, times and rates are slips of the pen, and sums of them no numbers."""
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass(frozen=True)
class OperatorProfile:
    """One operator.

    Attributes:
        name: Its name.
        cost: Time per tuple that comes in, at the median.
        selectivity: Tuples out per tuple in, of streams that do not say otherwise.
        state: What it remembers.
        key: Columns that part its state; of partitioned operators alone.
        max_replicas: The most replicas that help (distinct keys, parts of a source); None for any.
        tuple_bytes: Size of a tuple that comes in.
        memory_bytes: Memory traffic per tuple that comes in.
        rate: Of a source: tuples that it reads per tuple that the application is said to take in.
        cost_p99: Time per tuple that 99 in a hundred calls did not exceed; None if unknown.
        keys: Distinct keys that were seen; None if unknown.
        hottest_key_share: Part of the tuples that the most frequent key has; None if unknown.
        wait: Further time per tuple that a thread is taken and no core is: it waits for a service.
            Told by live measurements; profiles of files count it as cost.
        replicas_cost: What it costs more where it has several replicas, as a part of its cost.
    """

    name: Text
    cost: Amount
    selectivity: Amount = 1.0
    state: StateKind = StateKind.STATELESS
    key: tuple[str, ...] = ()
    max_replicas: Count | None = None
    tuple_bytes: Amount = 0.0
    memory_bytes: Amount = 0.0
    rate: Positive = 1.0
    cost_p99: Amount | None = None
    keys: Index | None = None
    hottest_key_share: Share | None = None
    wait: Amount = 0.0
    replicas_cost: Amount = 0.0

    def cost_with(self, replicas: int) -> float:
        """Return its cost where it has so many replicas."""
        return self.cost * (1 + self.replicas_cost) if replicas > 1 else self.cost

    @property
    def held(self) -> float:
        """Time per tuple that a thread is taken up by it."""
        return self.cost + self.wait


@dataclass(frozen=True)
class StreamProfile:
    """A stream: its ends, and tuples on it per tuple that comes into its producer."""

    producer: str
    consumer: str
    selectivity: float


@dataclass(frozen=True)
class Overheads:
    """What parallelism costs per tuple: handing it to another thread, ordering replicas' results.

    `thread_switch` is Pipelined Fission's δ; `replication` its c_p, paid log2(replicas) times.
    """

    thread_switch: Amount = 0.0
    replication: Amount = 0.0


@dataclass(frozen=True)
class Profile:
    """An application as planners see it.

    Attributes:
        operators: In an order in which producers come first.
        streams: Between them.
        overheads: Of the engine that runs it; None where the machine's file shall say.
        unit: Of costs: ns, us, ms or s; None for any, read as ns where a machine has latencies.
        ghz: Clock of the machine that costs were measured on; None if that does not matter.
        app: Application that it describes, if any.

    Example:
        >>> parse, count = OperatorProfile("parse", 2.0, 0.5), OperatorProfile("count", 1.0)
        >>> profile = chain([parse, count])
        >>> profile.visits["count"], profile.work
        (0.5, 2.5)
    """

    operators: tuple[OperatorProfile, ...]
    streams: tuple[StreamProfile, ...] = ()
    overheads: Overheads | None = None
    unit: str | None = None
    ghz: float | None = None
    app: str | None = None
    by_name: Mapping[str, OperatorProfile] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that it is a graph without cycles, and put producers first."""
        if self.unit is not None and self.unit not in NANOSECONDS:
            raise PlanError(
                Subject("field", "unit"),
                f"one of {list(NANOSECONDS)}",
                repr(self.unit),
                nearest(self.unit, NANOSECONDS),
            )
        by_name = {o.name: o for o in self.operators}
        if not self.operators or len(by_name) < len(self.operators):
            names = [o.name for o in self.operators]
            raise PlanError(
                Subject("field", "operators"),
                "one or more, each with its own name",
                str(names),
                "name them apart",
            )
        object.__setattr__(self, "by_name", by_name)
        for number, stream in enumerate(self.streams):
            for end in (stream.producer, stream.consumer):
                if end not in by_name:
                    raise PlanError(
                        Subject("field", f"edges[{number}]"),
                        f"operators among {list(by_name)}",
                        repr(end),
                        "use those",
                    )
        pairs = [(s.producer, s.consumer) for s in self.streams]
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise PlanError(
                    Subject("field", "edges"),
                    "each edge once",
                    str(list(pair)),
                    "add its selectivities up",
                )
        object.__setattr__(self, "operators", self._sorted())
        if not self.work > 0:
            raise PlanError(
                Subject("field", "operators"),
                "a cost above 0 somewhere",
                "0 for all",
                "measure them",
            )
        rates = [self.work, 1 / self.work, *self.visits.values()]
        if not all(isfinite(rate) and rate < MOST for rate in rates):
            raise PlanError(
                Subject("field", "operators"),
                f"costs and selectivities that multiply to numbers below {MOST:g}",
                f"{self.work:g} of work a tuple, up to {max(self.visits.values()):g} tuples of one",
                "use another unit, or check them",
            )

    def _sorted(self) -> tuple[OperatorProfile, ...]:
        waiting = list(self.operators)
        placed: list[OperatorProfile] = []
        done: set[str] = set()
        while waiting:
            ready = [o for o in waiting if all(s.producer in done for s in self.into(o.name))]
            if not ready:
                stuck = [o.name for o in waiting]
                raise PlanError(
                    Subject("field", "edges"),
                    "a graph without cycles",
                    f"a cycle among {stuck}",
                    "break it",
                )
            placed.append(ready[0])
            done.add(ready[0].name)
            waiting.remove(ready[0])
        return tuple(placed)

    def into(self, name: str) -> list[StreamProfile]:
        """Streams that end in an operator."""
        return [s for s in self.streams if s.consumer == name]

    def out_of(self, name: str) -> list[StreamProfile]:
        """Streams that begin in an operator."""
        return [s for s in self.streams if s.producer == name]

    @cached_property
    def visits(self) -> Mapping[str, float]:
        """Tuples that come into each operator per tuple that the application takes in."""
        seen: dict[str, float] = {}
        for operator in self.operators:
            streams = self.into(operator.name)
            seen[operator.name] = (
                sum(seen[s.producer] * s.selectivity for s in streams) if streams else operator.rate
            )
        return seen

    @cached_property
    def work(self) -> float:
        """Cost of one tuple that the application takes in, over all operators."""
        return sum(self.visits[o.name] * o.cost for o in self.operators)

    @cached_property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """The longest runs with one way on and one way in; regions lie within them."""
        found: list[list[str]] = []
        for operator in self.operators:
            streams = self.into(operator.name)
            if len(streams) == 1 and len(self.out_of(streams[0].producer)) == 1:
                next(c for c in found if c[-1] == streams[0].producer).append(operator.name)
            else:
                found.append([operator.name])
        return tuple(tuple(c) for c in found)

    def at_clock(self, ghz: float | None) -> Profile:
        """The same on a machine of another clock, if both clocks are known."""
        if ghz is None or self.ghz is None or ghz == self.ghz:
            return self
        slower = self.ghz / ghz
        operators = tuple(
            replace(o, cost=o.cost * slower, cost_p99=o.cost_p99 and o.cost_p99 * slower)
            for o in self.operators
        )
        return replace(self, operators=operators, ghz=ghz)

    @property
    def switching(self) -> Overheads:
        """What parallelism costs; nothing where nobody said."""
        return self.overheads or Overheads()


def chain(
    operators: list[OperatorProfile], overheads: Overheads | None = None, unit: str | None = None
) -> Profile:
    """Operators one behind the other."""
    pairs = pairwise(operators)
    streams = tuple(StreamProfile(a.name, b.name, a.selectivity) for a, b in pairs)
    return Profile(tuple(operators), streams, overheads, unit)


# Profiles as files: JSON that `anabranch profile` writes and people can write by hand.


@dataclass(frozen=True)
class _File:
    """The fields of a file; `measured` is for people."""

    operators: tuple[OperatorProfile, ...]
    edges: tuple[object, ...] = ()
    overheads: Overheads | None = None
    unit: Literal["ns", "us", "ms", "s"] | None = None
    ghz: Positive | None = None
    app: Text | None = None
    measured: object = None


def read_profile(text: str, name: str = "profile") -> Profile:
    """A profile from the text of a file.

    Args:
        text: JSON.
        name: What to call the file in errors.

    Example:
        >>> profile = read_profile('{"operators": [{"name": "parse", "cost": 2}]}')
        >>> profile.operators[0].state
        <StateKind.STATELESS: 'stateless'>
    """
    file = Subject("profile", name)
    found = read_document(text, file, _File)
    if not found.operators:
        raise refused(file, ".operators", "one or more operators", "[]", "add them")
    operators = tuple(_keyed(number, each) for number, each in enumerate(found.operators))
    # An empty list is no edges, too: operators beside each other would be several applications.
    edges = found.edges or [list(pair) for pair in pairwise(each.name for each in operators)]
    selectivities = {operator.name: operator.selectivity for operator in operators}
    streams = tuple(_stream(n, edge, selectivities) for n, edge in enumerate(edges))
    return Profile(operators, streams, found.overheads, found.unit, found.ghz, found.app)


def _keyed(number: int, operator: OperatorProfile) -> OperatorProfile:
    """Only partitioned operators have a key, and those need one."""
    if operator.state is not StateKind.PARTITIONED:
        return replace(operator, key=())
    if not operator.key:
        where = Subject("field", f"operators[{number}] {operator.name!r}.key")
        raise PlanError(where, "the columns that part its state", "null", "name them")
    return operator


def _stream(number: int, edge: object, selectivities: dict[str, float]) -> StreamProfile:
    where, got = Subject("field", f"edges[{number}]"), shown(edge)
    if not isinstance(edge, list) or len(edge) not in (2, 3):
        raise PlanError(where, "[producer, consumer] or with a selectivity", got, "write it so")
    for end in edge[:2]:
        if not isinstance(end, str) or end not in selectivities:
            known = f"operators among {list(selectivities)}"
            raise PlanError(where, known, f"{end!r} in {got}", "name an operator of the profile")
    if len(edge) == 2:
        return StreamProfile(edge[0], edge[1], selectivities[edge[0]])
    if not is_number(edge[2]):
        raise PlanError(where, "a selectivity of 0 or more", got, "count tuples on that stream")
    return StreamProfile(edge[0], edge[1], edge[2])


def profile_text(profile: Profile) -> str:
    """A profile as the text of a file, which `read_profile` reads back."""
    data: dict[str, Any] = {}
    for name in ("app", "unit", "ghz"):
        if getattr(profile, name) is not None:
            data[name] = getattr(profile, name)
    data["operators"] = [_operator_object(operator) for operator in profile.operators]
    data["edges"] = [[s.producer, s.consumer, s.selectivity] for s in profile.streams]
    if profile.overheads is not None:
        data["overheads"] = asdict(profile.overheads)
    return json.dumps(data, indent=2) + "\n"


def _operator_object(operator: OperatorProfile) -> dict[str, Any]:
    data: dict[str, Any] = {"name": operator.name, "state": operator.state.value}
    usual = OperatorProfile(operator.name, operator.cost)
    for name in ("key", *(each.name for each in fields(operator) if each.name not in data)):
        value = getattr(operator, name)
        if name in ("cost", "selectivity") or value != getattr(usual, name):
            data[name] = value
    return data
