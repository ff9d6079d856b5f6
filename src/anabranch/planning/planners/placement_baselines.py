"""The placements that BriskStream compares RLAS with (Table 6): first-fit, round-robin, the OS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from anabranch.planning.answer import Answer
from anabranch.planning.models.placed_rates import EVENLY, Counts, RateModel
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.rlas import rlas
from anabranch.planning.planners.search.placing import Placing, unplaced


def first_fit(
    problem: Problem, replicas: Sequence[int] | None = None, input_rate: float | None = None
) -> Answer:
    """Place each of RLAS's replicas on the first socket that has capacity left.

    Constraints are relaxed until all have a place. The throughput is that of sinks, summed up,
    slowed down by the worst overload.

    Args:
        problem: What to plan.
        replicas: Of each unit, producers first; None for those of `rlas`.
        input_rate: Tuples from outside; None for as many as the sources can read.
    """
    placing, given = with_replicas(problem, replicas, input_rate)
    model = placing.model()
    return placing.answer(place_by(model, given, lambda number: range(model.sockets)))


def round_robin(
    problem: Problem, replicas: Sequence[int] | None = None, input_rate: float | None = None
) -> Answer:
    """Deal RLAS's replicas out to the sockets in turn; a socket without capacity is passed over.

    The throughput is that of sinks, summed up, slowed down by the worst overload.

    Args:
        problem: What to plan.
        replicas: Of each unit, producers first; None for those of `rlas`.
        input_rate: Tuples from outside; None for as many as the sources can read.
    """
    placing, given = with_replicas(problem, replicas, input_rate)
    model = placing.model()
    sockets = model.sockets
    return placing.answer(
        place_by(model, given, lambda number: ((number + k) % sockets for k in range(sockets)))
    )


def os_placement(
    problem: Problem, replicas: Sequence[int] | None = None, input_rate: float | None = None
) -> Answer:
    """Leave RLAS's replicas to the operating system, which moves threads between sockets.

    The model reads that as threads spread evenly over the sockets: fetching takes the mean over all
    pairs of sockets, the own one included, and no socket has more work than another. The throughput
    is that of sinks, summed up, slowed down by the worst overload.

    Args:
        problem: What to plan.
        replicas: Of each unit, producers first; None for those of `rlas`.
        input_rate: Tuples from outside; None for as many as the sources can read.
    """
    placing, given = with_replicas(problem, replicas, input_rate)
    sockets = problem.machine.sockets
    spread = np.repeat(np.array(given, dtype=np.float64)[:, None] / sockets, sockets, axis=1)
    return placing.answer(spread, placed=False)


# Placements are compared with the same replicas, those of RLAS unless others are given (§6.4).


def with_replicas(
    problem: Problem, replicas: Sequence[int] | None, input_rate: float | None
) -> tuple[Placing, Sequence[int]]:
    """The problem, and the replicas of each unit to place."""
    placing = Placing.of(problem, input_rate)
    return placing, replicas or placing.replicas(rlas(problem, input_rate=input_rate))


# Placing given replicas one by one, by a rule that only looks for room (BriskStream, Table 6).
#
# A replica goes to the first socket in an order of preference where all constraints still hold.
# When one fits nowhere, all begins again with machines that are said to have a tenth more, as the
# paper has first-fit and round-robin relax what there is step by step.

Preference = Callable[[int], Iterable[int]]
"""Sockets to try for the replica of a number, the best first."""

STEP = 1.1


def place_by(model: RateModel, replicas: Sequence[int], preference: Preference) -> Counts:
    """Replicas by unit and socket; units are placed in the order of the streams."""
    allowed = 1.0
    while (found := _place_within(model, replicas, preference, allowed)) is None:
        allowed *= STEP
    return found


def _place_within(
    model: RateModel, replicas: Sequence[int], preference: Preference, allowed: float
) -> Counts | None:
    counts = unplaced(replicas, model.sockets)
    units = np.repeat(np.arange(len(replicas)), replicas)
    for number, unit in enumerate(units):
        order = list(preference(number))
        ways = np.repeat(counts[None], len(order), axis=0)
        ways[:, unit, model.sockets] -= 1
        ways[np.arange(len(order)), unit, order] += 1
        fits = model.rates(ways).overload <= allowed * (1 + EVENLY)
        if not fits.any():
            return None
        counts = ways[int(fits.argmax())]
    return np.asarray(counts[:, : model.sockets])
