"""The columnar state of one operator on one replica: rows by key, looked up by whole columns.

Slots number the rows. They are good until the next `groups`, `commit`, `release` or `absorb`, which
may move rows; look keys up again afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.hashing import hash_words
from anabranch.columns.key_words import (
    FixedWords,
    Ints,
    KeyKind,
    Mask,
    decoded,
    distinct_rows,
    kind_of,
    words_of,
)
from anabranch.state.tables.change_log import ChangeLog
from anabranch.state.tables.slab import Slab
from anabranch.state.tables.slab_set import Moved, Renumber, Slabs
from anabranch.state.tables.values import boxed, from_arrow, to_arrow

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
            RowsInTransit(slab, changed[(changed >= base) & (changed < base + slab.size)] - base)
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


# Buckets on their way from one keyed table to another, by reference.


class RowsInTransit(NamedTuple):
    """Rows that travel.

    Attributes:
        slab: Where they are; it has no rows of other buckets.
        touched: Slots of rows that changed in the releaser's open version.
    """

    slab: Slab
    touched: Ints


@dataclass
class Handover:
    """Buckets that one table released and another is to absorb, once.

    Attributes:
        owned: Which buckets, as a mask.
        sources: Where their rows are.
        removed: Keys that the releaser removed in its open version.
    """

    owned: Mask
    sources: list[RowsInTransit]
    removed: list[list[pa.Array]] = field(default_factory=list)
    absorbed: bool = False

    @property
    def buckets(self) -> frozenset[int]:
        """The buckets that travel."""
        return frozenset(np.flatnonzero(self.owned).tolist())

    @property
    def rows(self) -> int:
        """How many rows travel."""
        return sum(source.slab.rows for source in self.sources)


# What changed in a keyed table, as Arrow batches: what checkpoints store and replicas exchange.


@dataclass(frozen=True)
class TableDelta:
    """Rows to put and keys to remove; removals go first.

    Attributes:
        rows: Key columns, then value columns, of every row inserted or updated.
        times: The time stamp of each of those rows.
        removed: Key columns of the rows that are gone.
    """

    rows: pa.RecordBatch
    times: npt.NDArray[np.int64]
    removed: pa.RecordBatch

    def to_ipc(self) -> bytes:
        """Two Arrow IPC streams in a row: rows with their times as last column, then keys."""
        stamped = self.rows.append_column(pa.field("time", pa.int64()), pa.array(self.times))
        sink = pa.BufferOutputStream()
        for batch in (stamped, self.removed):
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    @classmethod
    def from_ipc(cls, content: bytes) -> TableDelta:
        """The delta that `to_ipc` wrote."""
        reader = pa.BufferReader(content)
        stamped, removed = (_only_batch(reader) for _ in range(2))
        last = stamped.num_columns - 1
        return cls(stamped.remove_column(last), stamped.column(last).to_numpy(), removed)


def _only_batch(reader: pa.BufferReader) -> pa.RecordBatch:
    with pa.ipc.open_stream(reader) as stream:
        batch = stream.read_next_batch()
        # The next stream begins after this one's end mark, which has to be read first.
        for extra in stream:
            raise ValueError(f"expected one batch in a delta, got another of {extra.num_rows} rows")
    return batch


# The distinct keys of a batch, numbered in order of first occurrence.


@dataclass(frozen=True)
class KeyGroups:
    """The distinct keys of a batch, numbered in order of first occurrence.

    Attributes:
        slots: Slot of each group.
        codes: Group number of each row of the batch.
        fresh: Which groups were not in the table before.
    """

    slots: Ints
    codes: Ints
    fresh: Mask


class SlotGroups:
    """Numbers the distinct slots of a batch; keeps its scratch array, which holds no state."""

    def __init__(self) -> None:
        self._first_row: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def __reduce__(self) -> Any:
        return SlotGroups, ()

    @property
    def nbytes(self) -> int:
        """Bytes of the scratch array."""
        return int(self._first_row.nbytes)

    def number(self, slots: Ints, fresh: Mask, capacity: int) -> KeyGroups:
        """The groups of a batch; `slots` and `fresh` are by row, all slots below `capacity`."""
        rows = np.arange(len(slots), dtype=np.int32)
        if len(self._first_row) < capacity:
            self._first_row = np.zeros(capacity, np.int32)
        self._first_row[slots] = len(slots)
        np.minimum.at(self._first_row, slots, rows)
        firsts = self._first_row.take(slots)
        leads = firsts == rows
        if leads.all():
            return KeyGroups(slots, rows.astype(np.int64), fresh)
        codes = np.cumsum(leads)
        codes -= 1
        return KeyGroups(slots[leads], codes.take(firsts), fresh[leads])


# The key columns of a table's batches: fitted to its schema, told apart by what is distinct.

_SAMPLE_ROWS = 4096
_MOSTLY_DISTINCT = 0.98


class KeyColumns:
    """What the key schema of a table says about its batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.none = pa.RecordBatch.from_pylist([], schema)
        self._kinds = [kind_of(field.type) for field in schema]

    def fitted(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Key columns with the types of the schema, texts without dictionaries.

        Raises:
            TypeError: A column is of another kind, such as text where the key is an integer.
        """
        columns = []
        for column, declared, kind in zip(keys, self.schema, self._kinds, strict=True):
            if kind_of(column.type) is not kind:
                raise TypeError(
                    f"expected key {declared.name!r} of type {declared.type}, "
                    f"got {column.type}; cast it"
                )
            if kind is KeyKind.TEXT:
                columns.append(decoded(column))
            else:
                columns.append(
                    column if column.type == declared.type else column.cast(declared.type)
                )
        return columns

    def distinct(self, columns: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """First row of each distinct key of fitted columns, and each row's group number."""
        # Other keys than texts go as words, in which equal floats look equal.
        encodable: list[FixedWords | pa.Array] = [
            column if kind is KeyKind.TEXT else words_of(column)
            for column, kind in zip(columns, self._kinds, strict=True)
        ]
        return distinct_rows(encodable)

    def worth_encoding(self, columns: Sequence[pa.Array]) -> bool:
        """Whether to look up distinct keys only.

        Arrow finds equal texts faster than the table looks them up, which pays when they repeat;
        the first rows of a batch tell. Other keys are looked up as fast as Arrow compares them.
        """
        if KeyKind.TEXT not in self._kinds:
            return False
        firsts, codes = self.distinct([column.slice(0, _SAMPLE_ROWS) for column in columns])
        return len(firsts) < _MOSTLY_DISTINCT * len(codes)

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Key columns under their names."""
        return pa.RecordBatch.from_arrays(list(columns), schema=self.schema)


def taken(columns: Sequence[pa.Array], rows: Ints) -> list[pa.Array]:
    """Some rows of each column."""
    places = pa.array(rows)
    return [column.take(places) for column in columns]
