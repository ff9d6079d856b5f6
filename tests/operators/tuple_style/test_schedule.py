from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError
from anabranch.operators.tuple_style.schedule import Schedule

waiting = st.lists(st.integers(0, 5), min_size=1, max_size=3)

CASES = [
    (Schedule.exactly(2), [1], None),
    (Schedule.exactly(2), [2], [2]),
    (Schedule.exactly(2), [5], [2]),
    (Schedule.exactly(1, 2), [1, 1], None),
    (Schedule.exactly(1, 2), [4, 4], [1, 2]),
    (Schedule.exactly(2, ports="any"), [1, 3], [0, 2]),
    (Schedule.exactly(2, ports="any"), [1, 1], None),
    (Schedule.at_least(2), [1, 9], None),
    (Schedule.at_least(2), [2, 9], [2, 9]),
    (Schedule.at_least(2, ports="any"), [1, 9], [0, 9]),
    (Schedule.at_least(1, 3), [5, 3], [5, 3]),
    (Schedule.same(), [0, 4], None),
    (Schedule.same(), [3, 4], [3, 3]),
]


@pytest.mark.parametrize(("schedule", "waits", "taken"), CASES)
def test_what_an_invocation_gets(schedule, waits, taken):
    assert schedule.ready(waits) == taken


@given(st.sampled_from([schedule for schedule, _, _ in CASES]), st.data())
def test_no_more_is_taken_than_waits_and_never_nothing(schedule, data):
    ports = max(len(schedule.counts), 2)
    waits = data.draw(st.lists(st.integers(0, 6), min_size=ports, max_size=ports))
    taken = schedule.ready(waits)
    assert taken is None or (
        sum(taken) > 0 and all(t <= w for t, w in zip(taken, waits, strict=True))
    )


@pytest.mark.parametrize("counts", [(), (0,), (1, 0), (-1,)])
@pytest.mark.parametrize("make", [Schedule.exactly, Schedule.at_least])
def test_counts_are_at_least_one(make, counts):
    with pytest.raises(BuildError, match="whole numbers of at least 1"):
        make(*counts)


@pytest.mark.parametrize(
    ("schedule", "ports"), [(Schedule.exactly(1, 2), 3), (Schedule.exactly(1, 1), 1)]
)
def test_there_is_one_count_or_one_per_port(schedule, ports):
    with pytest.raises(BuildError, match=f"one count or {ports} counts"):
        schedule.check("step", ports)
