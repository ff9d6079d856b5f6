"""How fast Linear Road is: averages of averages, of which none is rounded."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from anabranch.apps.linear_road.speeds import VehicleSpeedKernel
from anabranch.testing.sequential import run_sequential
from tests.apps.linear_road_rows import agrees, fed, on_threads, report, told
from tests.apps.references.linear_road import expected


def test_it_is_the_mean_of_the_five_minutes_before_that_had_vehicles():
    rows = [report(0, 101, 10, 20), report(120, 102, 10, 50), report(121, 103, 10, 70)]
    for minute, lav in ((1, 20.0), (2, 20.0), (3, 40.0), (5, 40.0), (6, 60.0), (7, 60.0)):
        assert told([*rows, report(60 * minute, 1, 10)], 1) == [(lav, 0)]
    assert told([*rows, report(60 * 8, 1, 10)], 1) == [(None, 0)]


def test_a_vehicle_counts_once_a_minute_with_its_own_average():
    rows = [report(0, 101, 10, 10), report(30, 101, 10, 20), report(40, 102, 10, 45)]
    assert told([*rows, report(60, 1, 10)], 1) == [(30.0, 0)]
    assert told([*rows, report(60, 1, 10)], 1, free_cars=1) == [(30.0, 2)]


def test_a_vehicle_that_comes_back_within_the_minute_counts_once_there():
    """Ten in segment 10, then in 11, then in 10 again: its average there is 20."""
    there = [report(0, 101, 10, 10), report(20, 101, 11, 99), report(40, 101, 10, 30)]
    rows = [*there, report(50, 102, 10, 50), report(60, 1, 10)]
    assert told(rows, 1, free_cars=1) == [(35.0, 2)]
    assert told(rows, 1, free_cars=2) == [(35.0, 0)]


def test_a_vehicle_that_comes_back_in_the_next_minute_counts_again():
    rows = [report(0, 101, 10, 10), report(59, 101, 11, 99), report(60, 101, 10, 30)]
    assert told([*rows, report(120, 1, 10)], 1, free_cars=0) == [(20.0, 2)]


def test_thirds_that_make_forty_are_forty():
    """One vehicle averages 40 1/3, the other 39 2/3."""
    rows = [report(n, 101, 10, speed) for n, speed in enumerate((40, 40, 41))]
    rows += [report(n, 102, 10, speed) for n, speed in enumerate((40, 40, 39))]
    assert told([*rows, report(60, 1, 10)], 1, free_cars=1) == [(40.0, 0)]


@pytest.mark.parametrize("cars", [3, 7, 49])
def test_minutes_with_fractions_that_make_forty_are_forty(cars):
    """One below, then one above: 40 - 1/n and 40 + 1/n, which no floating-point number is."""
    rows = [report(n % 60, 100 + n, 10, 40 - (n == 0)) for n in range(cars)]
    rows += [report(60 + n % 60, 100 + n, 10, 40 + (n == 0)) for n in range(cars)]
    assert told([*rows, report(120, 1, 10)], 1, free_cars=1) == [(40.0, 0)]


def test_five_minutes_that_make_forty_are_forty_though_floats_make_them_less():
    sums = [(112, 3), (992, 25), (994, 25), (3254, 75), (996, 25)]
    assert sum(Fraction(*each) for each in sums) == 5 * 40
    rows = [
        report(60 * minute + n % 60, 100 + n, 10, total // cars + (n < total % cars))
        for minute, (total, cars) in enumerate(sums)
        for n in range(cars)
    ]
    out = on_threads(fed([*rows, report(300, 1, 10)], free_cars=1))["out"].to_pylist()
    assert (out[-1]["lav"], out[-1]["toll"]) == (40.0, 0)


def test_a_hair_below_forty_costs():
    rows = [report(n % 60, 100 + n, 10, 40 - (n == 0)) for n in range(900)]
    rows += [report(60 + n % 60, 100 + n, 10, 40 + (n == 0)) for n in range(901)]
    wanted = 40 + (Fraction(1, 901) - Fraction(1, 900)) / 2
    out = on_threads(fed([*rows, report(120, 1, 10)], free_cars=899))["out"].to_pylist()
    assert (out[-1]["lav"], out[-1]["toll"]) == (float(wanted), 2 * 2**2)


def test_the_speed_of_free_traffic_is_a_decimal():
    """Three tenths are not what a floating-point number takes them for."""
    rows = [report(n, 100 + n, 10, 39 + (n < 3)) for n in range(10)]
    assert told([*rows, report(60, 1, 10)], 1, free_cars=1, free_speed=39.3) == [(39.3, 0)]


def test_many_reports_of_a_vehicle_are_averaged_closely():
    rows = [report(n, 101, 10, 40 + (n == 0)) for n in range(59)]
    ((lav, _),) = told([*rows, report(60, 1, 10)], 1)
    assert lav == pytest.approx(40 + 1 / 59, abs=1e-9)


def test_what_a_minute_needed_is_forgotten_with_it(monkeypatch):
    held, step = [], VehicleSpeedKernel.step

    def counting(kernel, inputs, frontier):
        out = step(kernel, inputs, frontier)
        held.append(len(kernel.stores[0].table))
        return out

    monkeypatch.setattr(VehicleSpeedKernel, "step", counting)
    run_sequential(fed([report(20 * n, 1, n // 2 % 100) for n in range(60)]))
    assert max(held) == 2


@pytest.mark.parametrize("seed", range(5))
def test_whoever_reports_from_wherever_is_counted_as_the_rules_say(seed):
    """Few vehicles that jump between few segments, several times a minute."""
    rng = np.random.default_rng(seed)
    rows = [
        report(int(time), int(vid), int(segment), int(speed), lane=int(lane), dir=int(side))
        for time, vid, segment, speed, lane, side in zip(
            np.sort(rng.integers(0, 600, 2000)), rng.integers(1, 13, 2000),
            rng.integers(3, 8, 2000), rng.integers(38, 43, 2000),
            rng.choice([1, 2, 3, 4], 2000, p=[0.3, 0.3, 0.35, 0.05]),
            rng.integers(0, 2, 2000), strict=True,
        )
    ]  # fmt: skip
    flow = fed(rows, free_cars=3)
    wanted = expected({"reports": rows}, free_cars=3)
    assert len({row["toll"] for row in wanted["out"]}) > 3
    agrees(flow, wanted, on_threads(flow))
