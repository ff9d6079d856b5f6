"""How the tuples of a region fall on its buckets, and which key comes most often.

Buckets are counted exactly: the router knows the bucket of every tuple. Keys are estimated from a
few dozen tuples of each jumbo tuple, drawn one from each of as many equal stretches, so that no
pattern in the data can hide or make a hot key; of those the newest few thousand are kept.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.columns.key_words import Ints, Words
from anabranch.events import HotKey

DRAWN_ROWS = 64
"""Tuples of a jumbo tuple whose keys are looked at."""
KEPT_DRAWS = 64
"""Jumbo tuples of a period whose keys are remembered: the newest."""
MOST_KEYS = 8
"""Keys that are reported of a period."""
LEAST_DRAWN = 10
"""A key that was drawn fewer times may have been drawn by chance."""
LEAST_SHARE = 0.05
"""A key that comes less often is not reported."""
MOST_LETTERS = 40


@dataclass(frozen=True)
class Draw:
    """Tuples drawn from one jumbo tuple: hashes and columns of their keys, tuples each is for."""

    hashes: Words
    keys: tuple[pa.Array, ...]
    weight: float


@dataclass(frozen=True)
class OftenKey:
    """A key that was drawn: its hash, itself in words, how often, and for how many tuples."""

    hash: int
    words: str
    drawn: int
    rows: float


@dataclass(frozen=True)
class Loads:
    """What came to a region in some time.

    Attributes:
        bucket_rows: Tuples by bucket; empty if none came.
        rows: Tuples that the drawn ones stand for.
        often: The keys that were drawn most often.
    """

    bucket_rows: tuple[int, ...] = ()
    rows: float = 0.0
    often: tuple[OftenKey, ...] = ()


class BucketLoads:
    """Counts what a router deals out into one region.

    Args:
        buckets: How many there are.
        key: The columns of the key.
    """

    def __init__(self, buckets: int, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._rows: Ints = np.zeros(buckets, np.int64)
        self._reported: Ints = np.zeros(buckets, np.int64)
        self._draws: deque[Draw] = deque(maxlen=KEPT_DRAWS)
        self._chance = np.random.default_rng(0)

    def note(self, counts: Ints, hashes: Words, keys: Sequence[pa.Array]) -> None:
        """Take in a jumbo tuple: tuples by bucket, hashes and columns of their keys."""
        rows = len(hashes)
        if not rows:
            return
        drawn = self._drawn(rows)
        taken = pa.array(drawn)
        columns = tuple(column.take(taken) for column in keys)
        self._rows += counts
        self._draws.append(Draw(hashes[drawn], columns, rows / len(drawn)))

    def look(self) -> Loads:
        """Return what was noted since the last look."""
        now, draws = self._rows.copy(), list(self._draws)
        self._draws.clear()
        new, self._reported = now - self._reported, now
        rows, often = often_drawn(draws, self._key)
        return Loads(tuple(new.tolist()) if new.any() else (), rows, often)

    def _drawn(self, rows: int) -> Ints:
        if rows <= DRAWN_ROWS:
            return np.arange(rows)
        stretches = np.arange(DRAWN_ROWS) + self._chance.random(DRAWN_ROWS)
        places: Ints = (stretches * (rows / DRAWN_ROWS)).astype(np.int64)
        return np.minimum(places, rows - 1)


def often_drawn(draws: Sequence[Draw], key: Sequence[str]) -> tuple[float, tuple[OftenKey, ...]]:
    """Tuples that draws stand for, and the keys that stand for most of them."""
    if not draws:
        return 0.0, ()
    weights: NDArray[np.float64] = np.repeat(
        [draw.weight for draw in draws], [len(draw.hashes) for draw in draws]
    )
    hashes = np.concatenate([draw.hashes for draw in draws])
    known, first, kind, drawn = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    rows = np.bincount(kind, weights=weights)
    most = np.argsort(-rows, kind="stable")[:MOST_KEYS]
    starts = np.cumsum([0, *(len(draw.hashes) for draw in draws)])
    found = []
    for number in most.tolist():
        place = int(first[number])
        draw = int(np.searchsorted(starts, place, side="right")) - 1
        values = [column[place - int(starts[draw])].as_py() for column in draws[draw].keys]
        words = in_words(key, values)
        found.append(OftenKey(int(known[number]), words, int(drawn[number]), float(rows[number])))
    return float(weights.sum()), tuple(found)


def hottest_key(loads: Iterable[Loads]) -> HotKey | None:
    """Return the key that comes most often, of all that came somewhere; None if none stands out."""
    total, drawn, rows, words = 0.0, defaultdict[int, int](int), defaultdict[int, float](float), {}
    for each in loads:
        total += each.rows
        for key in each.often:
            drawn[key.hash] += key.drawn
            rows[key.hash] += key.rows
            words[key.hash] = key.words
    if not rows:
        return None
    most = max(rows, key=lambda known: (rows[known], words[known]))
    share = rows[most] / total
    if drawn[most] < LEAST_DRAWN or share < LEAST_SHARE:
        return None
    return HotKey(words[most], min(1.0, share))


def bucket_rows(loads: Iterable[Loads]) -> tuple[int, ...]:
    """Tuples by bucket, of all that came somewhere; empty if none did."""
    known = [each.bucket_rows for each in loads if each.bucket_rows]
    return tuple(sum(rows) for rows in zip(*known, strict=True))


def in_words(key: Sequence[str], values: Sequence[object]) -> str:
    """Return a key as people read it.

    Example:
        >>> in_words(("host", "port"), ("a.example", 80))
        "host 'a.example', port 80"
    """
    texts = [repr(value) for value in values]
    short = [text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + "…" for text in texts]
    return ", ".join(f"{name} {text}" for name, text in zip(key, short, strict=True))
