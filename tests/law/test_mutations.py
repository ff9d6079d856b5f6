"""The law must notice when the runtime is broken on purpose: each mutation makes it fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase

from anabranch.errors import StateError
from anabranch.operators.timed import TimedKernel
from anabranch.operators.tuple_style.invocation import KeyState
from anabranch.operators.tuple_style.kernel import Wakes
from anabranch.runtime import gate
from anabranch.runtime.channel import Channel
from anabranch.runtime.clock import Sequencer
from anabranch.runtime.dispenser import Dispenser
from anabranch.runtime.gate import Gate
from anabranch.runtime.host import Host
from anabranch.runtime.messages import Delivery
from anabranch.runtime.outlet import Outlet
from anabranch.runtime.ranges import Ranges
from anabranch.runtime.routing import Router
from anabranch.runtime.sink_order import SinkOrder
from anabranch.runtime.source_unit import SourceUnit
from anabranch.runtime.unit import Unit
from anabranch.state.positions import FIRST, LAST, Jumbo, Root, is_end
from anabranch.state.tables.store import ObjectStore
from anabranch.state.tables.table_store import TableStore
from anabranch.testing.interleaved import Interleaved
from tests.law.flows import cases
from tests.law.test_determinism import law

ENOUGH = 1_500

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
    patch.setattr(Gate, "__init__", lambda self, ports, *, ordered=True, in_slices=False: made(
        self, ports, ordered=False, in_slices=in_slices))  # fmt: skip


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
    patch.setattr(Unit, "preload", lambda self, waiting: None)


def keep_what_a_crash_should_undo(patch: Patch) -> None:
    """Sinks keep what they got after the checkpoint."""
    start_over = Interleaved.start_over

    def careless(self: Interleaved) -> None:
        self.saved.written = {
            name: sum(batch.num_rows for batch in batches) for name, batches in self.written.items()
        }
        start_over(self)

    patch.setattr(Interleaved, "start_over", careless)


def skip_a_row_after_a_crash(patch: Patch) -> None:
    restore = Dispenser.restore

    def ahead(self: Dispenser, offsets: Any) -> None:
        moved = {part: row + 1 if row > 0 else row for part, row in offsets.open.items()}
        restore(self, replace(offsets, open=moved))

    patch.setattr(Dispenser, "restore", ahead)


def wait_for_nobodys_state(patch: Patch) -> None:
    """Units enter an epoch before they have the state of their buckets."""

    def at_once(self: Host, name: Any, epoch: int) -> None:
        self._entering[name] = (epoch, {each.giver for each in self._handovers[epoch, name]})

    patch.setattr(Host, "_await", at_once)


def promise_what_is_still_to_be_read(patch: Patch) -> None:
    """Readers forget that they have further claims."""
    patch.setattr(SourceUnit, "_promise", lambda self: self._free)


def end_an_epoch_at_the_first_barrier(patch: Patch) -> None:
    """A unit does not wait for the barriers of its other links."""

    def hasty(self: Unit) -> bool:
        return not self.done and len(self._open) < len(self._layout.entrances[self.id])

    patch.setattr(Unit, "is_over", hasty)


def give_waiting_tuples_to_the_first(patch: Patch) -> None:
    """Tuples that wait do not move with their buckets."""

    def stay(self: Unit, new: Any, waiting: Any) -> Any:
        return {new.of_region(self.id.region)[0]: list(waiting)}

    patch.setattr(Unit, "_shares", stay)


def lose_columnar_state(patch: Patch) -> None:
    """Tables are handed over empty."""
    patch.setattr(TableStore, "absorb", lambda self, handover: None)


def forget_what_waits_for_a_taker(patch: Patch) -> None:
    """A handover brings state, and not the tuples that wait."""
    patch.setattr(Unit, "absorb", lambda self, given: self.channel.absorb(dict(given.state)))


def release_too_many_buckets(patch: Patch) -> None:
    """Whoever takes one bucket over gets all of them."""
    release = Channel.release

    def generous(self: Channel, buckets: Any, steps: Any = None) -> Any:
        return release(self, self.buckets, steps)

    patch.setattr(Channel, "release", generous)


def save_before_the_barrier(patch: Patch) -> None:
    """Units save when an epoch is announced, though tuples of the one before are to come."""
    begin, save = Host._begin, Interleaved.save
    early: dict[Any, Any] = {}

    def hasty(self: Host, message: Any) -> None:
        for name, unit in self.units.items():
            early[self, unit.epoch, name] = save(self._site, unit.epoch, unit, ())
        begin(self, message)

    def stale(self: Interleaved, epoch: int, unit: Unit, waiting: Any) -> Any:
        (host,) = [each for each in self._hosts if each.units.get(unit.id) is unit]
        fresh = save(self, epoch, unit, waiting)
        return early.pop((host, epoch, unit.id), fresh)

    patch.setattr(Host, "_begin", hasty)
    patch.setattr(Interleaved, "save", stale)


def lose_a_frontier(patch: Patch) -> None:
    """Links without tuples do not get how far their producer has come."""

    def silent(self: Outlet, *arguments: Any, **due: Any) -> None:
        given = self._send
        self._send = lambda message: given(message) if message.jumbo is not None else None
        try:
            send(self, *arguments, **due)
        finally:
            self._send = given

    send = Outlet.send
    patch.setattr(Outlet, "send", silent)


def do_not_merge(patch: Patch) -> None:
    """What is ready leaves as it came."""
    patch.setattr(gate, "_merged", lambda jumbos: Jumbo.concat(jumbos) if jumbos else None)


def wait_for_no_silent_link(patch: Patch) -> None:
    """A gate does not wait for links that have delivered nothing yet."""
    patch.setattr(Gate, "open", lambda self, link: None)


def lose_what_comes_early(patch: Patch) -> None:
    """Tuples of an epoch that a unit has not entered yet are lost."""
    receive = Unit.receive

    def forgetful(self: Unit, message: Any) -> None:
        if message.epoch != self.epoch and isinstance(message, Delivery):
            message = message._replace(jumbo=None)
        receive(self, message)

    patch.setattr(Unit, "receive", forgetful)


def forget_a_replica(patch: Patch) -> None:
    """The first replica goes on with the buckets that it had."""
    adopt = Unit.adopt

    def partly(self: Unit, layout: Any) -> bool:
        before = self.channel.buckets
        other_steps = adopt(self, layout)
        if self.id.replica == 0:
            self.channel.own(before)
        return other_steps

    patch.setattr(Unit, "adopt", partly)


def keep_what_was_given_away(patch: Patch) -> None:
    """A bucket that is given to another unit stays where it was, too."""
    release = ObjectStore.release

    def stingy(self: ObjectStore, buckets: Any) -> Any:
        kept = {b: self._buckets[b] for b in buckets if b in self._buckets}
        given = release(self, buckets)
        self._buckets.update(kept)
        return given

    patch.setattr(ObjectStore, "release", stingy)


def give_out_a_row_twice(patch: Patch) -> None:
    """Each claim but the first of a part begins one row early."""
    claim = Dispenser._claim

    def overlapping(self: Dispenser, *arguments: Any) -> Any:
        given = claim(self, *arguments)
        return given._replace(start=max(0, given.start - 1))

    patch.setattr(Dispenser, "_claim", overlapping)


def promise_a_range_too_far(patch: Patch) -> None:
    """A replica of a sink does not wait for the rest of its own range."""
    frontier = Ranges.frontier

    def ahead(self: Ranges, replica: int, reached: Root) -> Root:
        passed = frontier(self, replica, reached)
        if self.replicas == 1 or is_end(passed):
            return passed
        return passed._replace(time=passed.time + self.rows)

    patch.setattr(Ranges, "frontier", ahead)


def show_rows_as_they_are_reported(patch: Patch) -> None:
    """Rows of a replica of a sink do not wait for those of the others."""
    patch.setattr(SinkOrder, "take", lambda self, prepared: list(prepared.segments))


def judge_by_slice_alone(patch: Patch) -> None:
    """A slice is judged as if nothing had come before it."""
    entry_states = Sequencer.entry_states

    def blank(self: Sequencer) -> Any:
        for replica, entry in entry_states(self):
            yield replica, entry if entry.whole else entry._replace(facts={})

    patch.setattr(Sequencer, "entry_states", blank)


def forget_the_maximum_of_a_slice(patch: Patch) -> None:
    """What a slice shows is not known to those that follow."""
    facts_for = TimedKernel.facts_for

    def forgetful(self: TimedKernel, digest: Any) -> Any:
        return facts_for(self, digest._replace(passed=FIRST))

    patch.setattr(TimedKernel, "facts_for", forgetful)


def accept_a_slice_that_needs_more(patch: Patch) -> None:
    """A slice whose times may be doubted passes like one of which that is impossible."""
    facts_for = TimedKernel.facts_for

    def trusting(self: TimedKernel, digest: Any) -> Any:
        return facts_for(self, digest._replace(needed=FIRST))

    patch.setattr(TimedKernel, "facts_for", trusting)


def judge_slices_as_they_are_announced(patch: Patch) -> None:
    """A slice does not wait for the entry state that those before it leave."""
    patch.setattr(Sequencer, "_has_next", lambda self: bool(self._slices))


def forget_what_a_slice_returns(patch: Patch) -> None:
    """The memory of the clock stays as it was before a slice that got all of it."""
    patch.setattr(TimedKernel, "resume", lambda self, facts: None)


def lose_a_mark(patch: Patch) -> None:
    """The sequencer does not learn how far a source says that it has come."""
    digest = TimedKernel.digest

    def markless(self: TimedKernel, jumbo: Jumbo) -> Any:
        return digest(self, Jumbo(jumbo.batch, jumbo.positions))

    patch.setattr(TimedKernel, "digest", markless)


def keep_what_the_only_replica_held(patch: Patch) -> None:
    """Several replicas do not pass on what one of them held before."""
    patch.setattr(TimedKernel, "let_go", lambda self: [None, None])


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
    wait_for_nobodys_state: None,
    promise_what_is_still_to_be_read: None,
    end_an_epoch_at_the_first_barrier: None,
    give_waiting_tuples_to_the_first: None,
    forget_what_waits_for_a_taker: None,
    release_too_many_buckets: None,
    save_before_the_barrier: None,
    lose_a_frontier: None,
    do_not_merge: None,
    wait_for_no_silent_link: None,
    lose_what_comes_early: None,
    forget_a_replica: None,
    keep_what_was_given_away: None,
    give_out_a_row_twice: None,
    promise_a_range_too_far: None,
    show_rows_as_they_are_reported: None,
    judge_by_slice_alone: True,
    forget_the_maximum_of_a_slice: True,
    accept_a_slice_that_needs_more: True,
    judge_slices_as_they_are_announced: True,
    forget_what_a_slice_returns: True,
    lose_a_mark: True,
    keep_what_the_only_replica_held: True,
}
"""Each mutation, and whether only flows with event time can show it."""


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.timeout(300)
def test_the_law_fails_when_the_runtime_is_broken(
    mutate: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, StateError), match=r"recipe|standstill|one owner"):
        law(cases(MUTATIONS[mutate]), 0, ENOUGH, phases=[Phase.generate])()
