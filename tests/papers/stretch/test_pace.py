import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SourceError
from papers.stretch.pace import Pace

paces = st.lists(st.tuples(st.floats(0.1, 50), st.floats(1, 1e5)), min_size=1, max_size=4).map(
    lambda steps: Pace([(0.0, steps[0][1]), *_starts(steps[1:])])
)


def _starts(steps):
    return [(sum(length for length, _ in steps[: n + 1]), r) for n, (_, r) in enumerate(steps)]


def test_the_rate_steps_and_the_rows_go_on_from_where_they_were():
    pace = Pace([(0.0, 70.0), (10.0, 120.0), (20.0, 30.0)])
    assert [pace.rate_at(s) for s in (0.0, 9.9, 10.0, 19.9, 25.0)] == [70, 70, 120, 120, 30]
    assert [pace.rows_at(s) for s in (0.0, 10.0, 20.0, 30.0)] == [0, 700, 1900, 2200]


@given(paces, st.floats(0, 200), st.floats(0, 200))
def test_rows_never_become_fewer(pace, one, other):
    early, late = sorted((one, other))
    assert pace.rows_at(early) <= pace.rows_at(late)


@given(paces, st.integers(0, 100_000))
def test_a_row_is_due_at_its_time_and_not_before(pace, row):
    due_s = float(pace.times_of(np.array([row]))[0])
    assert pace.rows_at(due_s + 1e-6) >= row
    assert pace.rows_at(max(0.0, due_s - 1e-6)) <= row


@pytest.mark.parametrize("steps", [[], [(1.0, 5.0)], [(0.0, 1.0), (5.0, 1.0), (3.0, 1.0)]])
def test_steps_that_are_not_in_order_are_refused(steps):
    with pytest.raises(SourceError, match="order of time"):
        Pace(steps)


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(SourceError, match="above 0"):
        Pace([(0.0, 0.0)])
