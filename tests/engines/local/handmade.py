"""Jumbo tuples made by hand, and threads that must come to an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.engines.local.entry import Entry
from anabranch.engines.local.gate import ElasticGate
from anabranch.state.positions import Jumbo, Mark, Positions, Root

DEADLINE_S = 60.0


def at(time: int, rank: int = 0) -> Root:
    """Before the tuple that `tuples` gives this time."""
    return Root(time, rank, time, 0)


def tuples(*times: int, rank: int = 0, marks: tuple[Mark, ...] = ()) -> Jumbo:
    """One tuple for each time; equal times are told apart by rank alone."""
    batch = pa.record_batch({"x": pa.array(times, pa.int64())})
    return Jumbo(batch, Positions.of_rows([(t, rank, t, 0) for t in times], 4), marks)


def times(jumbo: Jumbo | None) -> list[int]:
    return [] if jumbo is None else jumbo.batch.column("x").to_pylist()


def shown(entry: Entry) -> list[list[int]]:
    """By port, the times in an entry."""
    return [times(jumbo) for jumbo in entry.inputs()]


class Control:
    """An epoch-switch tuple that counts who has met it."""

    def __init__(self) -> None:
        self.readers = 0

    def seen(self) -> None:
        self.readers += 1


class Side:
    """A thread beside the test; what it returns or raises comes out of `end`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._function, self._args = function, args
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function(*self._args)
        except BaseException as error:
            self._error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> Any:
        self._thread.join(DEADLINE_S)
        assert self.over, "a thread did not end"
        if self._error is not None:
            raise self._error
        return self._result


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait for what another thread does."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, "what was waited for did not happen"
        time.sleep(0.001)


def gate_of(
    *sources: object,
    readers: tuple[object, ...] = ("r",),
    ports: int = 1,
    ordered: bool = True,
    dealt: bool = False,
    quota: int = 1000,
) -> ElasticGate:
    """A gate whose sources stand at the start."""
    gate = ElasticGate(ports, ordered=ordered, dealt=dealt)
    gate.announce_sources(sources, Root(*[-(1 << 62)] * 4), quota)
    gate.announce_readers(readers)
    return gate


def nothing_ready(gate: ElasticGate, reader: object = "r") -> bool:
    """Whether a reader would have to wait."""
    with gate._lock:
        return not gate._readable(reader)


def read_all(gate: ElasticGate, reader: object = "r") -> list[int]:
    """All that is ready on the only port."""
    found: list[int] = []
    while not nothing_ready(gate, reader):
        found += shown(gate.next_ready(reader))[0]
    return found
