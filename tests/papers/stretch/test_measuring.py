"""The measurements themselves, at sizes of a second: what they report belongs together."""

import pytest

from papers.stretch.figure4 import contest, working
from papers.stretch.figure5 import change_load, full_speed, rate_for, single, switch_often
from papers.stretch.model import line_rate_on


def test_a_contest_measures_both_ways_with_every_number_of_threads():
    found = contest(lambda: working(4000, rounds=1), (1, 2), repeats=2, batch_rows=500)
    assert [(p.threads, p.way) for p in found.points] == [
        (1, "P_SN"),
        (1, "V_SN"),
        (2, "P_SN"),
        (2, "V_SN"),
    ]
    assert [p.threads for p in found.of("V_SN")] == [1, 2]
    alone = found.of("V_SN")[0]
    assert alone.model_per_s <= 1e6 * line_rate_on(10**6, found.costs["V_SN"], 1) * (1 + 1e-9)
    assert found.costs["V_SN"].process == alone.cpu_us[1]


def test_the_rate_follows_from_the_comparisons():
    found = full_speed(2, rate_per_s=500.0, window_s=1.0, seconds=0.5)
    assert found.comparisons_per_s > 0
    assert found.rate_per_s == pytest.approx(2 * rate_for(found.comparisons_per_s, 1.0))


def test_gates_and_buffers_carry_the_same_tuples():
    found = single(rate_per_s=300.0, window_s=2.0, repeats=1)
    assert (found.gated.rows, found.buffered.rows) == (1800, 1800)
    assert (found.gated.way, found.buffered.way) == ("V_SN", "single")


def test_a_higher_load_gets_the_threads_of_table_2():
    found = change_load(1, 1.2, greatest_per_s=1000.0, window_s=0.4, seconds=0.6)
    assert (found.before.threads, found.after.threads) == (1, 2)
    assert (found.before.offered_per_s, found.after.offered_per_s) == (700.0, 1200.0)
    assert found.switch.before == 1
    assert found.switch.after == 2
    assert found.switch.command_ms >= found.switch.pause_ms > 0
    assert found.after.sustained == found.after.seen.rate_per_s / 1200.0 > 0


def test_every_number_of_threads_is_gone_through():
    found = switch_often((1, 2, 4, 1), greatest_per_s=2000.0, window_s=0.3, hold_s=0.4)
    assert [(one.before, one.after) for one in found] == [(1, 2), (2, 4), (4, 1)]
    assert found[-1].imbalance_pct == 0
