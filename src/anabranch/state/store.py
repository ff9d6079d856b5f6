"""What every kind of operator state can do, and the kind that holds Python objects.

A store belongs to one operator on one replica and holds the buckets that replica owns. Buckets come
and go whole: `release` gives them up by reference, `absorb` takes them over. A snapshot is what
survives a crash, so it is bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from anabranch.errors import StateError


class Store(Protocol):
    """State of one operator on one replica.

    An implementer owes: after `release(b)` nothing of those buckets is visible here and nothing is
    copied; `absorb` of what was released restores it exactly; `restore(snapshot(b))` on an empty
    store equals the state at the time of the snapshot, whatever happened since.
    """

    def release(self, buckets: Collection[int]) -> Any:
        """Give up buckets, by reference."""

    def absorb(self, handover: Any) -> None:
        """Take over what another store of the same operator released."""

    def snapshot(self) -> bytes:
        """Everything held, in a form that survives the process."""

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take from a snapshot what belongs to the given buckets."""


class ObjectStore:
    """Python objects by bucket and key, for tuple-style operators.

    Example:
        >>> a, b = ObjectStore(), ObjectStore()
        >>> a.bucket(7)["x"] = 1
        >>> b.absorb(a.release([7]))
        >>> (len(a), b.bucket(7)["x"])
        (0, 1)
    """

    def __init__(self) -> None:
        """An empty store."""
        self._buckets: dict[int, dict[Any, Any]] = {}
        self.arrivals = 0  # how often buckets came in, so that owners can refresh their indexes

    def bucket(self, number: int) -> dict[Any, Any]:
        """The mapping of one bucket, created when absent."""
        return self._buckets.setdefault(number, {})

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        """Every (bucket, key, value)."""
        for number, entries in self._buckets.items():
            for key, value in entries.items():
                yield number, key, value

    def __len__(self) -> int:
        """Number of keys held."""
        return sum(len(entries) for entries in self._buckets.values())

    def release(self, buckets: Collection[int]) -> dict[int, dict[Any, Any]]:
        """Give up buckets, by reference."""
        return {b: self._buckets.pop(b) for b in buckets if b in self._buckets}

    def absorb(self, handover: dict[int, dict[Any, Any]]) -> None:
        """Take over released buckets; a bucket that is held already must not come twice."""
        doubled = sorted(b for b in handover if self._buckets.get(b))
        if doubled:
            raise StateError(
                "state",
                "each bucket with one owner",
                f"buckets {doubled} twice",
                "release a bucket before another replica absorbs it",
            )
        self._buckets.update(handover)
        self.arrivals += 1

    def snapshot(self) -> bytes:
        """Everything held, pickled: arbitrary Python state has no columnar form."""
        return pickle.dumps(self._buckets, protocol=pickle.HIGHEST_PROTOCOL)

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take the given buckets from a snapshot."""
        wanted = set(buckets)
        saved: dict[int, dict[Any, Any]] = pickle.loads(snapshot)
        self.absorb({b: entries for b, entries in saved.items() if b in wanted})
