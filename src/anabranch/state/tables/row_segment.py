"""Rows with an index by key and time: what a row store is made of.

Hashes only choose candidates: `same_keys` decides. The index runs by hash and so by bucket, where
the key decides that: several stores can share one index, each with buckets of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.columns.key_words import Ints, Mask, Words, decoded, ranges
from anabranch.columns.rows import compact
from anabranch.state.positions import FIRST, LAST


class Pairs(NamedTuple):
    """Candidates: place `left[i]` of one segment and place `right[i]` of another."""

    left: Ints
    right: Ints


@dataclass
class _Derived:
    """What was computed about a segment, for all who share its index."""

    ranked: tuple[Words, Ints, Ints] | None = None
    ages: Ints | None = None
    newest: int | None = None
    borders: Ints | None = None
    other_hashes: dict[tuple[str, ...], Words] = field(default_factory=dict)


@dataclass(eq=False)
class Segment:
    """Rows with their index; the arrays run in the order (hash, time, serial).

    Attributes:
        batch: The rows, shared by reference; it may hold rows that the index does not name.
        rows: Row in the batch.
        hashes: Hash of the key.
        times: Event time.
        serials: Number by arrival: the order of positions among rows of one bucket.
        dead: Which places were taken out since; None when none was.
        owned: Buckets whose rows are this segment's; None when it has all places.
    """

    batch: pa.RecordBatch
    rows: Ints
    hashes: Words
    times: Ints
    serials: Ints
    dead: Mask | None = None
    owned: Mask | None = None
    _derived: _Derived = field(default_factory=_Derived)

    @staticmethod
    def of(batch: pa.RecordBatch, hashes: Words, times: Ints, serials: Ints) -> Segment:
        """Index rows that stand in the order of their serials."""
        order = index_order(hashes, times)
        return Segment(batch, order, hashes[order], times[order], serials[order])

    def __getstate__(self) -> dict[str, Any]:
        """Without rows that the index does not name; what was computed goes along."""
        if self.owned is not None:
            return self.only(self.places()).__getstate__()
        state = dict(self.__dict__)
        state["batch"] = batch = compact(self.batch)
        if 2 * len(self) < batch.num_rows:
            state["batch"], state["rows"] = self.take(np.arange(len(self))), np.arange(len(self))
        return state

    def __len__(self) -> int:
        """Number of places, taken ones included."""
        return len(self.rows)

    @property
    def mine(self) -> int:
        """Number of places of this segment's buckets, taken ones included."""
        if self.owned is None:
            return len(self)
        return int(np.diff(self._borders(len(self.owned)))[self.owned].sum())

    @property
    def live(self) -> int:
        """Number of rows that are there."""
        if self.dead is None:
            return self.mine
        if self.owned is None:
            return len(self) - int(np.count_nonzero(self.dead))
        return len(self.places())

    @property
    def newest(self) -> int:
        """No serial is higher than this one."""
        if self._derived.newest is None:
            self._derived.newest = int(self.serials.max(initial=-1))
        return self._derived.newest

    def places(self) -> Ints:
        """The places of all rows that are there."""
        if self.owned is None:
            return np.arange(len(self)) if self.dead is None else np.flatnonzero(~self.dead)
        there = np.repeat(self.owned, np.diff(self._borders(len(self.owned))))
        return np.flatnonzero(there if self.dead is None else there & ~self.dead)

    def there(self, places: Ints) -> Mask | None:
        """Which of some places have rows that are there; None when all of them have."""
        there: Mask | None = None
        if self.dead is not None:
            there = ~self.dead.take(places)
        if self.owned is not None:
            mine = self.owned.take(bucket_of(self.hashes.take(places), len(self.owned)))
            there = mine if there is None else there & mine
        return there

    def holds(self, buckets: int) -> Mask:
        """Which buckets this segment has places of, if the key decides the bucket."""
        filled: Mask = np.diff(self._borders(buckets)) > 0
        return filled if self.owned is None else filled & self.owned

    def part(self, owned: Mask) -> Segment:
        """Some buckets, which are not this segment's any more; rows and index are shared."""
        dead = None if self.dead is None else self.dead.copy()
        part = replace(self, dead=dead, owned=self.holds(len(owned)) & owned)
        self.owned = self.holds(len(owned)) & ~owned
        return part

    def join(self, part: Segment) -> None:
        """Take over the buckets of another segment that shares rows and index."""
        assert self.owned is not None
        assert part.owned is not None
        if self.dead is not None and part.dead is not None:
            self.dead = self.dead | part.dead
        elif part.dead is not None:
            self.dead = part.dead
        self.owned = self.owned | part.owned

    def is_part_of(self, other: Segment) -> bool:
        """Whether both share rows and index."""
        return self.rows is other.rows

    def take(self, places: Ints) -> pa.RecordBatch:
        """The rows at some places."""
        return self.batch.take(pa.array(self.rows.take(places)))

    def columns(self, names: Sequence[str], places: Ints) -> list[pa.Array]:
        """Some columns of the rows at some places."""
        rows = pa.array(self.rows.take(places))
        return [self.batch.column(name).take(rows) for name in names]

    def hashes_of(self, names: tuple[str, ...]) -> Words:
        """Hash of some other columns, by place."""
        known = self._derived.other_hashes
        if names not in known:
            known[names] = key_hashes(self.batch, names).take(self.rows)
        return known[names]

    def kill(self, places: Ints) -> None:
        """Take rows out."""
        if len(places):
            if self.dead is None:
                self.dead = np.zeros(len(self), np.bool_)
            self.dead[places] = True

    def only(self, places: Ints) -> Segment:
        """The same rows, of which only some places can be seen; no row is copied."""
        return Segment(
            self.batch,
            self.rows.take(places),
            self.hashes.take(places),
            self.times.take(places),
            self.serials.take(places),
        )

    def expired(self, before: int) -> int:
        """How many places are older than a time, whoever has them."""
        if self._derived.ages is None:
            self._derived.ages = np.sort(self.times)
        return int(np.searchsorted(self._derived.ages, before))

    def candidates(self, other: Segment, within: int | None = None) -> Pairs:
        """Pairs of equal hash, places of this segment with places of another.

        Args:
            other: Where to look.
            within: How far apart the two times may be; None when time does not matter.
        """
        if within is None:
            starts = np.searchsorted(other.hashes, self.hashes, "left")
            stops = np.searchsorted(other.hashes, self.hashes, "right")
        else:
            starts, stops = self._time_ranges(other, within)
        counts = np.maximum(stops - starts, 0)
        right, _ = ranges(starts.astype(np.int64), counts)
        left = np.repeat(np.arange(len(self)), counts)
        for segment, side in ((self, 0), (other, 1)):
            there = segment.there((left, right)[side])
            if there is not None:
                left, right = left[there], right[there]
        return Pairs(left, right)

    def _borders(self, buckets: int) -> Ints:
        """Where the places of each bucket begin, and where the last ends."""
        if self._derived.borders is None or len(self._derived.borders) != buckets + 1:
            borders = np.searchsorted(self.hashes, first_hashes(buckets), "left")
            self._derived.borders = np.append(borders, len(self)).astype(np.int64)
        return self._derived.borders

    def _time_ranges(self, other: Segment, within: int) -> tuple[Ints, Ints]:
        """Where in the other index the run of each row's hash enters and leaves its time span."""
        distinct, moments, combined = other._rank()
        if not len(distinct):
            nowhere = np.zeros(len(self), np.int64)
            return nowhere, nowhere
        codes = np.minimum(np.searchsorted(distinct, self.hashes), len(distinct) - 1)
        known = distinct.take(codes) == self.hashes
        # Saturated, since a time may lie at either end of int64.
        low = np.where(self.times < FIRST + within, FIRST, self.times - within)
        high = np.where(self.times > LAST - within, LAST, self.times + within)
        base = codes * (len(moments) + 1)
        starts = np.searchsorted(combined, base + np.searchsorted(moments, low, "left"))
        stops = np.searchsorted(combined, base + np.searchsorted(moments, high, "right"))
        return starts.astype(np.int64), np.where(known, stops, starts).astype(np.int64)

    def _rank(self) -> tuple[Words, Ints, Ints]:
        """Distinct hashes, distinct times, and each place as one number: (hash, time) ranked."""
        if self._derived.ranked is None:
            fresh = np.ones(len(self), np.bool_)
            np.not_equal(self.hashes[1:], self.hashes[:-1], out=fresh[1:])
            moments, ranks = np.unique(self.times, return_inverse=True)
            combined = (np.cumsum(fresh) - 1) * (len(moments) + 1) + ranks
            ranked = (self.hashes[fresh], moments, combined.astype(np.int64))
            self._derived.ranked = ranked
        return self._derived.ranked


def first_hashes(buckets: int) -> Words:
    """The least hash of each bucket: buckets follow the order of hashes.

    Example:
        >>> bucket_of(first_hashes(3), 3).tolist(), bucket_of(first_hashes(3)[1:] - 1, 3).tolist()
        ([0, 1, 2], [0, 1])
    """
    least = -(-(np.arange(buckets) << 32) // buckets)
    return (least << 32).view(np.uint64)


def key_hashes(batch: pa.RecordBatch, key: Sequence[str]) -> Words:
    """One hash per row; all equal where there is no key."""
    if not key:
        return np.zeros(batch.num_rows, np.uint64)
    return hash_columns([batch.column(name) for name in key])


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask | None:
    """Which rows of two sets of key columns are equal; None when all of them are.

    As everywhere in the library, null is a key like others, NaN equals NaN and -0.0 equals 0.0.
    """
    verdict: Mask | None = None
    for mine, theirs in zip(left, right, strict=True):
        mine, theirs = decoded(mine), decoded(theirs)
        same = pc.equal(mine, theirs)
        if mine.null_count or theirs.null_count:
            both = pc.and_(mine.is_null(), theirs.is_null())
            same = pc.or_(pc.fill_null(same, False), both)
        if pa.types.is_floating(mine.type):
            nans = pc.and_(pc.is_nan(mine), pc.is_nan(theirs))
            same = pc.or_(same, pc.fill_null(nans, False))
        if pc.all(same, min_count=0).as_py():
            continue
        mask = same.to_numpy(zero_copy_only=False)
        verdict = mask if verdict is None else verdict & mask
    return verdict


def index_order(hashes: Words, times: Ints) -> Ints:
    """Rows by (hash, time), rows of one key in the order given, which is that of their times."""
    order = np.argsort(hashes, kind="stable").astype(np.int64)
    sorted_hashes, sorted_times = hashes.take(order), times.take(order)
    backwards = sorted_times[1:] < sorted_times[:-1]
    if (backwards & (sorted_hashes[1:] == sorted_hashes[:-1])).any():
        # Two keys of one hash whose buckets came from different replicas.
        order = np.lexsort((times, hashes)).astype(np.int64)
    return order
