"""Profiles drawn at random: chains as in Pipelined Fission's Table 1, and graphs for laws.

The paper gives means, deviations and fractions, and neither a law nor bounds nor keys. Read here:
costs and selectivities are normal, kinds are drawn operator by operator, and partitioned operators
share one key unless more are asked for. What a normal law puts out of bounds is moved to the bound:
a cost to `LEAST_COST` (a thread switch of the defaults; cheaper operators would decide nothing), a
selectivity to `LEAST_SELECTIVITY` (so that something arrives everywhere), both to three deviations
above the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from anabranch.graph import StateKind
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile, chain

LEAST_COST = 1.0
LEAST_SELECTIVITY = 0.01
DEVIATIONS = 3.0
DEFAULT_CORES = 4
"""Table 1's cores, which belong to the machine."""


@dataclass(frozen=True)
class ChainSettings:
    """What chains are drawn with; the defaults are Table 1's.

    Attributes:
        operators: How many.
        cost_mean: Of their costs, in units of the default thread switch.
        cost_stddev: Of the same.
        selectivity_mean: Of their selectivities.
        selectivity_stddev: Of the same.
        stateless: Part of the operators that are stateless.
        partitioned: Part of them that are partitioned; what is left is stateful.
        thread_switch: δ.
        replication: c_p.
        keys: Columns that the keys of partitioned operators are drawn from, one or more each.
        most_replicas: Partitioned operators get a bound up to this; None for no bound.
    """

    operators: int = 8
    cost_mean: float = 200.0
    cost_stddev: float = 100.0
    selectivity_mean: float = 0.8
    selectivity_stddev: float = 0.4
    stateless: float = 0.4
    partitioned: float = 0.2
    thread_switch: float = 1.0
    replication: float = 50.0
    keys: int = 1
    most_replicas: int | None = None


TABLE_1 = ChainSettings()


def random_chain(rng: Generator, settings: ChainSettings = TABLE_1) -> Profile:
    """A chain drawn as Table 1 says.

    Example:
        >>> drawn = random_chain(np.random.default_rng(5), ChainSettings(operators=3))
        >>> [(one.name, one.state.value, round(one.cost)) for one in drawn.operators]
        [('o1', 'partitioned', 120), ('o2', 'stateless', 242), ('o3', 'stateless', 145)]
    """
    operators = [
        _random_operator(rng, f"o{number + 1}", settings) for number in range(settings.operators)
    ]
    return chain(operators, _overheads(settings))


def random_graph(rng: Generator, settings: ChainSettings = TABLE_1) -> Profile:
    """A graph without cycles: each operator but the first reads from up to two before it.

    Some operators have nobody before them, and are sources; streams have their own selectivities.

    Example:
        >>> drawn = random_graph(np.random.default_rng(2), ChainSettings(operators=4))
        >>> [(stream.producer, stream.consumer) for stream in drawn.streams]
        [('o1', 'o2'), ('o2', 'o3'), ('o2', 'o4'), ('o3', 'o4')]
    """
    operators = tuple(
        _random_operator(rng, f"o{number + 1}", settings) for number in range(settings.operators)
    )
    streams = tuple(
        StreamProfile(f"o{producer + 1}", f"o{consumer + 1}", _selectivity(rng, settings))
        for consumer in range(1, settings.operators)
        for producer in _producers(rng, consumer)
    )
    return Profile(operators, streams, _overheads(settings))


def _producers(rng: Generator, consumer: int) -> list[int]:
    """Often the one before, sometimes another one, two or none, so that chains appear as well."""
    if rng.random() < 0.6:
        return [consumer - 1]
    count = int(rng.integers(0, min(consumer, 2) + 1))
    return sorted(int(one) for one in rng.choice(consumer, size=count, replace=False))


def _random_operator(rng: Generator, name: str, settings: ChainSettings) -> OperatorProfile:
    cost = _normal(rng, settings.cost_mean, settings.cost_stddev, LEAST_COST)
    selectivity = _selectivity(rng, settings)
    state = _state(rng, settings)
    if state is not StateKind.PARTITIONED:
        return OperatorProfile(name, cost, selectivity, state)
    columns = 1 + rng.choice(
        settings.keys, size=int(rng.integers(settings.keys)) + 1, replace=False
    )
    key = tuple(f"k{column}" for column in sorted(columns))
    most = settings.most_replicas
    bound = None if most is None else int(rng.integers(1, most + 1))
    return OperatorProfile(name, cost, selectivity, state, key, bound)


def _state(rng: Generator, settings: ChainSettings) -> StateKind:
    drawn = rng.random()
    if drawn < settings.stateless:
        return StateKind.STATELESS
    if drawn < settings.stateless + settings.partitioned:
        return StateKind.PARTITIONED
    return StateKind.STATEFUL


def _selectivity(rng: Generator, settings: ChainSettings) -> float:
    mean, stddev = settings.selectivity_mean, settings.selectivity_stddev
    return _normal(rng, mean, stddev, LEAST_SELECTIVITY)


def _normal(rng: Generator, mean: float, stddev: float, least: float) -> float:
    drawn = rng.normal(mean, stddev)
    return float(np.clip(drawn, least, max(least, mean + DEVIATIONS * stddev)))


def _overheads(settings: ChainSettings) -> Overheads:
    return Overheads(settings.thread_switch, settings.replication)
