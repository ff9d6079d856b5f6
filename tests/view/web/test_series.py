"""Points over time: what they say, and how few they stay."""

from __future__ import annotations

import pytest

from anabranch.events import SourceMetrics
from anabranch.view.web.timeline import MOST_POINTS, Series
from tests.view.web.made import observed


def test_a_rate_counts_the_time_between_two_batches():
    series = Series()
    series.see(observed(1.0, 1000).observation)
    series.see(observed(3.0, 1000).observation)  # a second of work, two since the last one
    assert [point.rate_per_s for point in series.points] == [1000, 500]


def test_a_long_run_keeps_a_bounded_number_of_points_and_all_of_its_rows():
    series = Series()
    for second in range(3 * MOST_POINTS):
        series.see(observed(second + 1.0, 10).observation)
    assert MOST_POINTS / 2 <= len(series.points) <= MOST_POINTS
    assert sum(point.rows for point in series.points) == 30 * MOST_POINTS
    assert series.points[-1].at_s == 3 * MOST_POINTS
    assert {round(point.rate_per_s) for point in series.points} == {10}
    assert series.rates().whole == pytest.approx(10)


@pytest.mark.parametrize(
    ("waiting", "backlog"), [((), None), ((5, 7), 12), ((5, None), None), ((0,), 0)]
)
def test_a_backlog_is_told_if_all_sources_know_theirs(waiting, backlog):
    sources = tuple(SourceMetrics(f"s{n}", 1, 1.0, rows) for n, rows in enumerate(waiting))
    assert Series().see(observed(1.0, sources=sources).observation).backlog == backlog
