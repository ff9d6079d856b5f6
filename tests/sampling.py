"""How much the tests try: a sample in `make test`, all in `make test-all`, more in `make soak`.

`make test` leaves out what is marked `thorough`. `make test-all` runs what is marked `thorough`,
and once more, with all of their cases, the tests that drew a sample: those marked `sampled`, and
those that hypothesis draws examples for.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

SOAK = int(os.environ.get("ANABRANCH_SOAK", "0"))
"""How many cases a law draws in `make soak`; 0 elsewhere."""
ALL = SOAK > 0 or os.environ.get("ANABRANCH_TESTS") == "all"
"""Whether all cases are asked for, not a sample."""

thorough = pytest.mark.thorough
sampled = pytest.mark.sampled


def few(values: Iterable[Any], keep: int) -> list[Any]:
    """Parameters of a test: `keep` of them, evenly spread, in `make test`; the others thorough."""
    found = list(values)
    kept = {number * len(found) // keep for number in range(keep)}
    return [
        value if place in kept else pytest.param(value, marks=thorough)
        for place, value in enumerate(found)
    ]


def some(everything: int, share: int = 4) -> int:
    """The number of cases to draw where `make test-all` draws `everything`."""
    return everything if ALL else max(1, everything // share)


def in_soak(everything: int, share: int) -> int:
    """The same for a law, which draws its share of the cases in `make soak`."""
    return SOAK // share if SOAK else some(everything)
