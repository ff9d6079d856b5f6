"""The columnar state of one operator on one replica: rows by key, looked up by whole columns.

Slots number the rows. They are good until the next `groups`, `commit`, `release` or `absorb`, which
may move rows; look keys up again afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.state.change_log import ChangeLog
from anabranch.state.handover import Handover, Source
from anabranch.state.hashing import hash_words
from anabranch.state.key_columns import KeyColumns, taken
from anabranch.state.key_groups import KeyGroups, SlotGroups
from anabranch.state.key_words import Ints, Mask, words_of
from anabranch.state.slab import Slab
from anabranch.state.slabs import Moved, Renumber, Slabs
from anabranch.state.table_delta import TableDelta
from anabranch.state.values import boxed, from_arrow, to_arrow

_SETTLE_ROWS = 1 << 16


class KeyedTable:
    """Rows by key, over all the buckets that one replica owns.

    Values of fixed-width types start as zero and are held as NumPy arrays (dates, times and
    durations as their integers); values of other types start as None and are Python objects.

    Args:
        key_schema: One or several key columns.
        value_schema: Value columns.
        buckets: Number of buckets that keys are hashed into, fixed for life.
        routing: Names of the key columns that decide the bucket; all of them when left out.
        versions: Whether changes are remembered, so that deltas can be asked for; `track` begins
            with that later.

    Example:
        >>> word, n = pa.field("word", pa.string()), pa.field("n", pa.int64())
        >>> table = KeyedTable(pa.schema([word]), pa.schema([n]), buckets=256)
        >>> groups = table.groups([pa.array(["to", "be", "to"])])
        >>> counts = table.get("n", groups.slots) + np.bincount(groups.codes)
        >>> table.set("n", groups.slots, counts)
        >>> table.rows(groups.slots).to_pylist()
        [{'word': 'to', 'n': 2}, {'word': 'be', 'n': 1}]
    """

    def __init__(
        self,
        key_schema: pa.Schema,
        value_schema: pa.Schema,
        buckets: int,
        routing: Sequence[str] | None = None,
        *,
        versions: bool = True,
    ) -> None:
        if len(key_schema) == 0 or buckets < 1:
            raise ValueError(
                f"expected at least one key column and one bucket, got {len(key_schema)}, {buckets}"
            )
        self.key_schema = key_schema
        self.value_schema = value_schema
        self.buckets = buckets
        names = key_schema.names if routing is None else routing
        self._routing = tuple(key_schema.names.index(name) for name in names)
        self._keys = KeyColumns(key_schema)
        self._row_schema = pa.schema([*key_schema, *value_schema])
        self._column = {name: place for place, name in enumerate(value_schema.names)}
        self._slabs = Slabs(Slab(key_schema, value_schema, buckets, self._routing))
        self._log = ChangeLog(self._routing, kept=versions)
        self._slot_groups = SlotGroups()
        self.shrank_from = 0  # the most rows that were held when some were removed
        self.moved = 0  # how often rows changed their slots, so that indexes over them are rebuilt

    def __len__(self) -> int:
        return self._slabs.rows

    @property
    def nbytes(self) -> int:
        """Bytes of this table's arrays; those that came by reference count where they were made."""
        return self._slabs.own.nbytes + self._log.nbytes + self._slot_groups.nbytes

    # Looking keys up

    def groups(self, keys: Sequence[pa.Array]) -> KeyGroups:
        """Group a batch by key and find each key's row, inserting those that are missing."""
        columns = self._keys.fitted(keys)
        for moved in self._slabs.settle(len(columns[0])):
            self._follow(moved)
        if self._keys.worth_encoding(columns):
            firsts, codes = self._keys.distinct(columns)
            slots, fresh = self._find_or_insert(taken(columns, firsts))
            return KeyGroups(slots, codes, fresh)
        return self._slot_groups.number(*self._find_or_insert(columns), self._slabs.capacity)

    def find(self, keys: Sequence[pa.Array]) -> Ints:
        """The slot of each row's key, -1 where the table has none."""
        words = [words_of(column) for column in self._keys.fitted(keys)]
        return self._slabs.find(words, hash_words(words))

    def live(self) -> Ints:
        """The slots of all rows."""
        return self._slabs.live()

    # Reading and writing rows

    def get(self, column: str, slots: Ints) -> npt.NDArray[Any]:
        """A copy of the values of one column."""
        return self._slabs.value(self._place(column), slots)

    def set(self, column: str, slots: Ints, values: Any) -> None:
        """Write the values of one column; slots are distinct."""
        place = self._place(column)
        if isinstance(values, pa.Array):
            values = from_arrow(values)
        elif self._slabs.own.values[place].dtype.hasobject and not _is_boxed(values):
            values = boxed(values)
        self._slabs.put(place, slots, values)
        self.touch(slots)

    def touch(self, slots: Ints) -> None:
        """Count rows as changed: a value that is a Python object may have changed in place."""
        self._log.touch(slots, self._slabs.capacity)

    def stamp(self, slots: Ints, time: int | Ints) -> None:
        """Set the time of rows; a row that was never stamped does not expire."""
        self._slabs.stamp(slots, time)
        self.touch(slots)

    def time(self, slots: Ints) -> Ints:
        """The time of each row."""
        return self._slabs.times(slots)

    def expired(self, before: int) -> Ints:
        """The slots of rows whose time is before `before`; looks at every row's time."""
        slots = self.live()
        return slots[self.time(slots) < before]

    def file(self, slots: Ints) -> None:
        """Tell `take_due` of rows with a first stamp; one that moves to a later time is noticed."""
        self._slabs.file(slots)

    def take_due(self, until: int) -> Ints:
        """The slots of rows whose time is at or before `until`, each told once."""
        return self._slabs.take_due(until)

    def earliest_due(self) -> int | None:
        """The earliest time of a row that was not told as due."""
        return self._slabs.earliest_due()

    def remove(self, slots: Ints) -> None:
        """Remove rows; slots are distinct."""
        if len(slots):
            self.shrank_from = max(self.shrank_from, len(self))
            self._log.note_removed(self.keys(slots))
            self._slabs.remove(slots)

    def keys(self, slots: Ints) -> list[pa.Array]:
        """The key columns of rows, with the types of the key schema."""
        return self._slabs.keys(slots, self.key_schema)

    def rows(self, slots: Ints) -> pa.RecordBatch:
        """Key columns, then value columns, of rows."""
        values = [
            to_arrow(self._slabs.value(place, slots), field.type)
            for place, field in enumerate(self.value_schema)
        ]
        return pa.RecordBatch.from_arrays([*self.keys(slots), *values], schema=self._row_schema)

    def bucket(self, slots: Ints) -> Ints:
        """The bucket of each row."""
        return self._slabs.bucket(slots)

    # Versions

    @property
    def version(self) -> int:
        """The last closed version; changes go to the one after it."""
        return self._log.version

    def track(self) -> int:
        """Remember changes from here on and none from before; returns the version to ask since."""
        return self._log.start()

    def commit(self) -> int:
        """Close the open version and return its number; may move rows to give memory back."""
        self._renumber(self._slabs.compact())
        return self._log.commit()

    def delta(self, since: int) -> TableDelta:
        """Everything inserted, updated or removed after a version, the open one included.

        Rows that came by `absorb` are part of it if they changed in the releaser's open version or
        were written here since. What the releaser committed before is in the releaser's deltas:
        write a snapshot after `absorb`, or keep both chains.

        Raises:
            LookupError: The log does not reach back that far.
        """
        slots = self._slabs.only_visible(self._log.touched(since))
        return TableDelta(self.rows(slots), self.time(slots), self._removed(since))

    def forget(self, upto: int) -> None:
        """Drop the log of versions up to `upto`; no delta since before then can be asked for."""
        self._log.forget(upto)

    def snapshot(self) -> TableDelta:
        """Every row, inherited ones included."""
        slots = self.live()
        return TableDelta(self.rows(slots), self.time(slots), self._keys.none)

    def apply(self, delta: TableDelta) -> None:
        """Remove and put what a delta says; counts as changes of the open version here."""
        gone = self.find(delta.removed.columns)
        self.remove(np.unique(gone[gone >= 0]))
        if delta.rows.num_rows:
            width = len(self.key_schema)
            groups = self.groups(delta.rows.columns[:width])
            slots = groups.slots.take(groups.codes)
            for name, values in zip(self._column, delta.rows.columns[width:], strict=True):
                self.set(name, slots, values)
            self.stamp(slots, delta.times)
            self.file(slots)

    def restore(self, snapshot: TableDelta) -> None:
        """Take the rows of a snapshot into an empty table."""
        if len(self):
            raise ValueError(f"expected an empty table to restore into, got {len(self)} rows")
        self.apply(snapshot)

    # Handing buckets over

    def release(self, buckets: Collection[int]) -> Handover:
        """Give buckets up, by reference: no row is copied, and none of them is seen here any more.

        Changes of the open version travel along and become changes of the receiver's; the cost is
        what was changed since the last `commit`. The receiver may read while this table goes on.
        """
        owned = self._mask(buckets)
        removed = self._log.give_removed(owned)
        changed = self._slabs.only_visible(self._log.open_changes())
        changed = changed[owned.take(self._slabs.bucket(changed))]
        given, renumber = self._slabs.release(owned)
        self._renumber(renumber)
        sources = [
            Source(slab, changed[(changed >= base) & (changed < base + slab.size)] - base)
            for slab, base in given
        ]
        return Handover(owned, sources, removed)

    def absorb(self, handover: Handover) -> None:
        """Take buckets over: rows move in when a look-up finds them, or when all are asked for.

        What this table may hold of those buckets is replaced.

        Raises:
            ValueError: The handover was absorbed before, or has another number of buckets.
        """
        if handover.absorbed or len(handover.owned) != self.buckets:
            raise ValueError(
                f"expected a handover of {self.buckets} buckets that was not absorbed yet, got "
                f"{len(handover.owned)} buckets, absorbed={handover.absorbed}; release again"
            )
        handover.absorbed = True
        arrived = [source.slab for source in handover.sources]
        bases, renumber = self._slabs.absorb(handover.owned, arrived)
        self._renumber(renumber)
        for source, base in zip(handover.sources, bases, strict=True):
            self.touch(source.touched + base)
        for keys in handover.removed:
            self._log.note_removed(keys)

    def settle(self, most: int | None = None) -> int:
        """Move up to `most` rows (all by default) that came by reference to this table's arrays.

        Returns how many were moved. Looking keys up does so bit by bit where it is worth it.
        """
        moved = 0
        while self._slabs.views and (most is None or moved < most):
            step = _SETTLE_ROWS if most is None else min(_SETTLE_ROWS, most - moved)
            rows = self._slabs.leave(self._slabs.views[0], step)
            self._follow(rows)
            moved += len(rows.new)
        return moved

    # Inside

    def __getstate__(self) -> dict[str, Any]:
        # The slab that a view is part of may be far larger than what is seen of it.
        self.settle()
        return self.__dict__

    def _place(self, column: str) -> int:
        place = self._column.get(column)
        if place is None:
            raise KeyError(f"expected a value column in {list(self._column)}, got {column!r}")
        return place

    def _find_or_insert(self, columns: Sequence[pa.Array]) -> tuple[Ints, Mask]:
        """Slots of keys, and which rows' keys had none before."""
        words = [words_of(column) for column in columns]
        hashes = hash_words(words)
        slots = self._slabs.find(words, hashes)
        fresh = slots < 0
        missing = np.flatnonzero(fresh)
        if len(missing):
            firsts, codes = self._keys.distinct(taken(columns, missing))
            rows = missing.take(firsts)
            inserted = self._slabs.insert(
                [column.take(rows) for column in words], hashes.take(rows)
            )
            self.touch(inserted)
            slots[missing] = inserted.take(codes)
        return slots, fresh

    def _removed(self, since: int) -> pa.RecordBatch:
        """Keys removed after a version and not there again, each once."""
        parts = self._log.removed(since)
        if not parts:
            return self._keys.none
        columns = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        columns = taken(columns, np.flatnonzero(self.find(columns) < 0))
        firsts, _ = self._keys.distinct(columns)
        return self._keys.batch(taken(columns, firsts))

    def _mask(self, buckets: Collection[int]) -> Mask:
        owned = np.zeros(self.buckets, np.bool_)
        for bucket in buckets:
            if not 0 <= bucket < self.buckets:
                raise ValueError(f"expected buckets below {self.buckets}, got {bucket}")
            owned[bucket] = True
        return owned

    def _follow(self, rows: Moved) -> None:
        """The log follows rows that moved; they were not touched by that."""
        self._log.follow(rows.old, rows.new, rows.capacity)
        self._renumber(rows.renumber)

    def _renumber(self, renumber: Renumber | None) -> None:
        if renumber is not None:
            self._log.renumber(renumber, self._slabs.capacity)
            self.moved += 1


def _is_boxed(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.hasobject and values.ndim == 1
