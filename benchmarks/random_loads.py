"""Load and trouble drawn at random: what happens to an application while policies tune it.

Loads are parts of a capacity, so that the same trace is as hard for a small machine as for a large
one. Every trace begins with a while in which nothing changes, so that whoever starts from one
thread can find a plan before the load asks for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sin

import numpy as np
from numpy.random import Generator

from anabranch.engines.simulator.scenario import Drift, Load, Straggler
from anabranch.graph import StateKind
from anabranch.planning.profile import Profile

STEPS, RAMP, SPIKES, DIURNAL = "steps", "ramp", "spikes", "diurnal"
TRACES = (STEPS, RAMP, SPIKES, DIURNAL)
DIURNAL_POINTS = 24


@dataclass(frozen=True)
class TraceSettings:
    """How loads are drawn.

    Attributes:
        seconds: Length of a trace.
        hold_s: How long nothing changes at its beginning, and after each step.
        least: The least load, as a part of the capacity.
        most: The greatest that is a number; a plan that is good enough keeps up with it.
        first: The least with which steps and ramps begin, so that one thread is too few at once.
        greedy: Part of the steps in which there is more to read than any plan can.
    """

    seconds: float = 400.0
    hold_s: float = 100.0
    least: float = 0.15
    most: float = 0.9
    first: float = 0.4
    greedy: float = 0.25


@dataclass(frozen=True)
class Troubles:
    """What a model of costs does not know.

    Attributes:
        drifts: Operators whose cost or selectivity becomes another.
        stragglers: Replicas that are slow.
        skew: By partitioned operator, the exponent of the Zipf distribution of its keys.
        noise: Spread of service times.
    """

    drifts: tuple[Drift, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    skew: tuple[tuple[str, float], ...] = ()
    noise: float = 0.0


def random_load(
    rng: Generator, trace: str, capacity: float, settings: TraceSettings | None = None
) -> Load:
    """A load for each source, in tuples a second, whose greatest rates are near a capacity.

    Example:
        >>> load = random_load(np.random.default_rng(3), RAMP, 1000.0)
        >>> [(at_s, round(rate or 0)) for at_s, rate in load.points]
        [(0.0, 443), (100.0, 443), (300.0, 328)]
    """
    chosen = settings or TraceSettings()
    points = _DRAWN[trace](rng, chosen)
    scaled = tuple((at_s, None if part is None else part * capacity) for at_s, part in points)
    return Load(scaled, linear=trace in (RAMP, DIURNAL))


Points = list[tuple[float, float | None]]


def _level(rng: Generator, settings: TraceSettings, first: bool = False) -> float:
    return float(rng.uniform(settings.first if first else settings.least, settings.most))


def _steps(rng: Generator, settings: TraceSettings) -> Points:
    """Levels that are held, and times when sources have as much to read as anybody wants."""
    points: Points = []
    for start in np.arange(0.0, settings.seconds - settings.hold_s / 2, settings.hold_s):
        level = _level(rng, settings, first=not points)
        points.append((float(start), None if rng.random() < settings.greedy else level))
    return points


def _ramp(rng: Generator, settings: TraceSettings) -> Points:
    """One level, then evenly to another, and that for as long as is left."""
    first, second = _level(rng, settings, first=True), _level(rng, settings)
    begins, ends = settings.hold_s, settings.seconds - settings.hold_s
    return [(0.0, first), (begins, first), (ends, second)]


def _spikes(rng: Generator, settings: TraceSettings) -> Points:
    """A level with a few short bursts of several times as much."""
    base = float(rng.uniform(settings.least, settings.most / 2))
    points: Points = [(0.0, base)]
    at_s = settings.hold_s
    while at_s < settings.seconds - 30:
        lasts = float(rng.uniform(5.0, 25.0))
        burst = min(settings.most, base * float(rng.uniform(1.5, 4.0)))
        points += [(at_s, burst), (at_s + lasts, base)]
        at_s += lasts + float(rng.uniform(40.0, 120.0))
    return points


def _diurnal(rng: Generator, settings: TraceSettings) -> Points:
    """A level for a while, then two days: down to the night, up to a peak, and back."""
    peak = float(rng.uniform(max(settings.first, 0.5), settings.most))
    low = float(rng.uniform(settings.least, peak / 2))
    begins, lasts = settings.hold_s, settings.seconds - settings.hold_s
    parts = [number / DIURNAL_POINTS for number in range(DIURNAL_POINTS + 1)]
    rates = [low + (peak - low) * (1 - sin(4 * pi * part)) / 2 for part in parts]
    points: Points = [(0.0, rates[0])]
    points += [(begins + p * lasts, rate) for p, rate in zip(parts, rates, strict=True)]
    return points


_DRAWN = {STEPS: _steps, RAMP: _ramp, SPIKES: _spikes, DIURNAL: _diurnal}


def random_troubles(
    rng: Generator,
    profile: Profile,
    regions: dict[str, bool],
    settings: TraceSettings | None = None,
) -> Troubles:
    """Some trouble or other, in half of the cases each.

    Args:
        rng: Decides.
        profile: The application.
        regions: Its regions by name, and whether they can have replicas.
        settings: Nothing drifts and nobody straggles in its first `hold_s`.
    """
    chosen = settings or TraceSettings()
    names = [operator.name for operator in profile.operators]
    keyed = [o.name for o in profile.operators if o.state is StateKind.PARTITIONED]
    drifts, stragglers, skew = [], [], []
    if rng.random() < 0.5:
        drifts.append(_drift(rng, names, chosen))
    if rng.random() < 0.5 and any(regions.values()):
        stragglers.append(_straggler(rng, [n for n, several in regions.items() if several], chosen))
    if rng.random() < 0.5:
        skew = [(name, float(rng.uniform(0.3, 1.0))) for name in keyed]
    noise = float(rng.uniform(0.02, 0.2)) if rng.random() < 0.75 else 0.0
    return Troubles(tuple(drifts), tuple(stragglers), tuple(skew), noise)


def _moment(rng: Generator, settings: TraceSettings) -> float:
    return float(rng.uniform(settings.hold_s, settings.seconds - settings.hold_s / 2))


def _drift(rng: Generator, names: list[str], settings: TraceSettings) -> Drift:
    factor = float(rng.uniform(1.5, 3.0)) if rng.random() < 0.7 else float(rng.uniform(0.3, 0.7))
    slowly = float(rng.uniform(10.0, 60.0)) if rng.random() < 0.5 else 0.0
    return Drift(str(rng.choice(names)), factor, _moment(rng, settings), slowly)


def _straggler(rng: Generator, regions: list[str], settings: TraceSettings) -> Straggler:
    from_s = _moment(rng, settings)
    until_s = from_s + float(rng.uniform(30.0, 120.0))
    factor = float(rng.uniform(1.3, 3.0))
    return Straggler(factor, from_s, until_s, region=str(rng.choice(regions)), replica=0)
