"""Random numbers that follow from what they are for, so that generated data need no memory.

A generator that makes any row by itself cannot carry a vehicle or an account along. It asks instead
for the number drawn for (seed, account, transaction), which is the same whenever it is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_KEPT_BITS = 53  # of 64: as many as a double holds


Words = npt.NDArray[np.uint64]


def mixed(*keys: Any) -> Words:
    """What stands for a combination of keys, to be given as the first key to several draws."""
    words = np.zeros(1, np.uint64)
    for key in keys:
        given = np.atleast_1d(key)
        if given.dtype == np.uint64:
            words = given
        else:
            words = _finished(words + given.astype(np.int64).view(np.uint64) * _STEP + _STEP)
    return words


def draws(*keys: Any) -> npt.NDArray[np.float64]:
    """A number from 0 up to 1 for each combination of keys, whole numbers or columns of them.

    Example:
        >>> account = np.array([7, 8, 7])
        >>> drawn = draws(1, account)
        >>> bool(drawn[0] == drawn[2] != drawn[1])
        True
        >>> bool((draws(mixed(1), account) == drawn).all())
        True
    """
    return (mixed(*keys) >> np.uint64(64 - _KEPT_BITS)) / float(1 << _KEPT_BITS)


def whole_draws(most: Any, *keys: Any) -> npt.NDArray[np.int64]:
    """A whole number from 0 up to `most` (a number or a column), without it.

    Example:
        >>> sorted(set(whole_draws(3, 1, np.arange(100)).tolist()))
        [0, 1, 2]
    """
    drawn: npt.NDArray[np.int64] = (draws(*keys) * most).astype(np.int64)
    return drawn


def zipf(distinct: int) -> npt.NDArray[np.float64]:
    """Where to look random numbers up, so that rank r (from 1) comes in proportion to 1/r.

    Example:
        >>> np.searchsorted(zipf(3), [0.0, 0.5, 0.6, 0.9]).tolist()  # 6, 3 and 2 in 11
        [0, 0, 1, 2]
    """
    weights = np.cumsum(1.0 / np.arange(1, distinct + 1))
    shares: npt.NDArray[np.float64] = weights / weights[-1]
    return shares


def _finished(words: Words) -> Words:
    """The finalizer of splitmix64: each input bit reaches each output bit."""
    for shift, factor in _ROUNDS:
        words = (words ^ (words >> np.uint64(shift))) * factor
    return words ^ (words >> np.uint64(31))
