"""Which tuple a clock starts with, where times may be too far ahead."""

from __future__ import annotations

from random import Random
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.flow import Flow
from anabranch.graph import StreamType
from anabranch.io import collect, memory
from anabranch.operators import far_times
from anabranch.operators.base import KernelContext
from anabranch.operators.far_times import CONVINCING
from anabranch.operators.first_times import MOST_WAITING
from anabranch.operators.timed import Timed
from anabranch.state.positions import FIRST, LAST, Jumbo, Mark, Positions, Root, end
from anabranch.testing.compare import difference
from anabranch.testing.interleaved import run_interleaved
from anabranch.testing.random_plans import random_plan
from anabranch.testing.sequential import run_sequential
from tests.operators.small_flows import agreed, values

Word = tuple[str, int]
"""A tuple's time, or what a source says that it has passed."""


def clock_flow(*words: list[Word], lateness: int = 0, ahead: int | None = 10) -> Flow:
    """Sources that say these words, merged, then put in the order of time by one clock."""
    flow = Flow("timed", buckets=4)
    streams = []
    for number, each in enumerate(words):
        rows: list[dict] = []
        told: dict[int, int] = {}
        for kind, time in each:
            if kind == "passed":
                told[len(rows)] = time
            else:
                rows.append({"ts": time, "name": f"{number}:{len(rows)}"})
        schema = pa.schema([("ts", pa.int64()), ("name", pa.string())])
        streams.append(flow.source(f"s{number}", memory(rows, schema, heartbeats=told)))
    merged = streams[0].union("all", *streams[1:]) if streams[1:] else streams[0]
    clock = merged.timed("clock", "ts", lateness=lateness, ahead=ahead)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    return flow


def of(*times: int) -> list[Word]:
    return [("tuple", time) for time in times]


def judged(*times: int, **properties) -> tuple[list[int], list[int]]:
    """Which times are in order, and which are set aside."""
    result = agreed(clock_flow(of(*times), **properties))
    return values(result, "ts"), values(result, "ts", "late")


# --- the rule, by hand ---------------------------------------------------------------------------


def test_a_first_time_far_behind_all_others_is_set_aside():
    assert judged(1, 500, 501, 502) == ([500, 501, 502], [1])


def test_a_first_time_far_ahead_of_all_others_is_set_aside():
    assert judged(900, 500, 501, 502) == ([500, 501, 502], [900])


def test_several_first_times_may_be_wrong_if_they_contradict_each_other():
    assert judged(900, 1, 500, 700, 505, 900) == ([500, 505], [900, 1, 700, 900])


def test_two_times_confirm_each_other_whichever_comes_first():
    assert judged(510, 500, lateness=10) == ([500, 510], [])
    assert judged(510, 500) == ([510], [500])
    assert judged(500, 510) == ([500, 510], [])


def test_a_distance_within_the_lateness_confirms_too():
    assert judged(510, 500, 507, lateness=12, ahead=2) == ([500, 507, 510], [])


@pytest.mark.parametrize("times", [[7], [7, 500], [7, 500, 900]])
def test_where_nothing_is_confirmed_until_the_end_the_first_is_believed(times):
    assert judged(*times) == ([7], times[1:])


def test_where_too_many_contradict_each_other_the_first_is_believed():
    apart = [1000 * number for number in range(MOST_WAITING)]
    # Those that waited leave right behind the tuple that decided.
    assert judged(*apart, 15_001, 1) == ([0, 1], [apart[-1], *apart[1:-1], 15_001])
    assert judged(*apart[:-1], 14_001, 1) == ([14_000, 14_001], [*apart[:-2], 1])


def test_the_time_that_a_source_says_it_has_passed_confirms():
    words = [*of(1, 500, 900), ("passed", 495), *of(501)]
    result = agreed(clock_flow(words))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([500, 501], [1, 900])


def test_each_source_has_a_start_of_its_own():
    result = agreed(clock_flow(of(1, 500, 501), of(900, 400, 401), of(77)))
    assert values(result, "ts") == [77, 400, 401, 500, 501]
    assert sorted(values(result, "ts", "late")) == [1, 900]
    assert result.counters["clock"].late == 2


def test_all_is_counted_that_is_set_aside():
    apart = [1000 * number for number in range(MOST_WAITING)]
    assert agreed(clock_flow(of(*apart))).counters["clock"].late == MOST_WAITING - 1


# --- the rule, one word after the other ----------------------------------------------------------


def reference(
    words: list[Word], lateness: int, ahead: int, convincing: int
) -> tuple[list[int], list[int]]:
    """Numbers of the tuples that are on time, and of the others, of one source."""
    times = [time for kind, time in words if kind == "tuple"]
    start, heard, greatest = None, [], None
    near = max(lateness, ahead)
    for kind, time in words:
        if kind == "passed":
            fitting = [n for n in heard if time - near <= times[n] <= time + lateness + ahead]
            start = fitting[0] if fitting else len(heard)
            break
        allies = [n for n in heard if abs(times[n] - time) <= near]
        heard.append(len(heard))
        if allies or len(heard) == MOST_WAITING:
            start = allies[0] if allies else 0
            break
    start = start or 0
    on_time, aside, number, doubted = [], list(range(start)), 0, []
    for kind, time in words:
        if kind == "passed":
            greatest = time + lateness if greatest is None else max(greatest, time + lateness)
            continue
        if number >= start:
            believed = greatest is None or time <= greatest + ahead
            fits = believed and (greatest is None or greatest - lateness <= time)
            (on_time if fits else aside).append(number)
            if believed:
                greatest, doubted = max(time, greatest or time), []
            else:
                agree = all(abs(each - time) <= near for each in doubted)
                doubted = [*doubted, time] if agree else [time]
                if len(doubted) == convincing:
                    greatest, doubted = max(doubted), []
        number += 1
    return on_time, aside


TIME = st.one_of(st.integers(1, 60), st.sampled_from([1, 200, 400, 600, 800, 1000]))
WORDS = st.lists(
    st.tuples(st.sampled_from(["tuple"] * 6 + ["passed"]), TIME), min_size=1, max_size=30
)


def without_lost_words(words: list[Word]) -> list[Word]:
    """What a source in memory can say: a time behind a row, later than what it said before."""
    kept: list[Word] = []
    for kind, time in words:
        said = max((t for k, t in kept if k == "passed"), default=0)
        behind_a_row = bool(kept) and kept[-1][0] == "tuple"
        if kind == "tuple" or (time > said and behind_a_row):
            kept.append((kind, time))
    return kept


@given(
    st.lists(WORDS.map(without_lost_words), min_size=1, max_size=3),
    st.integers(0, 8),
    st.integers(0, 12),
    st.integers(1, 9),
    st.integers(0, 99),
    st.sampled_from([1, 2, 3, 5, CONVINCING]),
)
def test_the_verdict_is_that_of_one_word_after_the_other(
    words, lateness, ahead, batch, seed, convincing
):
    with mock.patch.object(far_times, "CONVINCING", convincing):
        require_the_verdict(words, lateness, ahead, batch, seed, convincing)


def require_the_verdict(words, lateness, ahead, batch, seed, convincing):
    flow = clock_flow(*words, lateness=lateness, ahead=ahead)
    on_time, aside = [], []
    for source, each in enumerate(words):
        times = [time for kind, time in each if kind == "tuple"]
        good, bad = reference(each, lateness, ahead, convincing)
        on_time += [(times[number], source, number) for number in good]
        aside += [f"{source}:{number}" for number in bad]
    rng = Random(seed)
    changes = [random_plan(flow, rng)]
    expected = run_sequential(flow)
    got = run_interleaved(flow, None, seed, changes=changes, crashes=seed % 2, max_batch=batch)
    for result in (expected, got):
        assert values(result, "name") == [f"{source}:{n}" for _, source, n in sorted(on_time)]
        assert sorted(values(result, "name", "late")) == sorted(aside)
        assert result.counters["clock"].late == len(aside)
    assert difference(flow, expected, got) is None


# --- what waits ----------------------------------------------------------------------------------


def kernel_of(sources: int = 1, ahead: int = 10):
    """A kernel alone, behind several sources."""
    given = StreamType(pa.schema([("ts", pa.int64())]))
    operator = Timed("ts", 0, ahead)
    outputs = operator.types("clock", (given,))
    ranks = tuple(range(sources))
    return operator.kernel(
        KernelContext("clock", 1, (given,), outputs, depth=0, buckets=4, sources=ranks)
    )


def arriving(*times: int, first: int, source: int = 0, passed: int | None = None) -> Jumbo:
    behind = first + len(times)
    batch = pa.record_batch({"ts": pa.array(times, pa.int64())})
    marks = () if passed is None else (Mark(Root(behind, source, behind, -1), passed),)
    return Jumbo(batch, Positions.of_source(source, np.arange(first, behind)), marks)


def shown(kernel, jumbo: Jumbo | None, frontier: Root) -> list[list[int]]:
    outputs = kernel.step([jumbo], frontier)
    for port, jumbo in enumerate(outputs):
        if jumbo is not None:
            assert jumbo.positions.is_sorted(), port
    return [[] if each is None else each.batch["ts"].to_pylist() for each in outputs]


def test_nothing_is_ready_before_a_clock_has_started():
    kernel = kernel_of(sources=2)
    shown(kernel, arriving(5, 6, 7, first=0, source=1), Root(2, 1, 2, 1))
    assert shown(kernel, arriving(500, first=3), Root(3, 0, 3, 1)) == [[], []]
    assert kernel.frontier(Root(3, 0, 3, 1)).time == FIRST
    assert shown(kernel, arriving(6, first=4), Root(4, 0, 4, 1)) == [[], []]
    assert shown(kernel, arriving(7, first=5), Root(5, 0, 5, 1)) == [[5, 6, 6], [500]]


def test_a_clock_may_start_with_what_a_source_says_alone():
    kernel = kernel_of()
    shown(kernel, arriving(first=0, passed=495), Root(0, 0, 0, 0))
    assert shown(kernel, arriving(900, first=0), Root(1, 0, 1, 0)) == [[], [900]]
    assert shown(kernel, arriving(500, 501, first=1), Root(3, 0, 3, 0)) == [[500], []]


def test_what_was_set_aside_leaves_behind_the_frontier_that_was_told_before():
    kernel = kernel_of()
    told = Root(2, 0, 2, 0)
    shown(kernel, arriving(1, 500, first=0), told)
    _, late = kernel.step([arriving(501, first=2)], Root(3, 0, 3, 0))
    assert late.batch["ts"].to_pylist() == [1]
    assert not late.positions.before(kernel.frontier(told, port=1)).any()


def test_what_a_source_set_aside_by_its_word_leaves_with_its_next_tuple_or_at_the_end():
    for following in (True, False):
        kernel = kernel_of()
        assert shown(kernel, arriving(1, first=0, passed=500), Root(1, 0, 1, 0)) == [[], []]
        if following:
            assert shown(kernel, arriving(501, first=1), Root(2, 0, 2, 0)) == [[], [1]]
        assert shown(kernel, None, end(FIRST)) == ([[501], []] if following else [[], [1]])
        assert shown(kernel, None, end(FIRST)) == [[], []]


def test_what_waits_survives_in_a_checkpoint():
    old, new = kernel_of(), kernel_of()
    shown(old, arriving(1, 500, first=0), Root(2, 0, 2, 0))
    new.stores[0].restore(old.stores[0].snapshot(), [0])
    new.stores[0].track()
    assert shown(new, arriving(900, first=2), Root(3, 0, 3, 0)) == [[], []]
    third = kernel_of()
    third.stores[0].restore(old.stores[0].snapshot(), [0])
    third.stores[0].replay(new.stores[0].changes(), [0])
    assert shown(third, arriving(505, first=3), Root(4, 0, 4, 0)) == [[500], [1, 900]]


def test_a_source_that_ends_lets_its_only_tuple_go():
    kernel = kernel_of(sources=2)
    shown(kernel, arriving(5, 6, first=0, source=1), Root(1, 1, 1, 1))
    assert shown(kernel, arriving(4, first=2, passed=LAST), Root(3, 0, 3, 0)) == [[4, 5], []]


def test_a_started_clock_keeps_nothing_waiting():
    kernel = kernel_of()
    shown(kernel, arriving(1, 2, 3, first=0), Root(3, 0, 3, 0))
    shown(kernel, arriving(500, first=3), Root(4, 0, 4, 0))
    assert not kernel._first.any()


def test_late_tuples_of_several_clocks_are_merged_in_one_order():
    flow = Flow("late", buckets=4)
    late = [
        flow.source(name, memory([{"ts": t} for t in times]), time="ts", ahead=10).late
        for name, times in (("a", [1, 900, 500, 501, 2]), ("b", [9, 3, 2, 1, 8]))
    ]
    late[0].union("u", late[1]).map("m", lambda b: {}, keeps="*").sink("out", collect())
    expected = run_sequential(flow)
    for seed in range(30):
        got = run_interleaved(flow, random_plan(flow, Random(seed)), seed)
        assert difference(flow, expected, got) is None
