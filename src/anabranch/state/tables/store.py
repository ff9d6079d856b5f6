"""What every kind of operator state can do, and the kind that holds Python objects.

A store belongs to one operator on one replica and holds the buckets that replica owns. Buckets come
and go whole: `release` gives them up by reference, `absorb` takes them over. What survives a crash
is bytes: a snapshot, and after it the changes, one after another, which cost what was touched.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from anabranch.errors import StateError, Subject

_MOVED = {
    "anabranch.operators.invocation": "anabranch.operators.tuple_style.invocation",
    "anabranch.operators.key_identity": "anabranch.operators.tuple_style.arrivals",
    "anabranch.operators.rows": "anabranch.columns.rows",
    "anabranch.operators.shared": "anabranch.operators.keyed.shared",
}
"""Modules of classes that checkpoints of earlier versions name, and where those classes are now."""


class Store(Protocol):
    """State of one operator on one replica.

    An implementer owes: after `release(b)` nothing of those buckets is visible here and nothing is
    copied; `absorb` of what was released restores it exactly; `restore(snapshot(b))` on an empty
    store equals the state at the time of the snapshot, whatever happened since.

    It owes as well, for any buckets: what `restore` took from a snapshot that `saved` followed,
    plus `replay` of all `changes` that `saved` followed, in order, equals what the store held when
    the last of them were told. If buckets moved, the changes of their earlier owners come first.
    Whoever calls owes: no bucket is released while changes of it are not saved.
    """

    def release(self, buckets: Collection[int]) -> Any:
        """Give up buckets, by reference."""

    def absorb(self, handover: Any) -> None:
        """Take over what another store of the same operator released."""

    def snapshot(self) -> bytes:
        """Everything held, in a form that survives the process."""

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take from a snapshot what belongs to the given buckets."""

    def track(self) -> None:
        """Remember changes from now on, so that `changes` can tell them; what is held is saved."""

    def changes(self) -> bytes | None:
        """What changed since `track` or the last `saved`, None when nothing did.

        In a form that survives the process. A store that is not tracked cannot tell: it raises.
        """

    def saved(self) -> None:
        """What the last `changes` or `snapshot` told is safe: later changes are told apart."""

    def replay(self, changes: bytes, buckets: Collection[int]) -> None:
        """Bring what was restored up to date: take what belongs to the given buckets."""


def untracked() -> StateError:
    """Somebody asks for changes that nobody remembered."""
    return StateError(
        Subject("state"),
        "a store that remembers changes",
        "one that does not",
        "call track() first",
    )


class BucketIndex(Protocol):
    """What a kernel knows of its keys by bucket, so that it can move along with them.

    An implementer owes: after `release(b)` nothing of those buckets is known here; `absorb` of what
    was released makes it known; neither costs more than the number of buckets.
    """

    def release(self, buckets: Collection[int]) -> Any:
        """Give up buckets, by reference."""

    def absorb(self, handover: Any) -> None:
        """Take over what another index of the same kind released."""


class ObjectHandover(dict[int, dict[Any, Any]]):
    """Buckets on their way from one store to another; `indexes` holds what is known of them."""

    indexes: tuple[Any, ...] = ()


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
        # How often buckets came in without their indexes, so that owners make those anew.
        self.arrivals = 0
        self._indexes: tuple[BucketIndex, ...] = ()
        self._tracked = False
        # (bucket, key) of what changed since `changes`, and of what was told but not saved yet;
        # mappings, since a set of texts would have another order in each process.
        self._touched: dict[tuple[int, Any], None] = {}
        self._told: dict[tuple[int, Any], None] = {}
        self.shrank_from = 0  # the most that was held when something was forgotten

    def bucket(self, number: int) -> dict[Any, Any]:
        """The mapping of one bucket, created when absent; tell `touch` of what changes in it."""
        return self._buckets.setdefault(number, {})

    def move_along(self, *indexes: BucketIndex) -> None:
        """Let indexes over the keys of this store come and go with their buckets."""
        self._indexes = indexes

    def touch(self, number: int, key: Any) -> None:
        """A key's value was put, removed or may have changed in place."""
        if self._tracked:
            self._touched[number, key] = None

    def items(self) -> Iterator[tuple[int, Any, Any]]:
        """Every (bucket, key, value)."""
        for number, entries in self._buckets.items():
            for key, value in entries.items():
                yield number, key, value

    def __len__(self) -> int:
        """Number of keys held."""
        return sum(len(entries) for entries in self._buckets.values())

    def clear(self) -> None:
        """Forget all: unlike `release`, which gives buckets to somebody, this is a change."""
        self.shrank_from = max(self.shrank_from, len(self))
        for number, key, _ in self.items():
            self.touch(number, key)
        self._buckets = {}

    def release(self, buckets: Collection[int]) -> ObjectHandover:
        """Give up buckets, by reference."""
        unsaved = sorted({b for b, _ in (*self._told, *self._touched)} & set(buckets))
        if unsaved:
            raise StateError(
                Subject("state"),
                "changes that are saved before their buckets are given up",
                f"unsaved changes in buckets {unsaved}",
                "write what changes() tells and call saved() before release",
            )
        handover = ObjectHandover({b: self._buckets.pop(b) for b in buckets if b in self._buckets})
        handover.indexes = tuple(index.release(buckets) for index in self._indexes)
        return handover

    def absorb(self, handover: dict[int, dict[Any, Any]]) -> None:
        """Take over released buckets; a bucket that is held already must not come twice."""
        doubled = sorted(b for b in handover if self._buckets.get(b))
        if doubled:
            raise StateError(
                Subject("state"),
                "each bucket with one owner",
                f"buckets {doubled} twice",
                "release a bucket before another replica absorbs it",
            )
        self._buckets.update(handover)
        known = handover.indexes if isinstance(handover, ObjectHandover) else ()
        if known and len(known) == len(self._indexes):
            for index, part in zip(self._indexes, known, strict=True):
                index.absorb(part)
        else:
            self.arrivals += 1

    def __getstate__(self) -> dict[str, Any]:
        """Without the indexes, which are the kernel's."""
        return {**self.__dict__, "_indexes": ()}

    def snapshot(self) -> bytes:
        """Everything held, pickled: arbitrary Python state has no columnar form."""
        content = pickle.dumps(self._buckets, protocol=pickle.HIGHEST_PROTOCOL)
        self._tell()
        return content

    def restore(self, snapshot: bytes, buckets: Collection[int]) -> None:
        """Take the given buckets from a snapshot."""
        wanted = set(buckets)
        saved: dict[int, dict[Any, Any]] = _loaded(snapshot)
        self.absorb({b: entries for b, entries in saved.items() if b in wanted})

    def track(self) -> None:
        """Remember from now on which keys are touched."""
        self._tracked = True
        self._touched, self._told = {}, {}

    def changes(self) -> bytes | None:
        """By bucket, the values of touched keys and the keys that are gone, pickled."""
        if not self._tracked:
            raise untracked()
        put: dict[int, dict[Any, Any]] = {}
        gone: dict[int, list[Any]] = {}
        for number, key in self._told | self._touched:
            entries = self._buckets.get(number, {})
            if key in entries:
                put.setdefault(number, {})[key] = entries[key]
            else:
                gone.setdefault(number, []).append(key)
        if not put and not gone:
            return None
        content = pickle.dumps((put, gone), protocol=pickle.HIGHEST_PROTOCOL)
        self._tell()
        return content

    def saved(self) -> None:
        """Forget the changes that were told."""
        self._told = {}

    def replay(self, changes: bytes, buckets: Collection[int]) -> None:
        """Put and remove the keys of the given buckets."""
        put, gone = _loaded(changes)
        for number in buckets:
            for key in gone.get(number, ()):
                self.bucket(number).pop(key, None)
            if number in put:
                self.bucket(number).update(put[number])
        self.arrivals += 1

    def _tell(self) -> None:
        self._told |= self._touched
        self._touched = {}


class _Unpickler(pickle.Unpickler):
    """Finds classes where they are now."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(_MOVED.get(module, module), name)


def _loaded(saved: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(saved)).load()
    except (AttributeError, ModuleNotFoundError) as error:
        raise StateError(
            Subject("state", "Python objects"),
            "the classes that the state was saved with",
            str(error),
            "go on with the version of the program that saved it, put the class back where it was, "
            "or start afresh in a new checkpoint directory",
        ) from error
