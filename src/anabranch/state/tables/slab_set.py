"""The slabs of one table as one range of slots.

The last slab is the table's own: new rows go there. The others are views that came with buckets of
other tables; their rows are read and written where they are. A view is left behind when its rows
are few, or when there are too many views: its rows move to the own slab, some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.key_words import Ints, KeyWords, Mask, Words
from anabranch.state.tables.slab import NO_SLOTS, Slab

MOST_VIEWS = 4
_SETTLE_AT_LEAST = 2048
_COMPACTED_AT_ONCE = 4096

Renumber = Callable[[Ints], Ints]
"""From slots as they were to slots as they are; -1 for those that are gone."""
SlabSlots = tuple[Slab, Ints | None, Ints]
"""A slab, which of the slots asked for are its own (None: all), and what it calls them."""


class Moved(NamedTuple):
    """Rows that moved, and then what became of all slots if a view was dropped.

    Attributes:
        old: The slots they had.
        new: The slots they got, before all were renumbered.
        capacity: All those are below this number.
        renumber: None when no slot was renumbered.
    """

    old: Ints
    new: Ints
    capacity: int
    renumber: Renumber | None


class Slabs:
    """Rows of one table; slots stay good until one of the methods that return a `Renumber`.

    Args:
        own: An empty slab.
    """

    def __init__(self, own: Slab) -> None:
        self.own = own
        self.views: list[Slab] = []
        self._bases: Ints = np.zeros(1, np.int64)
        self._split: tuple[Ints, list[SlabSlots]] | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(slab.rows for slab in self._all())

    @property
    def capacity(self) -> int:
        """Slots are below this number."""
        return int(self._bases[-1]) + self.own.capacity

    # Rows

    def find(self, keys: Sequence[KeyWords], hashes: Words) -> Ints:
        """The slot of each key, -1 where there is none."""
        if not self.views:
            return self.own.find(keys, hashes)
        buckets = self.own.buckets_of(keys, hashes)
        found = np.full(len(hashes), -1, np.int64)
        missing = np.arange(len(hashes))
        # The largest first: most keys are found there, and few are looked up again.
        for slab, base in sorted(self._based(), key=lambda each: -each[0].rows):
            asked = missing[slab.counts.take(buckets.take(missing)) > 0]
            if not len(asked):
                continue
            if len(asked) == len(hashes):
                slots = slab.find(keys, hashes, buckets)
            else:
                some = [column.take(asked) for column in keys]
                slots = slab.find(some, hashes.take(asked), buckets.take(asked))
            hits = np.flatnonzero(slots >= 0)
            if len(hits):
                found[asked.take(hits)] = slots.take(hits) + base
                missing = missing[found.take(missing) < 0]
                if not len(missing):
                    break
        return found

    def insert(self, keys: Sequence[KeyWords], hashes: Words) -> Ints:
        """Slots for keys that are distinct and not there yet; values zero, no time."""
        self._make_room(len(hashes))
        slots: Ints = self.own.insert(keys, hashes) + self._bases[-1]
        return slots

    def remove(self, slots: Ints) -> None:
        """Take rows out."""
        for slab, _, local in self._parts(slots):
            slab.remove(local)

    def value(self, place: int, slots: Ints) -> npt.NDArray[Any]:
        """A copy of the values of one column."""
        return self._gather(slots, lambda slab, local: slab.values[place].take(local))

    def put(self, place: int, slots: Ints, values: Any) -> None:
        """Write the values of one column: one for all slots, or one for each."""
        for slab, where, local in self._parts(slots):
            slab.values[place][local] = _share(values, where)

    def times(self, slots: Ints) -> Ints:
        """The time of each row."""
        return self._gather(slots, lambda slab, local: slab.times.take(local))

    def stamp(self, slots: Ints, times: int | Ints) -> None:
        """Set the time of rows."""
        for slab, where, local in self._parts(slots):
            slab.times[local] = _share(times, where)

    def bucket(self, slots: Ints) -> Ints:
        """The bucket of each row."""
        return self._gather(slots, lambda slab, local: slab.bucket(local))

    def keys(self, slots: Ints, schema: pa.Schema) -> list[pa.Array]:
        """The key columns of rows."""
        parts = self._parts(slots)
        columns = [
            [slab.keys[place].take(local).to_arrow(field.type) for slab, _, local in parts]
            for place, field in enumerate(schema)
        ]
        if len(parts) == 1:
            return [column for (column,) in columns]
        order = np.empty(len(slots), np.int64)
        places = [where for _, where, _ in parts if where is not None]
        order[np.concatenate(places)] = np.arange(len(slots))
        return [pa.concat_arrays(column).take(pa.array(order)) for column in columns]

    def only_visible(self, slots: Ints) -> Ints:
        """Those of some slots that hold rows."""
        if not self.views:
            return self.own.only_visible(slots)
        visible: Mask = self._gather(slots, lambda slab, local: slab.visible(local))
        return slots[visible]

    def live(self) -> Ints:
        """The slots of all rows."""
        return np.concatenate([slab.live() + base for slab, base in self._based()])

    # What is due

    def file(self, slots: Ints) -> None:
        """Rows were stamped that were not before."""
        for slab, _, local in self._parts(slots):
            slab.file(local)

    def take_due(self, until: int) -> Ints:
        """The slots of rows due at or before a time; they are told once."""
        return np.concatenate([slab.take_due(until) + base for slab, base in self._based()])

    def earliest_due(self) -> int | None:
        """When a row is due next."""
        times = [slab.earliest_due() for slab in self._all()]
        return min((time for time in times if time is not None), default=None)

    # Changes of the slabs themselves

    def release(self, owned: Mask) -> tuple[list[tuple[Slab, int]], Renumber]:
        """Give buckets up: what travels, each with the slot that its first slot was here."""
        before, given = list(self._based()), []
        for slab, base in before:
            if not slab.counts[owned].any():
                continue
            slab.share()
            if slab.counts[~owned].any():
                given.append((slab.part(owned), base))
            else:
                given.append((slab, base))
                if slab is self.own:
                    self.own = slab.fresh()
                else:
                    self.views.remove(slab)
        return given, self._placed(before)

    def absorb(self, owned: Mask, arrived: Sequence[Slab]) -> tuple[list[int], Renumber]:
        """Take buckets over: what the first slot of each slab that arrived is called here."""
        before = list(self._based())
        for slab in self._all():
            slab.replace(owned)
        became: dict[int, Slab] = {}
        for slab in arrived:
            twin = next((mine for mine in self._all() if mine.is_part_of(slab)), None)
            home = self._take_in(slab, twin)
            became[id(slab)] = home
            if twin is not None:
                became[id(twin)] = home
        renumber = self._placed(before, became)
        bases = {id(slab): base for slab, base in self._based()}
        return [bases[id(became[id(slab)])] for slab in arrived], renumber

    def settle(self, rows: int) -> Iterator[Moved]:
        """Spread the cost of leaving views behind: move some rows for `rows` that are looked up."""
        most = max(_SETTLE_AT_LEAST, rows // 4) * max(1, len(self.views) - MOST_VIEWS)
        while self.views and most > 0:
            smallest = min(self.views, key=lambda view: view.rows)
            if smallest.rows and len(self.views) <= MOST_VIEWS and not smallest.wasteful:
                return
            moved = self.leave(smallest, most)
            most -= len(moved.new)
            yield moved

    def leave(self, view: Slab, most: int) -> Moved:
        """Move up to `most` rows of a view to the own slab; a view that is empty is dropped."""
        slots = view.next_live(most)
        if not len(slots) and view.rows:
            raise RuntimeError(f"expected {view.rows} more rows in a view, found none")
        base = next(base for slab, base in self._based() if slab is view)
        mine = NO_SLOTS
        if len(slots):
            self._make_room(len(slots))
            mine = self.own.copy_from(view, slots) + self._bases[-1]
            view.remove(slots)
        capacity = self.capacity
        renumber = None if view.rows else self._placed(list(self._based()))
        return Moved(slots + base, mine, capacity, renumber)

    def compact(self) -> Renumber | None:
        """Give memory back if a good part of the own slab is not used."""
        if not self.own.wasteful:
            return None
        if self.own.rows > _COMPACTED_AT_ONCE:
            self._retire()
            return None
        base, size = int(self._bases[-1]), self.own.size
        self.own, slots = self.own.compacted()
        place = np.full(size, -1, np.int64)
        place[slots] = np.arange(base, base + len(slots))

        def renumber(asked: Ints) -> Ints:
            return np.where(asked < base, asked, place.take(np.maximum(asked - base, 0)))

        return renumber

    # Inside

    def _all(self) -> Iterator[Slab]:
        yield from self.views
        yield self.own

    def _based(self) -> Iterator[tuple[Slab, int]]:
        return zip(self._all(), self._bases.tolist(), strict=True)

    def _parts(self, slots: Ints) -> Sequence[SlabSlots]:
        if not self.views or not len(slots):
            return [(self.own, None, slots)]
        # One look-up is followed by several reads and writes of the very same slots.
        if self._split is None or self._split[0] is not slots:
            self._split = (slots, self._split_by_slab(slots))
        return self._split[1]

    def _split_by_slab(self, slots: Ints) -> list[SlabSlots]:
        which = np.searchsorted(self._bases, slots, "right") - 1
        parts: list[SlabSlots] = []
        for number, (slab, base) in enumerate(self._based()):
            where = np.flatnonzero(which == number)
            if len(where) == len(slots):
                return [(slab, None, slots - base)]
            if len(where):
                parts.append((slab, where, slots.take(where) - base))
        return parts

    def _gather(
        self, slots: Ints, read: Callable[[Slab, Ints], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        gathered: npt.NDArray[Any] | None = None
        for slab, where, local in self._parts(slots):
            values = read(slab, local)
            if where is None:
                return values
            if gathered is None:
                gathered = np.empty(len(slots), values.dtype)
            gathered[where] = values
        assert gathered is not None
        return gathered

    def _make_room(self, rows: int) -> None:
        """Arrays that others share are not replaced by larger ones: new rows go elsewhere."""
        if self.own.has_twins and not self.own.has_room(rows):
            self._retire()

    def _retire(self) -> None:
        """Begin a new own slab; no slot changes."""
        old = self.own
        old.stop_growing()
        self.own = old.fresh()
        self.views.append(old)
        self._split = None
        self._bases = np.append(self._bases, self._bases[-1] + old.size)

    def _take_in(self, slab: Slab, twin: Slab | None) -> Slab:
        """Make what arrived part of this table; returns the slab that has its rows now."""
        if slab.grows and not self.own.rows and twin is not self.own:
            self.own = slab
            if twin is not None:
                self.views.remove(twin)
                slab.join(twin)
            return slab
        if twin is not None:
            twin.join(slab)
            return twin
        slab.stop_growing()
        self.views.append(slab)
        return slab

    def _placed(
        self, before: list[tuple[Slab, int]], became: dict[int, Slab] | None = None
    ) -> Renumber:
        """Drop empty views and number all slots anew."""
        self.views = [view for view in self.views if view.rows]
        sizes = [view.size for view in self.views]
        self._bases = np.cumsum([0, *sizes])
        self._split = None
        now = {id(slab): base for slab, base in self._based()}
        homes = [(became or {}).get(id(slab), slab) for slab, _ in before]
        starts = np.array([base for _, base in before])
        targets = np.array([now.get(id(home), -1) for home in homes])

        def renumber(slots: Ints) -> Ints:
            which = np.searchsorted(starts, slots, "right") - 1
            target = targets.take(which)
            return np.where(target < 0, -1, slots - starts.take(which) + target)

        return renumber


def _share(values: Any, where: Ints | None) -> Any:
    """What some of the slots get of one value for all, or of one for each."""
    if where is None or np.ndim(values) == 0 or len(values) == 1:
        return values
    return np.asarray(values)[where]
