"""Placing given replicas one by one, by a rule that only looks for room (BriskStream, Table 6).

A replica goes to the first socket in an order of preference where all constraints still hold. When
one fits nowhere, all begins again with machines that are said to have a tenth more, as the paper
has first-fit and round-robin relax what there is step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from anabranch.planning.models.placed_rates import EVENLY, Counts, RateModel
from anabranch.planning.planners.search.placing import unplaced

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
