"""What a tuple-style operator sees when it fires: the tuples of one key, its state, its timers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from anabranch.errors import OperatorError, nearest
from anabranch.operators.rows import is_nan
from anabranch.operators.times import to_time
from anabranch.state.positions import FIRST, LAST


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
