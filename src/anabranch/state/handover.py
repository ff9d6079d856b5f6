"""Buckets on their way from one keyed table to another, by reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from anabranch.state.key_words import Ints, KeyWords, Mask, Words
from anabranch.state.slab import Slab


class Inherited:
    """Rows of some buckets in a slab that another table holds or held.

    Rows are taken out one look-up at a time, each once: `taken` says which are gone. When buckets
    travel on before all was taken, the next owner shares `taken` but looks at its own buckets only.

    Args:
        slab: A frozen slab.
        owned: Which buckets are inherited.
        taken: Which slots were taken already.
        counts: How many rows are left, by bucket.
        alone: Whether nobody else holds the slab, so that it may be taken over whole.
    """

    def __init__(
        self, slab: Slab, owned: Mask, taken: Mask, counts: Ints, alone: bool = False
    ) -> None:
        self.slab = slab
        self.owned = owned
        self.counts = np.where(owned, counts, 0)
        self.alone = alone
        self._taken = taken
        self._cursor = 0

    @classmethod
    def of(cls, slab: Slab, owned: Mask, alone: bool) -> Inherited:
        """Nothing taken yet from a frozen slab."""
        return cls(slab, owned, np.zeros(slab.size, np.bool_), slab.counts, alone)

    @property
    def rows(self) -> int:
        """How many rows are left."""
        return int(self.counts.sum())

    @property
    def whole(self) -> bool:
        """Whether the slab can be taken over as it is: nobody else's, and nothing taken from it."""
        return self.alone and self.rows == self.slab.rows

    def part(self, owned: Mask) -> Inherited:
        """The rows of some of the buckets, for the next owner; they are not here any more."""
        part = Inherited(self.slab, self.owned & owned, self._taken, self.counts)
        self.owned = self.owned & ~owned
        self.counts = np.where(self.owned, self.counts, 0)
        part.alone = self.alone and self.rows == 0
        self.alone = False
        return part

    def find(self, keys: Sequence[KeyWords], hashes: Words) -> Ints:
        """The inherited slot of each key, -1 where there is none."""
        slots = self.slab.find(keys, hashes)
        hits = np.flatnonzero(slots >= 0)
        slots[hits[~self._here(slots.take(hits))]] = -1
        return slots

    def next_slots(self, most: int) -> Ints:
        """Up to `most` slots further on whose rows are still to be taken; none when all are."""
        while self._cursor < self.slab.size:
            stop = min(self._cursor + most, self.slab.size)
            slots = self.slab.live(self._cursor, stop)
            slots = slots[self._here(slots)]
            self._cursor = stop
            if len(slots):
                return slots
        return np.zeros(0, np.int64)

    def take(self, slots: Ints) -> None:
        """These rows have been copied by their new owner."""
        self._taken[slots] = True
        self.counts -= np.bincount(self.slab.bucket(slots), minlength=len(self.counts))

    def _here(self, slots: Ints) -> Mask:
        here: Mask = self.owned.take(self.slab.bucket(slots)) & ~self._taken.take(slots)
        return here


@dataclass
class Handover:
    """Buckets that one table released and another is to absorb, once.

    Attributes:
        owned: Which buckets, as a mask.
        sources: Where their rows are.
        touched: Slots of the first source that changed in the releaser's open version.
        removed: Keys that the releaser removed in its open version.
    """

    owned: Mask
    sources: list[Inherited]
    touched: Ints
    removed: list[list[pa.Array]] = field(default_factory=list)
    absorbed: bool = False

    @property
    def buckets(self) -> frozenset[int]:
        """The buckets that travel."""
        return frozenset(np.flatnonzero(self.owned).tolist())

    @property
    def rows(self) -> int:
        """How many rows travel."""
        return sum(source.rows for source in self.sources)
