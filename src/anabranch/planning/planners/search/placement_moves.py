"""Local improvement: follow the best small change of a placement until none helps.

A change takes one replica away, adds one, or does both: it moves a replica to another socket, or
turns it into one of another unit. Changes are looked at in batches, first some drawn at random,
and all of them before giving up.

What counts is first the throughput with a heavy fine on overload, so that the way may lead past
placements that ask too much, and then that every constraint is satisfied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from anabranch.planning.models.placed_rates import EVENLY, BatchRates, Counts, Floats, RateModel

DRAWN = 400
"""Changes to look at before all of them are."""

FINE = 4
"""Power of the overload that the throughput is divided by."""


@dataclass(frozen=True)
class SearchLimits:
    """What a search may use.

    Attributes:
        limit: How many replicas there may be.
        most: The same of each unit.
        crowded: Whether units outnumber cores, so that threads have to share cores anyway and
            overload only counts in what it costs.
    """

    limit: int
    most: tuple[int, ...]
    crowded: bool = False


@dataclass
class Budget:
    """How many units of placements may still be looked at, so that a search surely ends."""

    left: int

    def spend(self, placements: Counts) -> None:
        """Count a batch."""
        self.left -= placements.shape[0] * placements.shape[1]


def worth(rates: BatchRates, room: SearchLimits) -> Floats:
    """What placements are compared by: whatever satisfies all constraints comes before the rest."""
    bounded = rates.bounded
    if room.crowded:
        return bounded
    return np.asarray(np.where(rates.fits, rates.ceiling + bounded, bounded))


def fined(rates: BatchRates) -> Floats:
    """Throughput that overload makes small."""
    return np.asarray(rates.carried / np.maximum(1.0, rates.overload) ** FINE)


def improve(
    model: RateModel, counts: Counts, room: SearchLimits, budget: Budget, draw: np.random.Generator
) -> Counts:
    """The placement that changes lead to.

    Args:
        model: What to believe.
        counts: Replicas by unit and socket to start from.
        room: How many replicas there may be.
        budget: Gets less; when it is used up, the way ends where it is.
        draw: Chooses the changes to look at first.
    """
    for value in (fined, partial(worth, room=room)):
        counts = _climb(model, counts, room, budget, draw, value)
    return counts


def _climb(
    model: RateModel,
    counts: Counts,
    room: SearchLimits,
    budget: Budget,
    draw: np.random.Generator,
    value: Callable[[BatchRates], Floats],
) -> Counts:
    reached = float(value(model.rates(counts[None]))[0])
    while budget.left > 0:
        near = changes(counts, room)
        for few in (True, False):
            looked_at = near
            if few:
                if len(near) <= DRAWN:
                    continue
                looked_at = near[draw.choice(len(near), DRAWN, replace=False)]
            budget.spend(looked_at)
            values = value(model.rates(looked_at)) if len(looked_at) else np.zeros(1)
            best = int(values.argmax())
            if values[best] > reached * (1 + EVENLY):
                counts, reached = looked_at[best], float(values[best])
                break
        else:
            break
    return counts


def shaken(counts: Counts, room: SearchLimits, times: int, draw: np.random.Generator) -> Counts:
    """A placement some random changes away."""
    for _ in range(times):
        near = changes(counts, room)
        if len(near):
            counts = near[draw.integers(len(near))]
    return counts


def changes(counts: Counts, room: SearchLimits) -> Counts:
    """All placements one small change away."""
    units, sockets = counts.shape
    one = np.eye(units * sockets).reshape(-1, units, sockets)
    less = counts - one[(counts > 0).ravel()]
    near = [less, (less[:, None] + one[None]).reshape(-1, units, sockets)]
    if counts.sum() < room.limit:
        near.append(counts + one)
    found = np.concatenate(near)
    totals = found.sum(axis=2)
    allowed = (totals >= 1).all(axis=1) & (totals <= np.asarray(room.most)).all(axis=1)
    return np.asarray(found[allowed & (found != counts).any(axis=(1, 2))])


def filled(replicas: Sequence[int], order: Sequence[int], per_socket: int) -> Counts:
    """Sockets filled one after the other."""
    counts = np.zeros((len(replicas), len(order)))
    units = np.repeat(np.arange(len(replicas)), replicas)
    for number, unit in enumerate(units):
        counts[unit, order[min(number // per_socket, len(order) - 1)]] += 1
    return counts
