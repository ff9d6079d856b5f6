"""Replicas of a clock that assume what came before: a check finds every wrong verdict."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.operators.base import Counters
from anabranch.operators.timed import Facts, TimedKernel
from anabranch.runtime.early_verdicts import Checked, EarlyClock, Verdicts, check, entry_state
from anabranch.state.positions import FIRST, LAST, Jumbo, Mark, Root, end
from tests.operators.test_timed_slices import (
    RANK,
    Item,
    Sequential,
    kernel,
    one_source,
    remembered,
    run_of,
    tuples,
)


class InBatches:
    """A clock that gets batches of slices, a replica for each slice; one kernel has its memory."""

    def __init__(self, lateness: int, ahead: int | None) -> None:
        self._make = lambda: kernel(lateness, ahead)
        self.clock = self._make()
        self.counters = Counters()
        self.outputs: list[list[Jumbo | None]] = [[], []]
        self.jobs = self.serial = 0
        self.ready = Root(FIRST, FIRST, FIRST, FIRST)

    def take(self, batch: Sequence[Sequence[Item]], first: int, *, over: bool = False) -> None:
        """Judge slices side by side, again if need be, or one after the other."""
        entries = [entry_state(self.clock)] * len(batch)
        for _ in range(2):
            memory = self._make()
            if (found := self._try(batch, first, over, entries, memory)) is None:
                break
            if found.right:
                self.clock = memory
                return
            entries = found.entries
        self.serial += 1
        self._serially(batch, first, over)

    def _try(
        self,
        batch: Sequence[Sequence[Item]],
        first: int,
        over: bool,
        entries: Sequence[Facts],
        memory: TimedKernel,
    ) -> Checked | None:
        """Run a job; its outputs count if every verdict is right."""
        self.jobs += 1
        counters, outputs = Counters(), list[list[Jumbo | None]]()
        reached, reports = list[Root](), list[Verdicts]()
        for replica, items in enumerate(batch):
            own = self._make()
            if replica == 0:
                own.resume(self.clock.facts())
            clock = EarlyClock(own, entries[replica] if replica else None)
            outputs += [] if replica else [clock.let_go()]
            frontier, marks = Root(first + len(items), RANK, 0, 0), list[Mark]()
            if over and replica == len(batch) - 1:  # the reader that has come to the end
                frontier = end(FIRST)
                marks = [Mark(Root(1 << 60, RANK, 1 << 60, -1), LAST)]
            run = run_of(items, first)
            first += len(items)
            outputs.append(clock.judge(Jumbo(run.batch, run.positions, (*run.marks, *marks))))
            reached.append(clock.reached(frontier)[0])
            reports.append(clock.verdicts(frontier, waiting=False))
            counters.add(own.context.counters)
        found = check(memory, reports)
        if found is not None and found.right:
            self._keep(outputs, counters, max(reached))
        return found

    def _serially(self, batch: Sequence[Sequence[Item]], first: int, over: bool) -> None:
        """Do what a job with serial clocks does: the clock holds what is not ready."""
        clock = self._make()
        clock.resume(self.clock.facts())
        items = [item for each in batch for item in each]
        frontier = end(FIRST) if over else Root(first + len(items), RANK, 0, 0)
        outputs = [clock.step([run_of(items, first)], frontier)]
        self._keep(outputs, clock.context.counters, clock.frontier(frontier))
        self.clock = clock

    def _keep(
        self, outputs: Sequence[Sequence[Jumbo | None]], counters: Counters, ready: Root
    ) -> None:
        for ports in outputs:
            for port, jumbo in enumerate(ports):
                self.outputs[port].append(jumbo)
        self.counters.add(counters)
        self.ready = ready


def run(
    items: list[Item], lateness: int, ahead: int | None, batches: Sequence[Sequence[int]]
) -> InBatches:
    """One kernel gets everything; the other clock gets batches, each of slices of so many items.

    All that is left comes in one more batch, with the end of the stream.
    """
    alone, parted = Sequential(lateness, ahead), InBatches(lateness, ahead)
    at = 0
    for sizes in batches:
        slices, first = list[list[Item]](), at
        for size in sizes:
            slices.append(items[at : at + size])
            at += len(slices[-1])
        parted.take(slices, first)
        assert parted.ready == alone.take(items[first:at], first)
        assert remembered(parted.clock) == remembered(alone.clock)
    parted.take([items[at : at + 1], items[at + 1 :]], at, over=True)
    alone._add(alone.clock.step([run_of(items[at:], at)], end(FIRST)))
    assert parted.ready == alone.clock.frontier(end(FIRST))
    for port in (0, 1):
        assert tuples(parted.outputs[port]) == tuples(alone.outputs[port])
    assert parted.counters == alone.counters
    return parted


sizes = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@given(
    one_source(),
    st.sampled_from([0, 1, 5]),
    st.sampled_from([None, 3, 30]),
    st.lists(sizes, min_size=1, max_size=6),
)
@example([(0, 9, False), (0, 8, False)], 5, None, [[0]])  # the last slice is not the latest
@example([(0, 9, False), (0, 5, False), (0, 9, False)], 0, None, [[1, 1, 1]])
@example([(0, 9, False), (0, 8, False), (0, 5, False)], 5, None, [[1], [1]])
def test_verdicts_that_pass_the_check_are_those_of_one_kernel(
    items: list[Item], lateness: int, ahead: int | None, batches: list[list[int]]
) -> None:
    run(items, lateness, ahead, batches)


def test_slices_in_order_are_judged_once() -> None:
    items = [(0, time + jitter, False) for time in range(40) for jitter in (0, -1, 3)]
    found = run(items, 4, None, [[30, 30], [30, 30]])
    assert (found.jobs, found.serial) == (3, 0)


def test_a_tuple_that_is_late_because_of_an_earlier_slice_is_judged_again() -> None:
    found = run([(0, time, False) for time in (1, 20, 2, 21)], 0, None, [[2, 2]])
    assert (found.jobs, found.serial) == (3, 0)
    assert found.counters.late == 1


def test_how_far_a_late_tuple_is_behind_is_judged_again() -> None:
    """By its own slice, time 2 is 6 behind."""
    found = run([(0, time, False) for time in (1, 9, 8, 2)], 0, None, [[1], [1, 2]])
    assert found.jobs == 4
    assert found.counters.most_behind == 7


def test_a_clock_that_starts_in_doubt_is_judged_in_one_place() -> None:
    items = [(0, time, False) for time in (1, 900, 2, 3)]
    assert run(items, 0, 5, [[1, 3]]).serial == 1


def test_a_wrong_date_within_a_slice_is_doubted_at_once() -> None:
    """What is doubted at the end of a slice stays in the memory, which `run` compares."""
    items = [(0, time, False) for time in (1, 2, 3, 4, 900, 5, 6, 7, 900)]
    found = run(items, 0, 5, [[2], [1, 3], [1, 2]])
    assert (found.jobs, found.serial) == (4, 0)
    assert found.counters.ahead == 2


def test_a_slice_that_begins_with_a_wrong_date_is_judged_in_one_place() -> None:
    items = [(0, time, False) for time in (1, 2, 3, 900, 4, 5)]
    assert run(items, 0, 5, [[2], [1, 2]]).serial == 1


def test_the_end_carries_the_greatest_time_of_all_slices() -> None:
    """`run` compares how far event time has come in the end; the slice that ends shows time 8."""
    assert run([(0, 9, False), (0, 8, False)], 5, None, []).jobs == 2


def test_tuples_that_could_not_be_judged_need_one_place() -> None:
    report = EarlyClock(kernel(0, None), None).verdicts(end(FIRST), waiting=True)
    assert check(kernel(0, None), [report]) is None
