"""Growable columns of stored keys: one word per slot, or an arena of words for texts.

`frozen` is a shallow copy that shares the arrays. Whoever writes on afterwards writes only slots
the copy's reader does not look at, and whatever must move is moved to new arrays.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from anabranch.columns.key_words import (
    FixedWords,
    Ints,
    KeyKind,
    KeyWords,
    Mask,
    TextWords,
    Words,
    kind_of,
    ranges,
    word_counts,
)
from anabranch.state.tables.shared_arrays import grown, shared, zeros

_ARENA_WORDS = 1024
_NO_STARTS: Ints = np.zeros(0, np.int64)


class KeyStore(Protocol):
    """One key column of a table, by slot.

    An implementer owes: `matches` is exact, and `put` and `reserve` never change what a frozen
    copy sees in slots that are not put.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""

    def reserve(self, slots: int) -> None:
        """Make room for slots 0..slots-1."""

    def share(self) -> None:
        """Move the arrays into memory that other processes can map."""

    def put(self, slots: Ints, keys: Any) -> None:
        """Store a key in each slot."""

    def drop(self, slots: Ints) -> None:
        """These slots are not needed any more."""

    def matches(self, slots: Ints, keys: Any, rows: Ints) -> Mask:
        """Whether `slots[i]` holds the key of row `rows[i]`."""

    def take(self, slots: Ints) -> KeyWords:
        """The keys in these slots."""

    def frozen(self) -> Self:
        """A view of the same arrays, unaffected by growth."""


def key_store(key_type: pa.DataType) -> KeyStore:
    """An empty store for keys of a type."""
    return TextKeyStore() if kind_of(key_type) is KeyKind.TEXT else FixedKeyStore()


class FixedKeyStore:
    """Keys that are one word; a mask for nulls exists once a null was stored."""

    def __init__(self) -> None:
        self._values: Ints = np.zeros(0, np.int64)
        self._nulls: Mask | None = None

    @property
    def nbytes(self) -> int:
        return int(self._values.nbytes + (0 if self._nulls is None else self._nulls.nbytes))

    def reserve(self, slots: int) -> None:
        self._values = grown(self._values, slots)
        if self._nulls is not None:
            self._nulls = grown(self._nulls, slots)

    def share(self) -> None:
        self._values = shared(self._values)
        self._nulls = None if self._nulls is None else shared(self._nulls)

    def put(self, slots: Ints, keys: FixedWords) -> None:
        self._values[slots] = keys.values
        if keys.nulls is not None and self._nulls is None:
            self._nulls = zeros(len(self._values), np.bool_)
        if self._nulls is not None:
            self._nulls[slots] = False if keys.nulls is None else keys.nulls

    def drop(self, slots: Ints) -> None:
        pass

    def matches(self, slots: Ints, keys: FixedWords, rows: Ints) -> Mask:
        same: Mask = self._values.take(slots) == keys.values.take(rows)
        if self._nulls is None:
            return same if keys.nulls is None else same & ~keys.nulls.take(rows)
        nulls = self._nulls.take(slots)
        return same & (~nulls if keys.nulls is None else nulls == keys.nulls.take(rows))

    def take(self, slots: Ints) -> FixedWords:
        nulls = None if self._nulls is None else self._nulls.take(slots)
        return FixedWords(
            self._values.take(slots), nulls if nulls is not None and nulls.any() else None
        )

    def frozen(self) -> FixedKeyStore:
        return copy.copy(self)


class TextKeyStore:
    """Texts in an arena of words, append-only; growth squeezes out what removed keys left.

    A text's words follow a word with its length, so that a comparison goes to one place in memory.
    """

    def __init__(self) -> None:
        self._words: Words = np.zeros(_ARENA_WORDS, np.uint64)
        self._used = 0
        self._garbage = 0
        self._starts: Ints = np.zeros(0, np.int64)  # of the length word; -1 for no text

    @property
    def nbytes(self) -> int:
        return int(self._words.nbytes + self._starts.nbytes)

    def reserve(self, slots: int) -> None:
        self._starts = grown(self._starts, slots, -1)

    def share(self) -> None:
        self._words, self._starts = shared(self._words), shared(self._starts)

    def put(self, slots: Ints, keys: TextWords) -> None:
        size = len(keys.words) + len(keys)
        if self._used + size > len(self._words):
            self._make_room(size)
        heads = keys.first[:-1] + np.arange(self._used, self._used + len(keys))
        texts, _ = ranges(heads + 1, word_counts(keys.lengths))
        self._words[heads] = keys.lengths.view(np.uint64)
        self._words[texts] = keys.words
        self._starts[slots] = heads
        self._used += size

    def drop(self, slots: Ints) -> None:
        lengths = self._words.take(self._starts.take(slots)).view(np.int64)
        self._garbage += int(word_counts(lengths).sum()) + len(slots)
        self._starts[slots] = -1

    def matches(self, slots: Ints, keys: TextWords, rows: Ints) -> Mask:
        starts = self._starts.take(slots)
        lengths = self._words.take(starts).view(np.int64)
        same: Mask = lengths == keys.lengths.take(rows)
        counts = word_counts(lengths)
        if not same.all():
            counts[~same] = 0
        starts += 1
        mine, first = ranges(starts, counts)
        theirs, _ = ranges(keys.first.take(rows), counts)
        different = np.flatnonzero(self._words.take(mine) != keys.words.take(theirs))
        if len(different):
            same[np.searchsorted(first, different, side="right") - 1] = False
        return same

    def take(self, slots: Ints) -> TextWords:
        starts = self._starts.take(slots)
        lengths = self._words.take(starts).view(np.int64)
        flat, first = ranges(starts + 1, word_counts(lengths))
        return TextWords(self._words.take(flat), first, lengths)

    def frozen(self) -> TextKeyStore:
        return copy.copy(self)

    def _make_room(self, words: int) -> None:
        if self._garbage > self._used // 2:
            held = np.flatnonzero(self._starts >= 0)
            starts = self._starts.take(held)
            counts = word_counts(self._words.take(starts).view(np.int64)) + 1
            flat, first = ranges(starts, counts)
            # New arrays, never the old ones: a frozen copy may still read those.
            self._words = self._words.take(flat)
            self._starts = grown(_NO_STARTS, len(self._starts), -1)
            self._starts[held] = first[:-1]
            self._used, self._garbage = len(flat), 0
        if self._used + words > len(self._words):
            self._words = grown(self._words, max(2 * self._used, self._used + words, _ARENA_WORDS))
