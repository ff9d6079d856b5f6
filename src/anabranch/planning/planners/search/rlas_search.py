"""The search behind `rlas` and its variants that believe in a fixed fetching time.

The printed algorithms (scaling, branch and bound) give a first plan. On the paper's applications it
is a tenth to a fifth below the best that is found here: groups of replicas are placed greedily
along the streams, and scaling only ever adds. So three things are done that the paper
does not do, all within a budget of placements looked at:

- further starts: sockets filled one after the other in the order of the streams, for a few guesses
  of what fetching adds to the work;
- local improvement of every start: replicas move, change their unit, come or go;
- with what is left of the budget, the best plan is shaken and improved again and again.

The best plan of all is kept, one that satisfies every constraint before any that does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anabranch.planning.models.placed_rates import Counts, RateModel
from anabranch.planning.planners.search.placement_moves import (
    Budget,
    Room,
    filled,
    improve,
    shaken,
    worth,
)
from anabranch.planning.planners.search.replica_scaling import by_work, scale

BUDGET = 1_200_000
"""Units of placements to look at: less than a second."""

GUESSES = ((0.9, 0.5), (0.9, 0.0), (0.97, 1.25))
"""Part of all replicas to begin with, and part of the mean fetching time to count as work."""

SHAKES = 4
MOST_SHAKEN = 200


def search(model: RateModel, room: Room, compress: int = 5, seed: int = 0) -> Counts:
    """Replicas by unit and socket: the best plan that was found.

    Args:
        model: What to believe.
        room: How many replicas there may be.
        compress: Replicas of a unit that branch and bound places together.
        seed: Of the choices that are drawn.
    """
    draw = np.random.default_rng(seed)
    budget = Budget(BUDGET)
    best, best_worth = None, -np.inf
    for start in starts(model, room, compress):
        found = improve(model, start, room, budget, draw)
        if (value := _worth(model, found, room)) > best_worth:
            best, best_worth = found, value
    assert best is not None, "there is always a start"
    for _ in range(MOST_SHAKEN):
        if budget.left <= 0:
            break
        found = improve(model, shaken(best, room, SHAKES, draw), room, budget, draw)
        if (value := _worth(model, found, room)) > best_worth:
            best, best_worth = found, value
    return best


def starts(model: RateModel, room: Room, compress: int) -> Iterator[Counts]:
    """Where improvement begins: the printed algorithm's plan, then simple ones."""
    printed = scale(model, room, compress)
    if printed is not None:
        yield printed
    for share, fetching in GUESSES:
        replicas = by_work(model, room, share, fetching)
        yield filled(replicas, nearest_first(model), -(-room.limit // model.sockets))


def nearest_first(model: RateModel) -> list[int]:
    """Sockets in an order in which each is the nearest to those before it."""
    latency = model.latency[:-1, :-1]
    order = [0]
    while len(order) < model.sockets:
        away = latency[order].sum(axis=0)
        away[order] = np.inf
        order.append(int(away.argmin()))
    return order


def _worth(model: RateModel, counts: Counts, room: Room) -> float:
    return float(worth(model.rates(counts[None]), room)[0])
