"""The arrays behind a keyed table: keys, values, hashes and times by slot, and the index over them.

A slab knows slots, not versions or owners. The rows of a bucket that was given away stay where they
are, since the new owner may still read them by reference; a floor per bucket hides them: only slots
at or above their bucket's floor are this slab's rows. Slots below the highest floor are not reused,
so that neither a hidden row comes back nor a reader sees one change. `compacted` gets rid of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.state.hashing import bucket_of, hash_words
from anabranch.state.key_index import KeyIndex
from anabranch.state.key_store import grown, key_store
from anabranch.state.key_words import Ints, KeyWords, Mask, Words
from anabranch.state.values import zeros_of

UNSTAMPED = int(np.iinfo(np.int64).max)
_MOST_SLOTS = (1 << 32) - 2
_NO_SLOTS: Ints = np.zeros(0, np.int64)


class Slab:
    """Rows by slot, found by key.

    Args:
        key_schema: Types of the key columns.
        value_schema: Types of the value columns.
        buckets: Number of buckets that keys are hashed into.
        routing: Places of the key columns that decide the bucket, in the order they are hashed.
    """

    def __init__(
        self,
        key_schema: pa.Schema,
        value_schema: pa.Schema,
        buckets: int,
        routing: tuple[int, ...],
    ) -> None:
        self._schemas = (key_schema, value_schema)
        self._buckets = buckets
        self._routing = routing
        # Where the whole key routes, its hash says all and nothing more need be stored.
        self._routes_by_part = routing != tuple(range(len(key_schema)))
        self._routes: Words = np.zeros(0, np.uint64)
        self.size = 0
        self.keys = [key_store(field.type) for field in key_schema]
        self.values: list[npt.NDArray[Any]] = [zeros_of(field.type, 0) for field in value_schema]
        self.times: Ints = np.zeros(0, np.int64)
        self.alive: Mask = np.zeros(0, np.bool_)
        self._hashes: Words = np.zeros(0, np.uint64)
        self._index = KeyIndex(0)
        self._free: Ints = _NO_SLOTS
        self._reusable_from = 0
        self._floor: Ints = np.zeros(buckets, np.int64)
        self._has_hidden = False
        self.counts: Ints = np.zeros(buckets, np.int64)

    @property
    def capacity(self) -> int:
        """Number of slots there is room for."""
        return len(self.alive)

    @property
    def rows(self) -> int:
        """Number of rows that are not hidden."""
        return int(self.counts.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; of Python values only the references."""
        fixed = self.times.nbytes + self.alive.nbytes + self._hashes.nbytes + self._free.nbytes
        fixed += self._routes.nbytes
        columns = sum(key.nbytes for key in self.keys) + sum(value.nbytes for value in self.values)
        return int(fixed + columns + self._index.nbytes)

    @property
    def wasteful(self) -> bool:
        """Whether compacting would give back at least half of the slots in use."""
        unusable = self.size - self.rows - len(self._free)
        return self.size > 1024 and (2 * unusable > self.size or 8 * self.rows < self.size)

    def find(self, keys: Sequence[KeyWords], hashes: Words) -> Ints:
        """The slot of each key, -1 where there is none."""

        def verify(rows: Ints, slots: Ints) -> Mask:
            if self._has_hidden:
                seen = np.flatnonzero(self.visible(slots))
                if len(seen) < len(slots):
                    right = np.zeros(len(slots), np.bool_)
                    right[seen] = self._same(slots.take(seen), keys, rows.take(seen))
                    return right
            return self._same(slots, keys, rows)

        return self._index.find(hashes, verify)

    def insert(self, keys: Sequence[KeyWords], hashes: Words) -> Ints:
        """Slots for keys that are distinct and not there yet; values zero, no time."""
        slots = self._allocate(len(hashes))
        for store, column in zip(self.keys, keys, strict=True):
            store.put(slots, column)
        self._hashes[slots] = hashes
        if self._routes_by_part:
            self._routes[slots] = hash_words([keys[place] for place in self._routing])
        self.alive[slots] = True
        self.times[slots] = UNSTAMPED
        if self._index.full(len(slots)):
            self._rehash()
        else:
            self._index.add(hashes, slots)
        self.counts += self._per_bucket(slots)
        return slots

    def remove(self, slots: Ints) -> None:
        """Take rows out; their slots are used again."""
        self._index.remove(self._hashes.take(slots), slots)
        self.alive[slots] = False
        self.counts -= self._per_bucket(slots)
        for store in self.keys:
            store.drop(slots)
        for column in self.values:
            column[slots] = None if column.dtype.hasobject else 0
        self._free = np.concatenate([self._free, slots[slots >= self._reusable_from]])

    def visible(self, slots: Ints) -> Mask:
        """Whether slots hold rows of this slab: not removed, given away, or younger than a view."""
        if not self._has_hidden:
            return self.alive.take(slots)
        inside = slots < self.size
        if not inside.all():
            slots = np.where(inside, slots, 0)
        return inside & self.alive.take(slots) & (slots >= self._floor.take(self.bucket(slots)))

    def only_visible(self, slots: Ints) -> Ints:
        """Those of some slots that hold rows of this slab."""
        if self.rows == self.size:
            return slots  # every slot does
        return slots[self.visible(slots)]

    def live(self, start: int = 0, stop: int | None = None) -> Ints:
        """The visible slots of a range, ascending."""
        slots = np.flatnonzero(self.alive[start : self.size if stop is None else stop]) + start
        return slots[self.visible(slots)] if self._has_hidden else slots

    def bucket(self, slots: Ints) -> Ints:
        """The bucket of each slot's key."""
        routes = self._routes if self._routes_by_part else self._hashes
        return bucket_of(routes.take(slots), self._buckets)

    def hide(self, buckets: Ints) -> None:
        """The rows of these buckets are not this slab's any more."""
        held = buckets[self.counts.take(buckets) > 0]
        if not len(held):
            return
        self._floor[held] = self.size
        self.counts[held] = 0
        self._has_hidden = True
        self._free = _NO_SLOTS
        self._reusable_from = self.size

    def frozen(self) -> Slab:
        """A view of the same rows by reference, which later changes of this slab do not reach."""
        view = copy.copy(self)
        view.keys = [store.frozen() for store in self.keys]
        view.values = list(self.values)
        view._floor = self._floor.copy()
        view.counts = self.counts.copy()
        # The index is shared: its owner may enter slots that are not the view's, or drop others.
        view._index = copy.copy(self._index)
        view._has_hidden = True
        return view

    def compacted(self) -> tuple[Slab, Ints]:
        """A slab of the visible rows only, and which old slot each of them had."""
        slab = Slab(*self._schemas, self._buckets, self._routing)
        slots = self.live()
        slab.copy_from(self, slots)
        return slab, slots

    def copy_from(self, other: Slab, slots: Ints) -> Ints:
        """Insert rows of another slab, with values and times; returns their slots here."""
        keys = [store.take(slots) for store in other.keys]
        mine = self.insert(keys, other._hashes.take(slots))
        self.times[mine] = other.times.take(slots)
        for here, there in zip(self.values, other.values, strict=True):
            here[mine] = there.take(slots)
        return mine

    def _same(self, slots: Ints, keys: Sequence[KeyWords], rows: Ints) -> Mask:
        same = self.keys[0].matches(slots, keys[0], rows)
        for store, column in zip(self.keys[1:], keys[1:], strict=True):
            same &= store.matches(slots, column, rows)
        return same

    def _per_bucket(self, slots: Ints) -> Ints:
        return np.bincount(self.bucket(slots), minlength=self._buckets)

    def _allocate(self, rows: int) -> Ints:
        """Slots of removed rows first, then new ones."""
        reused = self._free[max(0, len(self._free) - rows) :]
        self._free = self._free[: len(self._free) - len(reused)]
        stop = self.size + rows - len(reused)
        if stop > len(self.alive):
            self._reserve(max(stop, 2 * self.size, 64))
        fresh = np.arange(self.size, stop)
        self.size = stop
        return np.concatenate([reused, fresh]) if len(reused) else fresh

    def _reserve(self, slots: int) -> None:
        if slots > _MOST_SLOTS:
            raise ValueError(f"expected at most {_MOST_SLOTS} keys in one table; use more replicas")
        for store in self.keys:
            store.reserve(slots)
        self.values = [
            grown(column, slots, None if column.dtype.hasobject else 0) for column in self.values
        ]
        self.times = grown(self.times, slots)
        self.alive = grown(self.alive, slots)
        self._hashes = grown(self._hashes, slots)
        if self._routes_by_part:
            self._routes = grown(self._routes, slots)

    def _rehash(self) -> None:
        slots = self.live()
        # Room for half as many again, so that the next rehash is paid by as many insertions.
        self._index = KeyIndex(len(slots) + len(slots) // 2)
        self._index.add(self._hashes.take(slots), slots)
