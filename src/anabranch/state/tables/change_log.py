"""Which slots and keys changed in which version, so that a delta costs what was touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.columns.key_words import Ints, Mask

Keys = list[pa.Array]


@dataclass
class _Version:
    touched: list[Ints] = field(default_factory=list)
    removed: list[Keys] = field(default_factory=list)


class ChangeLog:
    """Changes by version, the open one included.

    A slot remembers the version it was last touched in, so that each version lists it at most once.

    Args:
        routing: Places of the key columns that decide the bucket.
        kept: Whether anybody will ask; what nobody asks for is not remembered until `start`.
    """

    def __init__(self, routing: tuple[int, ...], *, kept: bool) -> None:
        self._routing, self._kept = routing, kept
        self.version = 0
        self._forgotten = 0
        self._versions: dict[int, _Version] = {1: _Version()}
        self._last: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of what is remembered."""
        touched = sum(slots.nbytes for log in self._versions.values() for slots in log.touched)
        removed = sum(
            column.nbytes
            for log in self._versions.values()
            for keys in log.removed
            for column in keys
        )
        return int(self._last.nbytes + touched + removed)

    def start(self) -> int:
        """Remember from here on; whatever was remembered before is dropped."""
        self._kept = True
        closed = self.commit()
        self.forget(closed)
        return closed

    def commit(self) -> int:
        """Close the open version."""
        self.version += 1
        self._versions[self.version + 1] = _Version()
        return self.version

    def touch(self, slots: Ints, capacity: int) -> None:
        """Rows were inserted or changed; `capacity` is how many slots there are room for."""
        if not self._kept or not len(slots):
            return
        self._reach(capacity)
        opened = self.version + 1
        stale = self._last.take(slots) != opened
        fresh = slots if stale.all() else slots[stale]
        if len(fresh):
            self._last[fresh] = opened
            self._versions[opened].touched.append(fresh.copy())

    def note_removed(self, keys: Keys) -> None:
        """Rows with these keys were removed."""
        if self._kept:
            self._versions[self.version + 1].removed.append(keys)

    def open_changes(self) -> Ints:
        """Slots touched in the open version; none where nothing is remembered."""
        return self.touched(self.version) if self._kept else np.zeros(0, np.int64)

    def touched(self, since: int) -> Ints:
        """Slots touched in versions after `since`, each once; they may hold no row by now."""
        parts = [np.zeros(0, np.int64)]
        for number, log in self._after(since):
            # A slot that a later version lists too is left to that one.
            newest = number > self.version
            parts += [s if newest else s[self._last.take(s) == number] for s in log.touched]
        return np.concatenate(parts)

    def removed(self, since: int) -> list[Keys]:
        """Keys removed in versions after `since`; some may be there again."""
        return [keys for _, log in self._after(since) for keys in log.removed]

    def forget(self, upto: int) -> None:
        """Drop the log of versions up to `upto`, closed ones only."""
        self._forgotten = max(self._forgotten, min(upto, self.version))
        self._versions = {
            number: log for number, log in self._versions.items() if number > self._forgotten
        }

    def give_removed(self, owned: Mask) -> list[Keys]:
        """Drop removals in the buckets of a mask; those of the open version are returned."""
        given: list[Keys] = []
        for number, log in self._versions.items():
            kept: list[Keys] = []
            for keys in log.removed:
                routes = hash_columns([keys[place] for place in self._routing])
                moving = owned[bucket_of(routes, len(owned))]
                if moving.any() and number > self.version:
                    given.append([column.filter(pa.array(moving)) for column in keys])
                if not moving.all():
                    kept.append([column.filter(pa.array(~moving)) for column in keys])
            log.removed = kept
        return given

    def follow(self, old: Ints, new: Ints, capacity: int) -> None:
        """Rows moved from some slots to others, which were not used."""
        if not self._kept or not self._any_touched():
            return
        self._reach(capacity)
        versions = self._last.take(old)
        for number, log in self._versions.items():
            moved = new[versions == number]
            if len(moved):
                self._last[moved] = number
                log.touched.append(moved)

    def renumber(self, renumbered: Callable[[Ints], Ints], capacity: int) -> None:
        """Slots have other numbers now, -1 those that are gone; costs what was touched."""
        if not self._kept:
            return
        # Made when a row is touched: buckets that move when all is saved should cost nothing here.
        self._last = np.zeros(capacity if self._any_touched() else 0, np.int32)
        for number in sorted(self._versions):
            log = self._versions[number]
            moved = [renumbered(slots) for slots in log.touched]
            log.touched = [slots[slots >= 0] for slots in moved]
            for slots in log.touched:
                self._last[slots] = number

    def _reach(self, capacity: int) -> None:
        if capacity > len(self._last):
            longer = np.zeros(capacity, np.int32)  # not shared memory: it never travels
            longer[: len(self._last)] = self._last
            self._last = longer

    def _any_touched(self) -> bool:
        return any(log.touched for log in self._versions.values())

    def _after(self, since: int) -> list[tuple[int, _Version]]:
        if not self._kept:
            raise LookupError("expected a table with versions=True, got one that keeps no changes")
        if since < self._forgotten:
            raise LookupError(
                f"expected a version from {self._forgotten} on, got {since}; "
                "its changes were forgotten, take a snapshot instead"
            )
        return [(number, log) for number, log in self._versions.items() if number > since]
