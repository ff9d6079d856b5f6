"""Scenarios: what happens to an application while it is simulated.

Load that changes, operators that drift, places that are slow for a while, keys that are not alike,
noise, and what a change of plan costs. A scenario is a value, and JSON in a
file. Times are virtual seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from anabranch.errors import PlanError, Subject, nearest
from anabranch.planning.typed_json import (
    Amount,
    Index,
    Positive,
    Text,
    as_document,
    is_number,
    parsed,
    refused,
    shown,
)

COST, SELECTIVITY = "cost", "selectivity"


def _require_name(where: str, name: str, known: set[str]) -> None:
    _require(name in known, where, f"a name among {sorted(known)}", name)


def _require(holds: bool, where: str, expected: str, got: object) -> None:
    if not holds:
        raise PlanError(
            Subject("field", f"scenario.{where}"), expected, repr(got), "change it in the scenario"
        )


@dataclass(frozen=True)
class Load:
    """What comes to the sources.

    Attributes:
        points: (second, tuples a second), in order; None for as many as can be read.
        source: The source that it is about; None for each.
        linear: Whether the rate goes evenly from point to point instead of in steps.

    Example:
        >>> load = Load(((0.0, 100.0), (10.0, 300.0)), linear=True)
        >>> load.rate(5.0), load.rate(60.0)
        (200.0, 300.0)
    """

    points: tuple[tuple[float, float | None], ...]
    source: Text | None = None
    linear: bool = False

    def __post_init__(self) -> None:
        """Points have to be in order, and lines need numbers."""
        if not self.points:
            raise PlanError(
                Subject("field", "scenario.loads.points"),
                "one or more points",
                "none",
                "give a rate",
            )
        for at_s, rate in self.points:
            _require(is_number(at_s), "loads.points", "seconds of 0 or more", at_s)
            known = rate is None or is_number(rate)
            _require(known, "loads.points", "rates of 0 or more, or null", rate)
        times = [at_s for at_s, _ in self.points]
        rising = all(a < b for a, b in pairwise(times))
        _require(rising, "loads.points", "points in the order of time", times)
        numbers = all(rate is not None for _, rate in self.points)
        _require(numbers or not self.linear, "loads.linear", "rates that are numbers", None)

    def rate(self, at_s: float) -> float | None:
        """Tuples a second at one moment; before the first point, that of the first."""
        known = [point for point in self.points if point[0] <= at_s] or [self.points[0]]
        then, rate = known[-1]
        after = [point for point in self.points if point[0] > max(then, at_s)]
        if not self.linear or rate is None or not after or at_s <= then:
            return rate
        soon, goal = after[0]
        return rate if goal is None else rate + (goal - rate) * (at_s - then) / (soon - then)


@dataclass(frozen=True)
class Drift:
    """An operator that becomes another: its cost or selectivity is multiplied.

    Attributes:
        operator: Whose.
        factor: By how much in the end.
        at_s: When it begins.
        over_s: How long it takes, evenly; 0 for at once.
        of: `cost` or `selectivity`.
    """

    operator: Text
    factor: Positive
    at_s: Amount = 0.0
    over_s: Amount = 0.0
    of: str = COST

    def __post_init__(self) -> None:
        """Check values."""
        _require(self.of in (COST, SELECTIVITY), "drifts.of", "cost or selectivity", self.of)
        _require(is_number(self.factor, True), "drifts.factor", "a number above 0", self.factor)
        for name in ("at_s", "over_s"):
            value = getattr(self, name)
            _require(is_number(value), f"drifts.{name}", "a number of 0 or more", value)

    def now(self, at_s: float) -> float:
        """The factor at one moment.

        Example:
            >>> Drift("parse", 3.0, at_s=10.0, over_s=4.0).now(12.0)
            2.0
        """
        if at_s < self.at_s:
            return 1.0
        passed = 1.0 if self.over_s == 0 else min(1.0, (at_s - self.at_s) / self.over_s)
        return 1.0 + (self.factor - 1.0) * passed


@dataclass(frozen=True)
class Straggler:
    """Something that is slow for a while: a socket, a node, or one replica of a region.

    Attributes:
        factor: How many times longer everything takes there.
        from_s: When it begins.
        until_s: When it is over; None for never.
        socket: The socket.
        node: Or the node.
        region: Or the region,
        replica: with the replica.
    """

    factor: Positive
    from_s: Amount = 0.0
    until_s: Amount | None = None
    socket: Index | None = None
    node: Index | None = None
    region: Text | None = None
    replica: Index | None = None

    def __post_init__(self) -> None:
        """Exactly one place, and times in order."""
        given = [self.socket is not None, self.node is not None, self.region is not None]
        _require(sum(given) == 1, "stragglers", "one of socket, node and region", sum(given))
        named = (self.region is None) == (self.replica is None)
        _require(named, "stragglers.replica", "a replica with its region", self.replica)
        _require(is_number(self.factor, True), "stragglers.factor", "above 0", self.factor)
        _require(is_number(self.from_s), "stragglers.from_s", "0 or more", self.from_s)
        later = self.until_s is None or (is_number(self.until_s) and self.until_s > self.from_s)
        _require(later, "stragglers.until_s", f"later than {self.from_s}", self.until_s)

    def at_work(self, at_s: float) -> bool:
        """Whether it is slow at one moment."""
        return self.from_s <= at_s and (self.until_s is None or at_s < self.until_s)


@dataclass(frozen=True)
class SwitchCost:
    """What a change of plan costs a region.

    Attributes:
        pause_ms: How long its tuples stand still in any case.
        per_bucket_ms: On top, for each bucket that moves.
        per_mb_ms: On top, for each megabyte that moves.
        bucket_bytes: State in a bucket.
        dip_share: Part of its speed that it lacks afterwards,
        dip_s: for so long.
    """

    pause_ms: Amount = 2.5
    per_bucket_ms: Amount = 0.0
    per_mb_ms: Amount = 0.0
    bucket_bytes: Amount = 0.0
    dip_share: Amount = 0.0
    dip_s: Amount = 0.0

    def __post_init__(self) -> None:
        """Check values."""
        for name, value in vars(self).items():
            _require(is_number(value), f"switch.{name}", "a number of 0 or more", value)
        _require(self.dip_share < 1, "switch.dip_share", "less than 1", self.dip_share)

    def pause_s(self, buckets: int) -> float:
        """How long a region stands still when so many of its buckets move."""
        moving = self.per_bucket_ms + self.per_mb_ms * self.bucket_bytes / 1e6
        return (self.pause_ms + buckets * moving) / 1e3


LOCAL_SWITCH = SwitchCost()
"""As the local engine does it on the machine that it was measured on."""

JOKER_SWITCH = SwitchCost(dip_share=0.3, dip_s=3.0)
"""As Joker reports it: a third of the throughput is missing, for three seconds."""

SWITCHES: Mapping[str, SwitchCost] = {"local": LOCAL_SWITCH, "joker": JOKER_SWITCH}


@dataclass(frozen=True)
class Scenario:
    """What happens during a run.

    Attributes:
        loads: What comes to the sources; as many tuples as can be read when left out.
        drifts: Operators that change.
        stragglers: What is slow for a while.
        skew: By partitioned operator, the exponent of a Zipf distribution of its keys.
        noise: Spread of service times: standard deviation of their logarithm,
        noise_s: drawn anew for each thread after so long.
        switch: What a change of plan costs.
        queue_tuples: Tuples that may wait in front of a thread.
        jumbo_tuples: Tuples that threads hand over together.
        step_s: Time in one step of the simulation.

    Example:
        >>> Scenario(loads=(Load(((0.0, 1000.0),)),)).load("lines").rate(3.0)
        1000.0
    """

    loads: tuple[Load, ...] = ()
    drifts: tuple[Drift, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    skew: Mapping[str, float] = field(default_factory=dict)
    noise: Amount = 0.0
    noise_s: Positive = 0.1
    switch: SwitchCost = LOCAL_SWITCH
    queue_tuples: Positive = 4096
    jumbo_tuples: Positive = 256
    step_s: Positive = 0.02

    def __post_init__(self) -> None:
        """Check values."""
        for operator, exponent in self.skew.items():
            _require(is_number(exponent), f"skew.{operator}", "an exponent of 0 or more", exponent)
        _require(is_number(self.noise), "noise", "a number of 0 or more", self.noise)
        for name in ("noise_s", "step_s", "queue_tuples", "jumbo_tuples"):
            value = getattr(self, name)
            _require(is_number(value, positive=True), name, "a number above 0", value)

    def load(self, source: str) -> Load:
        """What comes to one source; what names it counts more than what is for each."""
        for load in self.loads:
            if load.source == source:
                return load
        return next((each for each in self.loads if each.source is None), Load(((0.0, None),)))

    def moments(self) -> list[float]:
        """When something begins or ends at once, in order."""
        found = {at_s for load in self.loads for at_s, _ in load.points}
        found |= {drift.at_s for drift in self.drifts}
        found |= {drift.at_s + drift.over_s for drift in self.drifts}
        for straggler in self.stragglers:
            found.add(straggler.from_s)
            found |= set() if straggler.until_s is None else {straggler.until_s}
        return sorted(found - {0.0})

    def for_sources(self, operators: Mapping[str, str]) -> Scenario:
        """The same for somebody who calls sources by the operators that read them."""
        loads = tuple(
            replace(load, source=operators.get(load.source, load.source)) if load.source else load
            for load in self.loads
        )
        return replace(self, loads=loads)

    def require(
        self, operators: Iterable[str], sources: Iterable[str], regions: Iterable[str]
    ) -> None:
        """Raise unless the names in it are those of an application."""
        known, read, planned = set(operators), set(sources), set(regions)
        for straggler in self.stragglers:
            if straggler.region is not None:
                _require_name("stragglers.region", straggler.region, planned)
        for drift in self.drifts:
            _require_name("drifts.operator", drift.operator, known)
        for operator in self.skew:
            _require_name("skew", operator, known)
        for load in self.loads:
            if load.source is not None:
                _require_name("loads.source", load.source, read)


# Scenarios as files: JSON that people write by hand.


def read_scenario(text: str, name: str = "scenario") -> Scenario:
    """A scenario from the text of a file; whatever is left out does not happen.

    Args:
        text: JSON.
        name: What to call the file in errors.

    Example:
        >>> text = '{"loads": [{"points": [[0, 1000], [10, 5000]]}], "switch": "joker"}'
        >>> scenario = read_scenario(text)
        >>> scenario.load("lines").rate(12.0), scenario.switch.dip_s
        (5000.0, 3.0)
    """
    file = Subject("scenario", name)
    content = parsed(text, file)
    skew, switch = content.get("skew"), content.get("switch")
    for operator, exponent in skew.items() if isinstance(skew, dict) else ():
        as_document(exponent, file, Amount, f".skew.{operator}")
    if isinstance(switch, str):
        if switch not in SWITCHES:
            expected, remedy = f"one of {list(SWITCHES)}", nearest(switch, SWITCHES)
            raise refused(file, ".switch", expected, shown(switch), remedy)
        content["switch"] = asdict(SWITCHES[switch])
    return as_document(content, file, Scenario)
