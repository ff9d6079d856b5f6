"""The arrays behind a keyed table: keys, values, hashes and times by slot, and the index over them.

A slab knows slots, not versions. The rows of a bucket that is given away stay where they are: the
new owner gets a view, another slab over the same arrays, and goes on writing to them. Each bucket
has one owner at a time, so no two write to one slot. A floor per bucket says whose a row is: only
slots at or above their bucket's floor, and below the size, are this slab's rows. When buckets come
back to a slab over the same arrays, the floors are all that changes.

Only one of the slabs over the same arrays may insert, the one that `grows`. Slots below its highest
floor are not used again, so that no new row is hidden. A slab that may have twins over its arrays
must not replace them by larger ones: whoever inserts asks `has_room` first. `compacted` gets rid of
what is hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_words
from anabranch.columns.key_words import Ints, KeyWords, Mask, Words
from anabranch.state.tables.key_store import key_store
from anabranch.state.tables.shared_arrays import grown, shared, zeros
from anabranch.state.tables.values import zeros_of

UNSTAMPED = int(np.iinfo(np.int64).max)
_MOST_SLOTS = (1 << 32) - 2
_FEW_ROWS = 4096
NO_SLOTS: Ints = np.zeros(0, np.int64)


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
        self._free: Ints = NO_SLOTS
        self._reusable_from = 0
        self._floor: Ints = np.zeros(buckets, np.int64)
        self._has_hidden = False
        self.counts: Ints = np.zeros(buckets, np.int64)
        self.grows, self.has_twins = True, False
        self._lineage = uuid4()  # slabs over the same arrays have the same
        self._due: DueIndex | None = None  # made when somebody asks what is due
        self._settled_to = 0

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
        """Whether moving the rows elsewhere would give back at least half of the slots in use.

        Where others share the slots it is worth it only for those who have few rows.
        """
        rows = self.rows
        if self.size <= 1024:
            return False
        if not self.has_twins:
            return 2 * (self.size - rows - len(self._free)) > self.size or 8 * rows < self.size
        few = rows <= _FEW_ROWS or 8 * rows < self.size
        return few and 2 * int(np.count_nonzero(self.alive[: self.size])) < self.size

    def fresh(self) -> Slab:
        """An empty slab for the same kind of rows."""
        return Slab(*self._schemas, self._buckets, self._routing)

    def buckets_of(self, keys: Sequence[KeyWords], hashes: Words) -> Ints:
        """The bucket of each of some keys."""
        if self._routes_by_part:
            hashes = hash_words([keys[place] for place in self._routing])
        return bucket_of(hashes, self._buckets)

    def find(self, keys: Sequence[KeyWords], hashes: Words, buckets: Ints | None = None) -> Ints:
        """The slot of each key, -1 where there is none; `buckets` are those of the keys."""
        if not self._has_hidden:
            return self._index.find(hashes, lambda rows, slots: self._same(slots, keys, rows))
        # A row with the key of another is in its bucket, so the floor is known without looking.
        floors = self._floor.take(self.buckets_of(keys, hashes) if buckets is None else buckets)

        def verify(rows: Ints, slots: Ints) -> Mask:
            here = (slots >= floors.take(rows)) & (slots < self.size)
            if not here.all():
                seen = np.flatnonzero(here)
                here[seen] = verify_seen(rows.take(seen), slots.take(seen))
                return here
            return verify_seen(rows, slots)

        def verify_seen(rows: Ints, slots: Ints) -> Mask:
            alive = self.alive.take(slots)
            if alive.all():
                return self._same(slots, keys, rows)
            held = np.flatnonzero(alive)
            alive[held] = self._same(slots.take(held), keys, rows.take(held))
            return alive

        return self._index.find(hashes, verify)

    def has_room(self, rows: int) -> bool:
        """Whether so many rows can be inserted into the arrays as they are."""
        fits = self.size + rows - len(self._free) <= len(self.alive)
        return fits and not self._index.full(rows)

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
        """Take rows out; their slots are used again, except in a slab that does not grow."""
        self.counts -= self._per_bucket(slots)
        self.alive[slots] = False
        for column in self.values:
            column[slots] = None if column.dtype.hasobject else 0
        if not self.grows:
            return  # index and keys may be read by others; a row that is not alive is not found
        self._index.remove(self._hashes.take(slots), slots)
        for store in self.keys:
            store.drop(slots)
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

    def hide(self, owned: Mask) -> None:
        """The rows of these buckets are not this slab's any more."""
        held = np.flatnonzero(owned & (self.counts > 0))
        if not len(held):
            return
        self._floor[held] = self.size
        self.counts[held] = 0
        self._has_hidden = True
        self._free = NO_SLOTS
        self._reusable_from = self.size

    def replace(self, owned: Mask) -> None:
        """Hide rows that nobody has: no slab over these arrays may show them again."""
        if self.counts[owned].any():
            self.hide(owned)
            self._lineage = uuid4()

    def share(self) -> None:
        """Move the arrays into memory that other processes can map, before a hand-over.

        Twins in this process keep the arrays that they have. No two own the same row, so that this
        slab's rows may as well lie elsewhere.
        """
        for store in self.keys:
            store.share()
        self.values = [shared(column) for column in self.values]
        self.times, self.alive = shared(self.times), shared(self.alive)
        self._hashes, self._routes = shared(self._hashes), shared(self._routes)
        self._index.share()

    def part(self, owned: Mask) -> Slab:
        """A view of the rows of some buckets, which are not this slab's any more; copies nothing.

        The view does not grow, and later insertions here do not reach it.
        """
        view = self._twin()
        view.keys = [store.frozen() for store in self.keys]
        view.values = list(self.values)
        view.counts = np.where(owned, self.counts, 0)
        view._floor = np.where(view.counts > 0, self._floor, self.size)
        # The index is shared: its owner may enter slots that are not the view's, or drop others.
        view._index = copy.copy(self._index)
        view._due = None if self._due is None else self._due.shared()
        view._settled_to = 0
        view.stop_growing()
        view.has_twins = self.has_twins = True
        self.hide(owned)
        return view

    def stop_growing(self) -> None:
        """From now on rows are read, written and taken out, but none is inserted."""
        self.grows, self._free = False, NO_SLOTS
        # A row that is taken out stays in the index, so look-ups have to see whether it is alive.
        self._has_hidden = True

    def is_part_of(self, other: Slab) -> bool:
        """Return whether both are over the same arrays, as far as all owners of rows write to them.

        Of a slab from another process, any array may be a copy. Keys, hashes and index are written
        by the slab that grows alone, so that copies of these do no harm; see `join`.
        """
        return self._lineage == other._lineage and self._written() == other._written()

    def _written(self) -> list[int]:
        """Return the addresses of the arrays that all owners of rows write to."""
        arrays = (self.alive, self.times, *self.values)
        return [array.__array_interface__["data"][0] for array in arrays]

    def join(self, part: Slab) -> None:
        """Take over the rows of another slab over the same arrays; only this one may grow."""
        if part.size > self.size:
            # The younger one knows what was inserted since, also where its arrays are copies.
            self._floor[self.counts == 0] = part.size
            self.size, self.keys, self._index = part.size, part.keys, part._index
            self._hashes, self._routes = part._hashes, part._routes
        theirs = part.counts > 0
        self._floor[theirs] = part._floor[theirs]
        self.counts = self.counts + part.counts
        self._settled_to = 0
        self._has_hidden = self.has_twins = True
        if self._due is None or part._due is None:
            self._due = None  # made anew when somebody asks
        else:
            self._due.join(part._due, self.visible)

    def next_live(self, most: int) -> Ints:
        """Up to `most` visible slots, found in order; none when it has come to the last slot."""
        while self._settled_to < self.size:
            stop = min(self._settled_to + most, self.size)
            slots = self.live(self._settled_to, stop)
            self._settled_to = stop
            if len(slots):
                return slots
        return NO_SLOTS

    def file(self, slots: Ints) -> None:
        """Rows were stamped that were not, or with an earlier time."""
        if self._due is not None:
            times = self.times.take(slots)
            stamped = times != UNSTAMPED
            self._due.add(times[stamped], slots[stamped], self.visible)

    def take_due(self, until: int) -> Ints:
        """The slots of rows due at or before a time; they are told once."""
        slots = np.unique(self._due_index().take(until))
        slots = slots[self.visible(slots)]
        later = self.times.take(slots) > until
        self.file(slots[later])
        return slots[~later]

    def earliest_due(self) -> int | None:
        """When a row is due next."""
        index = self._due_index()
        while True:
            dues, slots = index.first_hints()
            if not len(slots):
                return None
            here = self.visible(slots)
            right = here & (self.times.take(slots) <= dues)
            passed = int(right.argmax()) if right.any() else len(slots)
            if passed == 0:
                return int(dues[0])
            index.pass_over(passed)
            self.file(slots[:passed][here[:passed]])

    def compacted(self) -> tuple[Slab, Ints]:
        """A slab of the visible rows only, and which old slot each of them had."""
        slab = self.fresh()
        slots = self.live()
        slab.copy_from(self, slots)
        self.alive[slots] = False  # whoever shares these arrays can see how empty they are
        return slab, slots

    def copy_from(self, other: Slab, slots: Ints) -> Ints:
        """Insert rows of another slab, with values and times; returns their slots here."""
        keys = [store.take(slots) for store in other.keys]
        mine = self.insert(keys, other._hashes.take(slots))
        self.times[mine] = other.times.take(slots)
        for here, there in zip(self.values, other.values, strict=True):
            here[mine] = there.take(slots)
        self.file(mine)
        return mine

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made anew when it is asked for, and without Python values of others."""
        values = [self._own(column) if column.dtype.hasobject else column for column in self.values]
        return {**self.__dict__, "_due": None, "values": values}

    def _own(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        slots = self.live()
        own = zeros(len(column), column.dtype)
        own[slots] = column.take(slots)
        return own

    def _twin(self) -> Slab:
        twin = Slab.__new__(Slab)
        twin.__dict__.update(self.__dict__)
        return twin

    def _due_index(self) -> DueIndex:
        if self._due is None:
            self._due = DueIndex()
            self.file(self.live())
        return self._due

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
        self.values = [grown(column, slots) for column in self.values]
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


# Open-addressing hash index: from a key's hash to the slot of its row, whole columns at a time.
#
# An entry is a word: the high half of the hash as a tag, and the slot plus one in the low half.
# Tags only spare comparisons; whether a row is the key is decided by the caller, who compares the
# keys. Probing is linear, each step is one vectorized pass over the rows that are not settled yet.
# The few rows with a long way look at several places in a pass, since a pass costs much however few
# they are.
#
# The array is only ever filled up: entries turn into tombstones in place, and a rehash fills a new
# array. So a frozen table can go on reading the old one while its owner goes on writing.

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
        self._entries: Words = zeros(size, np.uint64)
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(self._entries.nbytes)

    def share(self) -> None:
        """Move the array into memory that other processes can map."""
        self._entries = shared(self._entries)

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


# Which slots are due when: sorted runs that several owners of one slab read by reference.
#
# A run is never changed, so buckets that move take the index along at no cost: each owner has its
# own place in every run and passes over what is not its own. An entry is a hint. Its row may be
# gone, given away or due later by now; whoever takes an entry out looks at the row, and files it
# again if it is due later. So a row has an entry at or before its time, and perhaps more than one.

_HINTS = 1024
_MOST_RUNS = 24

Here = Callable[[Ints], Mask]
"""Says which slots hold rows of this owner."""


class SortedRun:
    """Slots sorted by due time; `next` is the first entry that was not taken out yet."""

    __slots__ = ("dues", "next", "slots")

    def __init__(self, dues: Ints, slots: Ints, next_: int = 0) -> None:
        self.dues, self.slots, self.next = dues, slots, next_

    @property
    def left(self) -> int:
        """How many entries were not taken out."""
        return len(self.dues) - self.next

    @staticmethod
    def of(dues: Ints, slots: Ints) -> SortedRun:
        """Sort entries."""
        order = np.argsort(dues, kind="stable")  # what is sorted in stretches sorts in linear time
        return SortedRun(dues.take(order), slots.take(order))


class DueIndex:
    """Runs, from large to small: a row is sorted again a logarithmic number of times.

    Example:
        >>> index, everybody = DueIndex(), lambda slots: slots >= 0
        >>> index.add(np.array([30, 10, 20]), np.array([0, 1, 2]), everybody)
        >>> index.take(until=20).tolist()
        [1, 2]
        >>> index.first_hints()[0].tolist()
        [30]
    """

    def __init__(self, runs: list[SortedRun] | None = None) -> None:
        """Without runs: nothing is due."""
        self._runs: list[SortedRun] = [] if runs is None else runs

    def add(self, dues: Ints, slots: Ints, here: Here) -> None:
        """File slots; entries that are merged are dropped if their rows are not here."""
        if not len(slots):
            return
        run = SortedRun.of(dues, slots)
        while self._runs and self._runs[-1].left <= 2 * run.left:
            run = _merged([self._runs.pop(), run], here)
        self._runs.append(run)

    def take(self, until: int) -> Ints:
        """Take out all entries up to a time; slots may come twice."""
        taken: list[Ints] = []
        for run in self._runs:
            stop = int(np.searchsorted(run.dues, until, "right"))
            if stop > run.next:
                taken.append(run.slots[run.next : stop])
                run.next = stop
        if not taken:
            return NO_SLOTS
        self._drop_finished()
        return np.concatenate(taken)

    def first_hints(self) -> tuple[Ints, Ints]:
        """Due times and slots of some entries, the earliest of all at their head; they stay."""
        run = self._earliest()
        if run is None:
            return NO_SLOTS, NO_SLOTS
        some = slice(run.next, run.next + _HINTS)
        return run.dues[some], run.slots[some]

    def pass_over(self, hints: int) -> None:
        """Take out the first of what `first_hints` told."""
        run = self._earliest()
        if run is not None:
            run.next += hints
            self._drop_finished()

    def shared(self) -> DueIndex:
        """The same entries for another owner."""
        return DueIndex([SortedRun(run.dues, run.slots, run.next) for run in self._runs])

    def join(self, other: DueIndex, here: Here) -> None:
        """Take in the entries of another owner of the same slab, most of which are here already."""
        mine = {id(run.slots): run for run in self._runs}
        for run in other._runs:
            twin = mine.get(id(run.slots))
            if twin is None:
                self._runs.append(run)
            else:
                twin.next = min(twin.next, run.next)
        self._runs.sort(key=lambda run: -run.left)
        if len(self._runs) > _MOST_RUNS:
            # Small ones all: merging half of them costs less than they were worth filing.
            small = self._runs[_MOST_RUNS // 2 :]
            self._runs = [*self._runs[: _MOST_RUNS // 2], _merged(small, here)]
            self._drop_finished()

    def _earliest(self) -> SortedRun | None:
        return min(self._runs, key=lambda run: int(run.dues[run.next]), default=None)

    def _drop_finished(self) -> None:
        self._runs = [run for run in self._runs if run.left]


def _merged(runs: list[SortedRun], here: Here) -> SortedRun:
    dues = np.concatenate([run.dues[run.next :] for run in runs])
    slots = np.concatenate([run.slots[run.next :] for run in runs])
    kept = np.flatnonzero(here(slots))
    if len(kept) < len(slots):
        dues, slots = dues.take(kept), slots.take(kept)
    return SortedRun.of(dues, slots)
