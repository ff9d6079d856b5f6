"""Times that are too far ahead to be believed."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.base import Counters
from anabranch.operators.far_times import CONVINCING
from anabranch.state.positions import FIRST, LAST, Root, end
from tests.operators.small_flows import agreed, values
from tests.operators.test_first_times import arriving, kernel_of, shown


def timed_flow(times: list, lateness=0, ahead=None, heartbeats: dict | None = None) -> Flow:
    flow = Flow("timed", buckets=4)
    rows = memory([{"ts": time} for time in times], heartbeats=heartbeats)
    clock = flow.source("s", rows, time="ts", lateness=lateness, ahead=ahead)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    return flow


def test_one_far_time_is_set_aside_and_makes_no_other_late():
    result = agreed(timed_flow([1, 2, 900, 3, 901, 4], ahead=10))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 2, 3, 4], [900, 901])
    assert result.counters["s.time"] == Counters(late=2, ahead=2)


def test_tuples_are_counted_apart_by_whether_they_are_behind_or_ahead():
    result = agreed(timed_flow([50, 52, 900, 45, 53, 901, 20], lateness=3, ahead=10))
    assert values(result, "ts", "late") == [900, 45, 901, 20]
    assert result.counters["s.time"] == Counters(late=4, behind=2, most_behind=33, ahead=2)


def test_without_it_a_far_time_makes_the_others_late():
    result = agreed(timed_flow([1, 2, 900, 3, 4]))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 2, 900], [3, 4])


def test_a_leap_of_that_length_is_believed_and_a_longer_one_is_not():
    result = agreed(timed_flow([0, 10, 20, 31, 30], ahead=10))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([0, 10, 20, 30], [31])


def test_it_is_counted_from_the_greatest_time_and_not_from_what_may_still_come():
    result = agreed(timed_flow([0, 8, 2, 19, 18], lateness=6, ahead=10))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([0, 2, 8, 18], [19])


def test_a_clock_behind_late_tuples_takes_those_that_waited_for_tuples_of_their_source():
    """What waits for the first clock to start leaves it behind another tuple (`first_times.py`)."""
    flow = Flow("twice", buckets=4)
    rows = memory([{"ts": time} for time in [107, 117, 118, 119, 118, 125, 127]])
    late = flow.source("s", rows, time="ts", ahead=4).late
    clock = late.timed("again", "ts", ahead=4)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    result = agreed(flow)
    assert (values(result, "ts"), values(result, "ts", "late")) == ([125, 127], [107, 118])


def test_what_a_source_says_it_has_passed_counts_as_seen():
    result = agreed(timed_flow([1, 2, 900, 901], ahead=10, heartbeats={2: 895}))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 2, 900, 901], [])


@pytest.mark.parametrize(
    ("ahead", "believed"), [(0, [9]), (1, [2, 1]), (LAST // 2, [9, 2, 1]), (LAST - 1, [9, 2, 1])]
)
def test_times_at_the_end_of_time_are_judged_too(ahead, believed):
    result = agreed(timed_flow([LAST - 9, LAST - 2, LAST - 1], ahead=ahead))
    assert values(result, "ts") == [LAST - each for each in believed]


def test_it_is_a_length_of_time():
    moments = [datetime(2026, 1, day) for day in (1, 2, 9, 3)]
    flow = timed_flow(moments, ahead=timedelta(days=2))
    assert values(agreed(flow), "ts", "late") == [moments[2]]
    with pytest.raises(BuildError, match="timedelta fits streams timed by a timestamp"):
        timed_flow([1], ahead=timedelta(days=2)).resolve()
    with pytest.raises(BuildError, match="a non-negative length"):
        timed_flow([1], ahead=-1).resolve()


# --- clocks that were wrong ----------------------------------------------------------------------


def test_a_clock_that_two_wrong_tuples_have_started_goes_on_with_the_others():
    good = list(range(500, 540))
    result = agreed(timed_flow([1, 2, *good], ahead=50))
    assert values(result, "ts") == [1, 2, *good[CONVINCING:]]
    assert values(result, "ts", "late") == good[:CONVINCING]
    assert result.counters["s.time"].late == CONVINCING


def test_a_gap_longer_than_that_costs_no_more_than_a_few_tuples():
    before, behind = list(range(40)), list(range(900, 940))
    result = agreed(timed_flow([*before, *behind], ahead=50))
    assert values(result, "ts") == [*before, *behind[CONVINCING:]]


def test_far_times_that_do_not_agree_convince_nobody():
    apart = [1000 * (1 + number) for number in range(2 * CONVINCING)]
    result = agreed(timed_flow([1, 2, *apart, 3], ahead=50))
    assert values(result, "ts") == [1, 2, 3]


def test_far_times_that_agree_convince_nobody_while_others_come_between():
    mixed = [time for number in range(40) for time in (3 + number, 900 + number)]
    result = agreed(timed_flow([1, 2, *mixed], ahead=50))
    assert values(result, "ts", "late") == [900 + number for number in range(40)]


def test_a_leap_counts_from_the_greatest_of_the_times_that_convinced():
    far = [900, 930, *(901 + n for n in range(CONVINCING - 2))]
    result = agreed(timed_flow([1, 2, *far, 924, 925, 980, 981], lateness=5, ahead=50))
    assert values(result, "ts") == [1, 2, 925, 980, 981]
    assert values(result, "ts", "late") == [*far, 924]


def test_a_stream_may_end_with_a_leap():
    far = [900] * CONVINCING
    result = agreed(timed_flow([1, 2, *far], ahead=50, heartbeats={CONVINCING + 2: 950}))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 2], far)
    flow = timed_flow([1, 2, *far], ahead=50)
    assert values(agreed(flow), "ts") == [1, 2]


def test_the_doubted_times_of_each_source_are_its_own():
    flow = Flow("timed", buckets=4)
    half = CONVINCING // 2 + 1
    streams = [
        flow.source(f"s{n}", memory([{"ts": t} for t in [1, 2, *([900] * half), 3]]))
        for n in range(2)
    ]
    clock = streams[0].union("all", streams[1]).timed("clock", "ts", ahead=50)
    clock.sink("out", collect())
    clock.late.sink("late", collect())
    result = agreed(flow)
    assert values(result, "ts") == [1, 1, 2, 2, 3, 3]
    assert len(result.rows("late")) == 2 * half


def test_a_clock_that_has_leapt_does_not_go_back_when_its_source_ends():
    kernel = kernel_of()
    leapt = arriving(1, 2, *([900] * CONVINCING), first=0)
    assert shown(kernel, leapt, Root(20, 0, 20, 0))[0] == [1, 2]
    reached = kernel.frontier(Root(20, 0, 20, 0))
    shown(kernel, arriving(first=CONVINCING + 2, passed=LAST), Root(21, 0, 21, 0))
    assert kernel.frontier(Root(21, 0, 21, 0)) >= reached
    assert kernel.frontier(end(FIRST)) >= reached


def test_what_is_doubted_survives_in_a_checkpoint():
    now = Root(99, 0, 99, 0)
    saved, changed, third = kernel_of(), kernel_of(), kernel_of()
    shown(saved, arriving(1, 2, 900, 901, first=0), now)
    changed.stores[0].restore(saved.stores[0].snapshot(), [0])
    changed.stores[0].track()
    shown(changed, arriving(*([902] * 5), first=4), now)
    third.stores[0].restore(saved.stores[0].snapshot(), [0])
    third.stores[0].replay(changed.stores[0].changes(), [0])
    assert shown(third, arriving(*([903] * (CONVINCING - 8)), first=9), now)[0] == []
    assert third.frontier(now).time == 2
    shown(third, arriving(904, first=CONVINCING + 1), now)
    assert third.frontier(now).time == 904
