"""Open-addressing hash index: from a key's hash to the slot of its row, whole columns at a time.

An entry is a word: the high half of the hash as a tag, and the slot plus one in the low half. Tags
only spare comparisons; whether a row is the key is decided by the caller, who compares the keys.
Probing is linear, each step is one vectorized pass over the rows that are not settled yet. The few
rows with a long way look at several places in a pass, since a pass costs much however few they are.

The array is only ever filled up: entries turn into tombstones in place, and a rehash fills a new
array. So a frozen table can go on reading the old one while its owner goes on writing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anabranch.state.key_words import Ints, Mask, Words

_EMPTY = np.uint64(0)
_TOMBSTONE = np.uint64(1 << 32)  # slot part zero: matches nothing, ends no search
_LOW = np.uint64(0xFFFF_FFFF)
_HIGH = np.uint64(0xFFFF_FFFF_0000_0000)
_SMALLEST = 64
_SINGLE_STEPS = 3
_FAR = 16
_OFFSETS: Words = np.arange(_FAR, dtype=np.uint64)
_COLUMNS: Ints = np.arange(_FAR)

Verify = Callable[[Ints, Ints], Mask]


class KeyIndex:
    """Slots by hash; built for `rows` entries, to be replaced by a larger one when `full`."""

    def __init__(self, rows: int) -> None:
        size = _SMALLEST
        while size < 2 * rows:
            size *= 2
        self._entries: Words = np.zeros(size, np.uint64)
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(self._entries.nbytes)

    def full(self, more: int) -> bool:
        """Whether `more` entries would make probing long: half the places hold something."""
        return 2 * (self._used + more) > len(self._entries)

    def find(self, hashes: Words, verify: Verify) -> Ints:
        """The slot of each row's key, -1 where there is none.

        Args:
            hashes: One per row.
            verify: Told rows and candidate slots, says which candidates really are the row's key.
        """
        found = np.full(len(hashes), -1, np.int64)
        mask = np.uint64(len(self._entries) - 1)
        places = hashes & mask
        rows: Ints | None = None  # None stands for all rows, which saves indexing in the first pass
        for _ in range(_SINGLE_STEPS):
            entries = self._entries.take(places.view(np.int64))
            low = entries & _LOW
            candidates = np.flatnonzero(((entries ^ hashes) <= _LOW) & (low != 0))
            slots = low.take(candidates).view(np.int64) - 1
            owners = candidates if rows is None else rows.take(candidates)
            right = verify(owners, slots)
            if not right.all():
                candidates, owners, slots = candidates[right], owners[right], slots[right]
            found[owners] = slots
            unsettled = entries != _EMPTY
            unsettled[candidates] = False
            left = np.flatnonzero(unsettled)
            if not len(left):
                return found
            rows = left if rows is None else rows.take(left)
            hashes = hashes.take(left)
            places = (places.take(left) + np.uint64(1)) & mask
        if rows is not None:
            self._find_far(found, rows, hashes, places, verify)
        return found

    def _find_far(
        self, found: Ints, rows: Ints, hashes: Words, places: Words, verify: Verify
    ) -> None:
        """Go on for the rows that are left, several places at a time."""
        mask = np.uint64(len(self._entries) - 1)
        for _ in range(0, len(self._entries), _FAR):
            around = (places[:, None] + _OFFSETS) & mask
            entries = self._entries.take(around.view(np.int64))
            empty = entries == _EMPTY
            # What stands behind an empty place belongs to others.
            reached = np.where(empty.any(axis=1), empty.argmax(axis=1), _FAR)
            low = entries & _LOW
            alike = ((entries ^ hashes[:, None]) <= _LOW) & (low != 0)
            alike &= reached[:, None] > _COLUMNS
            which, column = np.nonzero(alike)
            slots = low[which, column].view(np.int64) - 1
            owners = rows.take(which)
            right = verify(owners, slots)
            found[owners[right]] = slots[right]
            left = np.flatnonzero((reached == _FAR) & (found.take(rows) < 0))
            if not len(left):
                return
            rows, hashes = rows.take(left), hashes.take(left)
            places = (places.take(left) + np.uint64(_FAR)) & mask

    def add(self, hashes: Words, slots: Ints) -> None:
        """Add keys that are not there; the caller has asked `full` before."""
        mask = np.uint64(len(self._entries) - 1)
        places = (hashes & mask).view(np.int64)
        fresh = (hashes & _HIGH) | (slots + 1).view(np.uint64)
        while len(fresh):
            held = self._entries.take(places)
            free = np.flatnonzero((held & _LOW) == 0)
            claimed = places.take(free)
            # Rows that want the same place all write; the one that can be read back has it.
            self._entries[claimed] = fresh.take(free)
            lost = self._entries.take(places) != fresh
            self._used += int(np.count_nonzero(~lost & (held == _EMPTY)))
            left = np.flatnonzero(lost)
            fresh = fresh.take(left)
            places = (places.take(left) + 1) & np.int64(mask)

    def remove(self, hashes: Words, slots: Ints) -> None:
        """Take entries out; those that are not there are passed over."""
        mask = np.uint64(len(self._entries) - 1)
        places = (hashes & mask).view(np.int64)
        gone = (hashes & _HIGH) | (slots + 1).view(np.uint64)
        while len(gone):
            held = self._entries.take(places)
            self._entries[places[held == gone]] = _TOMBSTONE
            left = np.flatnonzero((held != gone) & (held != _EMPTY))
            gone = gone.take(left)
            places = (places.take(left) + 1) & np.int64(mask)
