"""The law must notice when the runtime is broken on purpose: each mutation makes it fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase

from anabranch.engines.routing import Router
from anabranch.io.reader import SourceReader
from anabranch.operators.timed import TimedKernel
from anabranch.operators.tuple_style.invocation import KeyState
from anabranch.operators.tuple_style.kernel import Wakes
from anabranch.state.gate import Gate
from anabranch.state.positions import FIRST, LAST, Root
from anabranch.state.tables.store import ObjectStore
from anabranch.state.tables.table_store import TableStore
from anabranch.testing.interleaved import _Interleaved
from anabranch.testing.region_run import InterleavedRegion
from tests.law.flows import cases
from tests.law.test_determinism import law

ENOUGH = 400

Patch = pytest.MonkeyPatch


def share_a_bucket(patch: Patch) -> None:
    """Two replicas both believe that they own bucket 0."""
    route = Router.route

    def shared(self: Router, jumbo: Any, turn: int | None = None) -> Any:
        if len(self._owner) and self.replicas > 1 and turn is not None:
            self._owner[0] = turn % self.replicas
        return route(self, jumbo, turn)

    patch.setattr(Router, "route", shared)


def skip_order_restoration(patch: Patch) -> None:
    made = Gate.__init__
    patch.setattr(Gate, "__init__", lambda self, ports, *, ordered=True: made(
        self, ports, ordered=False))  # fmt: skip


def straddle_a_timestamp(patch: Patch) -> None:
    """Tuples of the ready time itself are let go, though more of them may come."""
    ready = TimedKernel._ready

    def eager(self: TimedKernel, over: bool) -> Root:
        root = ready(self, over)
        return root if over or root.time == FIRST else root._replace(rank=LAST)

    patch.setattr(TimedKernel, "_ready", eager)


def lose_schedule_buffers(patch: Patch) -> None:
    release = ObjectStore.release

    def forgetful(self: ObjectStore, buckets: Any) -> Any:
        handover = release(self, buckets)
        for entries in handover.values():
            for entry in entries.values():
                if isinstance(entry, KeyState):
                    for buffer in entry.buffers:
                        buffer.clear()
        return handover

    patch.setattr(ObjectStore, "release", forgetful)


def lose_timers(patch: Patch) -> None:
    """A replica that takes a bucket over does not look for its timers."""
    patch.setattr(Wakes, "absorb", lambda self, heaps: None)


def judge_lateness_by_batch(patch: Patch) -> None:
    """All tuples of a batch are judged against what was seen before the batch."""

    def by_batch(self: Any, source: int, jumbo: Any, rows: Any, times: Any, marks: Any) -> Any:
        passed = self._passed()
        bound = passed.get(source, FIRST)
        own = times[rows]
        newest = [bound, *(own - self._lateness).tolist(), *(m.passed for m in marks)]
        passed[source] = max(newest)
        return np.asarray(own >= bound)

    patch.setattr(TimedKernel, "_judge_source", by_batch)


def drop_unready_tuples(patch: Patch) -> None:
    """What waits in a gate when the epoch ends is not handed on."""
    patch.setattr(InterleavedRegion, "preload", lambda self, leftover: None)


def keep_what_a_crash_should_undo(patch: Patch) -> None:
    """Sinks keep what they got after the checkpoint."""
    restore = _Interleaved._restore

    def careless(self: _Interleaved) -> None:
        self.saved.written = {name: len(batches) for name, batches in self.written.items()}
        restore(self)

    patch.setattr(_Interleaved, "_restore", careless)


def skip_a_row_after_a_crash(patch: Patch) -> None:
    made = SourceReader.__init__

    def ahead(self: SourceReader, *args: Any, offsets: Any = None, **more: Any) -> None:
        moved = {part: row + 1 if row > 0 else row for part, row in (offsets or {}).items()}
        made(self, *args, offsets=moved, **more)

    patch.setattr(SourceReader, "__init__", ahead)


def lose_columnar_state(patch: Patch) -> None:
    """Tables are handed over empty."""
    patch.setattr(TableStore, "absorb", lambda self, handover: None)


MUTATIONS: dict[Callable[[Patch], None], bool | None] = {
    share_a_bucket: None,
    skip_order_restoration: None,
    straddle_a_timestamp: True,
    lose_schedule_buffers: None,
    lose_timers: True,
    judge_lateness_by_batch: True,
    drop_unready_tuples: None,
    keep_what_a_crash_should_undo: None,
    skip_a_row_after_a_crash: None,
    lose_columnar_state: None,
}
"""Each mutation, and whether only flows with event time can show it."""


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.timeout(300)
def test_the_law_fails_when_the_runtime_is_broken(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match="recipe"):
        law(cases(MUTATIONS[mutate]), 0, ENOUGH, phases=[Phase.generate])()
