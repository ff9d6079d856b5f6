"""What a tuple-style operator sees when it fires: the tuples of one key, its state, its timers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cache
from keyword import iskeyword
from typing import Any, NamedTuple

import numpy as np

from anabranch.columns.rows import is_nan
from anabranch.columns.times import to_time
from anabranch.errors import OperatorError, nearest
from anabranch.state.positions import FIRST, LAST, Ints


class Reason(Enum):
    """Why an operator fired."""

    TUPLES = "tuples"
    TIMER = "timer"
    CLOSED = "closed"


class Waiting(NamedTuple):
    """A tuple in a schedule's buffer: where it stands and what it says."""

    position: tuple[int, ...]
    row: Any


class Timer(NamedTuple):
    """A wish to be woken; `chained` when a timer's own firing set it."""

    time: int
    tag: str
    chained: bool


@dataclass(slots=True)
class KeyState:
    """All that is remembered for one key: it moves between replicas as a whole."""

    order: tuple[int, int]
    state: dict[str, Any] = field(default_factory=dict)
    buffers: list[deque[Waiting]] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    touched: int = FIRST

    def __reduce__(self) -> tuple[type[KeyState], tuple[Any, ...]]:
        """Pickle without the names of the fields: every key is pickled when state moves."""
        fields = (self.order, self.state, self.buffers, self.timers, self.touched)
        return KeyState, fields

    def is_blank(self) -> bool:
        """Whether nothing would be lost by forgetting this key."""
        return not (self.state or self.timers or any(self.buffers))


class Emission(NamedTuple):
    """A tuple on its way out."""

    position: tuple[int, ...]
    values: tuple[Any, ...]


Outs = tuple[tuple[str, tuple[str, ...]], ...]
"""The outputs an author may emit to: name and columns of each."""


class Invocation:
    """One firing of an operator for one key.

    Attributes:
        key: The key instance (a value, or a tuple of values for several key columns).
        time: Event time of the firing; the sequence number where the stream has no event time.
        reason: Tuples, a timer, or the end of a bounded stream.
        tag: The name the timer was set with.
        step: The name of the step, for errors.
        state: This key's mapping; what is written survives, moves and is checkpointed.
    """

    # Nothing else can be hung on it: whether the next firing would see it is not said.
    __slots__ = (
        "_base",
        "_emissions",
        "_entry",
        "_fill",
        "_outs",
        "_stateless",
        "_taken",
        "_timed",
        "emitted",
        "follow_tuples",
        "key",
        "reason",
        "step",
        "tag",
    )

    def __init__(
        self,
        step: str,
        key: Any,
        entry: KeyState,
        taken: list[list[Waiting]],
        reason: Reason,
        base: tuple[int, ...],
        outs: Outs,
        tag: str = "",
        fill: dict[str, Any] | None = None,
        timed: bool = False,
        stateless: bool = False,
    ) -> None:
        """Made by the runtime."""
        self.key, self.reason, self.tag = key, reason, tag
        self.step, self._entry, self._taken, self._base = step, entry, taken, base
        self._outs, self._fill, self._timed, self._stateless = outs, fill or {}, timed, stateless
        self.emitted: list[list[Emission]] = [[] for _ in outs]
        self._emissions: dict[tuple[int, ...], int] = {}
        self.follow_tuples = False

    def continue_numbering(self, emissions: dict[tuple[int, ...], int]) -> None:
        """Go on counting emissions where the previous firing of the same event stopped."""
        self._emissions = emissions

    @property
    def time(self) -> int:
        """Event time of the firing."""
        return self._base[0]

    @property
    def state(self) -> dict[str, Any]:
        """This key's mapping."""
        if self._stateless:
            raise OperatorError(
                self.step,
                "no state, as declared",
                "a use of ctx.state",
                "declare it partitioned or stateful",
            )
        return self._entry.state

    def tuples(self, port: int = 0) -> Iterator[Any]:
        """The tuples of this firing on one input port, in order."""
        for waiting in self._taken[port]:
            if self.follow_tuples:
                self._base = waiting.position
            yield waiting.row

    def emit(self, to: str = "out", /, **values: Any) -> None:
        """Send one tuple to an output. Key columns that are not given are filled in."""
        port, row = self._checked(to, values)
        number = self._emissions.get(self._base, 0)
        self._emissions[self._base] = number + 1
        self.emitted[port].append(Emission((*self._base, number), row))

    def _key_values(self) -> dict[str, Any]:
        """Key columns and their values."""
        return self._fill

    def _checked(self, to: str, values: dict[str, Any]) -> tuple[int, tuple[Any, ...]]:
        """Port and values, in the order of its columns, of what an author emits."""
        names = [name for name, _ in self._outs]
        if to not in names:
            raise OperatorError(
                self.step,
                f"an output among {names}",
                repr(to),
                nearest(to, names, "declare it, or emit to one of those"),
            )
        port = names.index(to)
        columns = self._outs[port][1]
        for name, value in self._key_values().items():
            if name in columns and not _same(values.setdefault(name, value), value):
                raise OperatorError(
                    self.step,
                    f"key column {name!r} = {value!r} in what key {self.key!r} emits",
                    repr(values[name]),
                    "rename the output column: a key column keeps its value",
                )
        if set(values) != set(columns):
            raise OperatorError(
                self.step,
                f"the columns {list(columns)}",
                f"{sorted(values)}",
                "emit every column that out= declares, and no other",
            )
        return port, tuple(values[c] for c in columns)

    def set_timer(self, at: int | datetime, tag: str = "") -> None:
        """Fire at an event time, before the tuples of that time; a past time means the next one."""
        if not self._timed:
            raise OperatorError(
                self.step,
                "an operator declared with timers=True",
                "a set_timer",
                "declare timers=True on a stream ordered by event time",
            )
        if self.time >= LAST:
            return
        at = max(to_time(at), self.time + 1)
        chained = self.reason is not Reason.TUPLES
        known = next((t for t in self._entry.timers if t[:2] == (at, tag)), None)
        if known is not None:
            chained = chained and known.chained
            self._entry.timers.remove(known)
        self._entry.timers.append(Timer(at, tag, chained))
        self._entry.timers.sort()

    def cancel_timer(self, at: int | datetime, tag: str = "") -> None:
        """Forget a timer, if there is one."""
        at = to_time(at)
        self._entry.timers = [t for t in self._entry.timers if t[:2] != (at, tag)]


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) or (is_nan(left) and is_nan(right))


# The context of the quick replay: one object serves every firing of a kernel.
#
# It has the interface of `Invocation` and checks the same things with the same words; what differs
# is what it costs. The row a firing stems from is a number, not a position; what is emitted goes
# into a list per column, and a key column that keeps its value into none at all, since it can be
# read off the input. `emit` is compiled for the declared columns, so that a right call makes no
# mapping.

_MISSING: Any = object()
_OWN_NAMES = frozenset({"self", "to", "others", "_MISSING"})


class Kept(tuple[tuple[bool, ...], ...]):
    """Per output and column: whether it is a key column that can be read off the input."""

    __slots__ = ()


class QuickInvocation(Invocation):
    """All firings of one kernel, one after another; for operators without state.

    Attributes:
        parents: Of each emission so far, the row (as the batch is arranged) that it stands at.
        ports: Of each emission, its output; None where there is only one.
        columns: Per output and column, the values so far; None for a column that is kept.
        replaced: Values for kept columns that equal the key but are not the same thing (1.0 for 1),
            by number of the emission and of the column.
    """

    __slots__ = (
        "_kept",
        "_key_names",
        "_row",
        "_times",
        "_waiting",
        "columns",
        "parents",
        "ports",
        "replaced",
    )

    # Set before each firing: the row that an emission stands at, and the tuples to show.
    _row: int
    _waiting: Sequence[Any]

    def __init__(
        self, step: str, outs: Outs, kept: Kept, key: tuple[str, ...], timed: bool, stateless: bool
    ) -> None:
        """Made by the runtime."""
        super().__init__(
            step,
            (),
            KeyState((0, 0)),
            [],
            Reason.TUPLES,
            (),
            outs,
            timed=timed,
            stateless=stateless,
        )
        self._kept, self._key_names = kept, key
        self._row, self._waiting = 0, ()
        self._times: Ints = np.zeros(0, np.int64)
        self.start(self._times)

    def start(self, times: Ints) -> None:
        """A new step, with the times of its rows as arranged: nothing was emitted yet."""
        self._times = times
        self.parents: list[int] = []
        self.ports: list[int] | None = [] if len(self._outs) > 1 else None
        self.replaced: dict[tuple[int, int], Any] = {}
        self.columns: list[list[list[Any] | None]] = [
            [None if kept else [] for kept in port] for port in self._kept
        ]
        for place, column in enumerate(self.columns[0]):
            setattr(self, f"_c{place}", column)

    @property
    def time(self) -> int:
        """Event time of the firing."""
        return int(self._times[self._row])

    def tuples(self, port: int = 0) -> Iterator[Any]:
        """The tuples of this firing."""
        return iter(self._waiting if not port else [self._waiting][port])

    def emit_checked(self, to: str, values: dict[str, Any]) -> None:
        """Whatever the compiled `emit` does not take: mistakes, other outputs, keys given anew."""
        port, row = self._checked(to, values)
        number, own = len(self.parents), self._key_values()
        for place, (column, value) in enumerate(zip(self.columns[port], row, strict=True)):
            if column is not None:
                column.append(value)
            elif type(value) is not type(own[self._outs[port][1][place]]):
                self.replaced[number, place] = value
        self.parents.append(self._row)
        if self.ports is not None:
            self.ports.append(port)

    def _key_values(self) -> dict[str, Any]:
        names = self._key_names
        if not names:
            return {}
        return dict(zip(names, self.key if len(names) > 1 else (self.key,), strict=True))


class QuickKeyInvocation(QuickInvocation):
    """All firings of one kernel with state: the mapping is an attribute, not worked out."""

    __slots__ = ("state",)
    state: dict[str, Any]


class Followed(list[Any]):
    """The tuples of an event; emissions stand at the one that was looked at last."""

    __slots__ = ("_ctx", "_first")

    def __init__(self, ctx: QuickInvocation, first: int, rows: Sequence[Any]) -> None:
        """Rows that are numbered from `first` on."""
        super().__init__(rows)
        self._ctx, self._first = ctx, first

    def __iter__(self) -> Iterator[Any]:
        """One after another, the context following."""
        ctx = self._ctx
        for ctx._row, row in enumerate(super().__iter__(), self._first):
            yield row


@cache
def quick_class(
    outs: Outs, kept: Kept, key: tuple[str, ...], stateless: bool
) -> type[QuickInvocation]:
    """The context class of an operator's shape.

    Shared by the kernels of one shape: the interpreter specialises the author's code for one class.
    """
    base: type[QuickInvocation] = QuickInvocation if stateless else QuickKeyInvocation
    columns = outs[0][1]
    members: dict[str, Any] = {
        "__slots__": tuple(f"_c{place}" for place in range(len(columns))),
        "emit": _emit_any,
    }
    if columns and all(_can_be_compiled(name) for name in columns):
        scope: dict[str, Any] = {"_MISSING": _MISSING}
        exec(_emit_source(outs, kept[0], key), scope)
        members["emit"] = scope["emit"]
    return type("Invocation", (base,), members)  # the name that authors know


def _emit_any(self: QuickInvocation, to: str = "out", /, **values: Any) -> None:
    """Send one tuple to an output."""
    self.emit_checked(to, values)


def _can_be_compiled(name: str) -> bool:
    """Whether a column can be a parameter; Python rewrites identifiers that are not ASCII."""
    return name.isascii() and name.isidentifier() and not iskeyword(name) and name not in _OWN_NAMES


def _emit_source(outs: Outs, kept: tuple[bool, ...], key: tuple[str, ...]) -> str:
    """Source of an `emit` with the first output's columns as parameters.

    It takes the calls that need no look: all columns given, key columns left out or the key itself.
    """
    output, columns = outs[0]
    parts = {name: f"self.key[{n}]" if len(key) > 1 else "self.key" for n, name in enumerate(key)}
    doubts = ["others", f"to != {output!r}"]
    takes = ["self.parents.append(self._row)"]
    takes += ["self.ports.append(0)"] if len(outs) > 1 else []
    for place, name in enumerate(columns):
        if name in parts:
            doubts.append(f"{name} is not _MISSING and {name} is not {parts[name]}")
        else:
            doubts.append(f"{name} is _MISSING")
        if not kept[place]:
            takes.append(f"self._c{place}.append({parts.get(name, name)})")
    pairs = ", ".join(f"({name!r}, {name})" for name in columns)
    return "\n".join(
        [
            f"def emit(self, to={output!r}, /, *, "
            + ", ".join(f"{name}=_MISSING" for name in columns)
            + ", **others):",
            f"    if {' or '.join(doubts)}:",
            f"        others.update((n, v) for n, v in ({pairs},) if v is not _MISSING)",
            "        return self.emit_checked(to, others)",
            *(f"    {line}" for line in takes),
        ]
    )
