"""Times that are too far ahead to be believed."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from anabranch.errors import BuildError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.state.positions import LAST
from tests.operators.small_flows import agreed, values


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
    assert result.counters["s.time"].late == 2


def test_without_it_a_far_time_makes_the_others_late():
    result = agreed(timed_flow([1, 2, 900, 3, 4]))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([1, 2, 900], [3, 4])


def test_a_leap_of_that_length_is_believed_and_a_longer_one_is_not():
    result = agreed(timed_flow([0, 10, 20, 31, 30], ahead=10))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([0, 10, 20, 30], [31])


def test_it_is_counted_from_the_greatest_time_and_not_from_what_may_still_come():
    result = agreed(timed_flow([0, 8, 2, 19, 18], lateness=6, ahead=10))
    assert (values(result, "ts"), values(result, "ts", "late")) == ([0, 2, 8, 18], [19])


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
