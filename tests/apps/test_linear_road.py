from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import anabranch as ab
from anabranch.apps import linear_road
from anabranch.apps.linear_road.data import FEET_A_SEGMENT, REPORTS
from anabranch.cli.writing import save
from anabranch.errors import BuildError
from anabranch.io import memory
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import cases, rows_of
from tests.apps.linear_road_rows import (
    agrees,
    fed,
    found,
    generated,
    on_threads,
    queue,
    report,
    request,
    source_of,
    told,
)
from tests.apps.references.linear_road import expected
from tests.sampling import thorough

SMALL = {"rows": 100, "vehicles": 8, "accidents": 0.5, "requests": 0.15, "free_cars": 1, "seed": 24}
BUSY = {"rows": 30_000, "vehicles": 700, "accidents": 0.05, "requests": 0.05, "xways": 2}


def crash(until=95, segment=10, **given):
    """Two vehicles that stand at one place from second 0 on, and are known to from second 95."""
    return [
        report(time, vid, segment, speed=0, feet=7, **given)
        for vid, start in ((501, 0), (502, 5))
        for time in range(start, until + 1, 30)
    ]


def warned(rows, segments, time, **given):
    """In which of some segments a vehicle that enters is warned, and of which accident."""
    new = [report(time, 900 + segment, segment, **given) for segment in segments]
    warnings = found(rows + new)["accidents"]
    return {row["segment"]: row["accident"] for row in warnings if row["vid"] >= 900}


class TestTolls:
    def test_who_enters_a_jam_is_told_its_toll(self):
        assert told([*queue(cars=5), report(60, 1, 10)], 1) == [(20.0, 2 * (5 - 2) ** 2)]

    def test_a_toll_depends_on_the_minute_before(self):
        for time, expect in ((59, (None, 0)), (119, (20.0, 2)), (120, (20.0, 0))):
            assert told([*queue(), report(time, 1, 10)], 1) == [expect]

    def test_at_forty_miles_an_hour_nobody_pays(self):
        for speed, toll in ((39, 2), (40, 0)):
            assert told([*queue(speed), report(60, 1, 10)], 1) == [(float(speed), toll)]

    def test_few_vehicles_pay_nothing(self):
        assert told([*queue(cars=2), report(60, 1, 10)], 1) == [(20.0, 0)]

    def test_the_benchmark_lets_fifty_vehicles_go_free(self):
        rows = [report(n % 60, 100 + n, 10) for n in range(52)]
        assert told([*rows, report(60, 1, 10)], 1, free_cars=linear_road.FREE_CARS) == [(20.0, 8)]

    def test_a_segment_is_told_once(self):
        rows = [report(60, 1, 10), report(90, 1, 10), report(120, 1, 11)]
        assert len(told(rows, 1)) == 2

    def test_who_is_about_to_leave_is_told_nothing(self):
        rows = [report(0, 1, 10), report(30, 1, 11, lane=4)]
        assert len(told(rows, 1)) == 1

    def test_roads_and_directions_do_not_mix(self):
        for other in ({"dir": 1}, {"xway": 1}):
            assert told([*queue(), report(60, 1, 10, **other)], 1) == [(None, 0)]


class TestAccidents:
    def test_who_enters_up_to_four_segments_before_one_is_warned(self):
        assert warned(crash(), range(4, 13), 125) == {6: 10, 7: 10, 8: 10, 9: 10, 10: 10}

    def test_westwards_the_way_goes_down(self):
        expect = {10: 10, 11: 10, 12: 10, 13: 10, 14: 10}
        assert warned(crash(dir=1), range(8, 17), 125, dir=1) == expect

    def test_warnings_begin_with_the_minute_after(self):
        assert warned(crash(until=125), [9], 119) == {}
        assert warned(crash(until=125), [9], 120) == {9: 10}

    def test_they_end_with_the_minute_after_the_last_one_of_the_accident(self):
        rows = [*crash(until=155), report(151, 501, 10, feet=99)]
        assert warned(rows, [9], 239) == {9: 10}
        assert warned(rows, [9], 240) == {}

    def test_an_accident_that_ends_as_a_minute_begins_is_none_of_that_minute(self):
        rows = [*crash(until=95), report(120, 501, 10, feet=99)]
        assert warned(rows, [9], 179) == {9: 10}
        assert warned(rows, [9], 180) == {}

    def test_three_reports_from_a_place_are_not_enough(self):
        assert warned(crash(until=65), [9], 125) == {}

    def test_one_vehicle_is_none(self):
        assert warned([row for row in crash() if row["vid"] == 501], [9], 125) == {}

    @pytest.mark.parametrize("lane", [0, 4])
    def test_ramps_have_none(self, lane):
        assert warned(crash(lane=lane), [9], 125) == {}

    def test_two_lanes_are_two_places(self):
        rows = [{**row, "lane": row["vid"] - 500} for row in crash()]
        assert warned(rows, [9], 125) == {}

    def test_of_two_the_nearest_is_told(self):
        further = [{**row, "vid": row["vid"] + 2} for row in crash(segment=12)]
        assert warned(crash() + further, [9, 11], 125) == {9: 10, 11: 12}

    def test_nobody_pays_before_one(self):
        rows = [*crash(), *queue(segment=9, time=60), report(125, 1, 9)]
        assert told(rows, 1) == [(20.0, 0)]
        assert told([*queue(segment=9, time=60), report(125, 1, 9)], 1) == [(20.0, 2)]

    def test_a_third_vehicle_keeps_it_up(self):
        third = [{**row, "vid": 503} for row in crash() if row["vid"] == 502]
        rows = [*crash(), *third, report(121, 501, 10, feet=99)]
        assert warned(rows, [9], 200) == {9: 10}


class TestAccounts:
    def trip(self, *reports):
        """A jam in segment 10 all the time, and a vehicle that drives through it."""
        jam = [row for minute in range(5) for row in queue(time=60 * minute)]
        return [*jam, *reports]

    def balances(self, rows):
        return [(row["balance"], row["charged"]) for row in found(rows)["balances"]]

    def test_a_toll_is_charged_when_the_vehicle_goes_on(self):
        rows = self.trip(report(70, 1, 10), report(100, 1, 10), report(130, 1, 11))
        asked = [request(2, time, 1, qid=time) for time in (60, 129, 131)]
        assert self.balances(rows + asked) == [(0, 0), (0, 0), (2, 130)]

    def test_it_is_not_when_the_vehicle_leaves_the_road_there(self):
        rows = self.trip(report(70, 1, 10), report(100, 1, 10, lane=4))
        assert self.balances([*rows, request(2, 240, 1, qid=1)]) == [(0, 0)]

    def test_it_is_when_the_vehicle_leaves_in_the_next_segment(self):
        rows = self.trip(report(70, 1, 10), report(100, 1, 11, lane=4))
        assert self.balances([*rows, request(2, 240, 1, qid=1)]) == [(2, 100)]

    def test_another_trip_does_not_pay_for_the_last(self):
        rows = self.trip(
            report(70, 1, 10), report(100, 1, 10, lane=4), report(130, 1, 10), report(160, 1, 11)
        )
        asked = [request(2, time, 1, qid=time) for time in (140, 170)]
        assert self.balances(rows + asked) == [(0, 0), (8, 160)]  # itself is a fourth car

    def test_a_request_sees_what_came_before_it_in_its_second(self):
        rows = self.trip(report(70, 1, 10), report(130, 1, 11))
        before, after = request(2, 130, 1, qid=1), request(2, 130, 1, qid=2)
        place = next(n for n, row in enumerate(rows) if row["time"] == 130)
        ordered = [*rows[:place], before, rows[place], after, *rows[place + 1 :]]
        assert self.balances(ordered) == [(0, 0), (2, 130)]

    def test_who_was_never_seen_has_paid_nothing(self):
        assert self.balances([request(2, 7, 99, qid=5)]) == [(0, 0)]

    def test_days_in_the_past_come_from_a_table(self, tmp_path):
        file = tmp_path / "history.csv"
        file.write_text("vid,day,xway,expenditure\n7,3,0,250\n7,3,1,90\n")
        asked = [request(3, n, 7, qid=n, xway=n, day=3) for n in range(3)]
        got = found([*asked, request(3, 9, 8, qid=9, xway=0, day=3)], history=str(file))
        assert [row["expenditure"] for row in got["expenditures"]] == [250, 90, 0, 0]


class TestInput:
    def test_what_cannot_be_answered_is_kept_apart(self):
        most = {"vid": 2**63 - 1, "position": 2**31 - 1}
        rows = [
            request(4, 1, 7), request(1, 2, 7), request(3, 3, 7, day=70), request(-128, 4, 7),
            {**report(5, 7, 3), "segment": 100}, {**report(6, 7, 3), "speed": None},
            {**report(7, 7, 3), **most}, {**report(8, 7, 3), "lane": 5}, report(9, 7, 3),
        ]  # fmt: skip
        got = found(rows)
        assert [row["time"] for row in got["unanswered"]] == list(range(1, 9))
        assert [row["time"] for row in got["out"]] == [9]

    def test_values_at_their_edges_are_worked_on(self):
        edge = report(2**31 - 1, 2**63 - 1, 99, speed=1000, xway=2**16, lane=3, dir=1, feet=5279)
        assert len(found([edge])["out"]) == 1

    def test_late_reports_are_kept_apart(self):
        rows = [report(100, 1, 3), report(95, 2, 3), report(80, 3, 3)]
        flow = linear_road.build(rows=0, lateness=10).reading({"reports": memory(rows, REPORTS)})
        ran = run_sequential(flow).outputs
        assert [row["vid"] for row in ran["out"].to_pylist()] == [2, 1]
        assert [row["vid"] for row in ran["late"].to_pylist()] == [3]

    @pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
    def test_files_give_what_their_rows_gave(self, suffix, tmp_path):
        flow = linear_road.build(**{**SMALL, "rows": 400})
        file = tmp_path / f"reports{suffix}"
        save(source_of(flow), file, 400)
        got = on_threads(linear_road.build(input=str(file), free_cars=1))
        wanted = on_threads(flow)
        for sink in ("out", "accidents", "balances", "unanswered"):
            assert got[sink].to_pylist() == wanted[sink].to_pylist()
        assert got["expenditures"].num_rows == wanted["expenditures"].num_rows > 0

    def test_malformed_rows_are_kept_apart(self, tmp_path):
        file = tmp_path / "reports.csv"
        names = ",".join(REPORTS.names)
        file.write_text(f"{names}\n0,0,1,20,0,1,0,3,16000,,\n0,x,1,20,0,1,0,3,16000,,\n0,1\n,,\n")
        got = on_threads(linear_road.build(input=str(file)))
        assert (got["out"].num_rows, got["reports.bad"].num_rows) == (1, 3)

    def test_a_null_in_a_typed_file_is_no_report(self, tmp_path):
        table = pa.Table.from_pylist([report(0, 1, 3), {**report(1, 2, 3), "lane": None}], REPORTS)
        pa.parquet.write_table(table, tmp_path / "reports.parquet")
        got = on_threads(linear_road.build(input=str(tmp_path / "reports.parquet")))
        assert (got["out"].num_rows, got["unanswered"].num_rows) == (1, 1)

    def test_an_empty_file_gives_nothing(self, tmp_path):
        (tmp_path / "none.jsonl").write_text("")
        got = on_threads(linear_road.build(input=str(tmp_path / "none.jsonl")))
        assert str(linear_road.Summary.of(got)) == (
            "0 toll notifications, 0 with a toll, 0 cents in all\n"
            "0 warnings of accidents, 0 balances told, 0 days in the past told, 0 rows unanswered"
        )


class TestTraffic:
    def test_it_follows_from_the_seed_and_the_row_alone(self):
        whole = generated(5000, seed=3, lateness=9)
        assert whole.equals(generated(5000, seed=3, lateness=9))
        assert not whole.equals(generated(5000, seed=4, lateness=9))
        flow = linear_road.build(rows=5000, seed=3, lateness=9)
        assert source_of(flow).read("generated", 3000, 10).batch.equals(whole.slice(3000, 10))

    def test_vehicles_report_every_thirty_seconds_and_go_one_way(self):
        trips = defaultdict(list)
        for row in generated(40_000, vehicles=300, requests=0.0).to_pylist():
            key = row["vid"], row["xway"], row["dir"]
            if row["lane"] == 0 or key not in trips:
                trips[key] = []
            if trips[key]:
                before = trips[key][-1]
                assert row["time"] - before["time"] == 30
                assert (row["position"] - before["position"]) * (1 - 2 * row["dir"]) >= 0
            trips[key].append(row)
            assert row["segment"] == row["position"] // FEET_A_SEGMENT
        assert len(trips) > 500

    def test_rows_are_in_order_unless_they_may_be_late(self):
        assert all(a <= b for a, b in pairwise(generated(5000)["time"].to_pylist()))
        times = generated(20_000, vehicles=1000, lateness=10)["time"].to_numpy()
        behind = np.maximum.accumulate(times) - times
        assert 3 < behind.max() <= 10

    def test_selectivities_are_those_of_the_paper_where_the_benchmark_agrees(self):
        """Table 8; averages, counts and tolls are told less often than BriskStream does."""
        got = on_threads(linear_road.build(rows=100_000))
        rows = generated(100_000)["type"].to_numpy()
        reports = (rows == 0).sum()
        assert reports / len(rows) == pytest.approx(0.99, abs=0.001)
        for sink in ("balances", "expenditures", "accidents"):
            assert 0 < got[sink].num_rows / len(rows) < 0.02
        assert 0.3 < got["out"].num_rows / reports < 0.5

    def test_there_are_jams_and_accidents(self):
        got = on_threads(linear_road.build(rows=150_000))
        tolls = got["out"]["toll"].to_numpy()
        assert 0.1 < (tolls > 0).mean() < 0.6
        assert got["accidents"].num_rows > 100


class TestAsAWhole:
    def test_large_batches_give_what_the_rules_say(self):
        flow = linear_road.build(**BUSY, free_cars=5, lateness=15)
        rows = source_of(flow).read("generated", 0, BUSY["rows"]).batch.to_pylist()
        wanted, got = expected({"reports": rows}, free_cars=5, lateness=15), on_threads(flow)
        assert sum(row["toll"] > 0 for row in wanted["out"]) > 1000
        assert len(wanted["accidents"]) > 300
        agrees(flow, wanted, got)

    def test_a_vehicle_with_nearly_all_reports_is_followed(self):
        rows = [report(time, 1, time // 150, feet=time % 150 * 30) for time in range(2000)]
        rows += [report(10 * n, 2 + n % 5, n % 13) for n in range(200)]
        flow = fed(rows)
        ordered = source_of(flow).read("memory", 0, 10_000).batch.to_pylist()
        wanted = expected({"reports": ordered}, free_cars=2)
        agrees(flow, wanted, on_threads(flow))

    @pytest.mark.parametrize(
        ("size", "tolls", "balances", "expenditures", "east", "west", "late"),
        [
            ("small", 4, 2, 3, 0, 2, 0),
            ("large", 15, 5, 3, 5, 5, 0),
            ("shuffled", 15, 5, 3, 5, 5, 20),
        ],
    )
    def test_what_is_compared_has_some_of_everything(
        self, size, tolls, balances, expenditures, east, west, late
    ):
        wanted = cases()["linear-road"].expected(rows_of(cases()["linear-road"].flow(size)))
        assert sum(row["toll"] > 0 for row in wanted["out"]) >= tolls
        assert sum(row["balance"] > 0 for row in wanted["balances"]) >= balances
        assert sum(row["expenditure"] > 0 for row in wanted["expenditures"]) >= expenditures
        warned = [row["dir"] for row in wanted["accidents"]]
        assert (warned.count(0) >= east, warned.count(1) >= west) == (True, True)
        assert len(wanted["late"]) >= late
        assert wanted["unanswered"]

    @thorough
    def test_it_does_not_matter_how_it_is_run(self):
        ab.check(linear_road.build(**SMALL), cases=1, rows=100, processes=0).raise_if_different()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"vehicles": 0}, {"xways": 0}, {"xways": 2**16 + 2}, {"accidents": 2.0},
            {"accidents": -0.1}, {"requests": 2.0}, {"requests": 0.6}, {"free_cars": -1},
            {"free_speed": -1.0}, {"free_speed": float("inf")}, {"lateness": -1}, {"rows": -1},
            {"seed": -1},
        ],
    )  # fmt: skip
    def test_settings_that_cannot_be_are_named(self, wrong):
        (name,) = wrong
        with pytest.raises(BuildError, match=rf"linear-road.*{name}: .* choose another value"):
            linear_road.build(**wrong)

    def test_the_summary_names_the_dearest_segments(self):
        said = str(
            linear_road.Summary.of(on_threads(linear_road.build(**BUSY, free_cars=5)))
        ).splitlines()
        assert len(said) == 7
        assert said[1].startswith("  xway ")

    def test_settings_come_from_the_command_line(self, command_line):
        ran = command_line(
            "run", "linear-road", "--engine", "local", "--policy", "none", "--json",
            *("--set", "rows=500", "--set", "vehicles=20", "--set", "lateness=5"),
        )  # fmt: skip
        assert json.loads(ran.out)["rows_in"] == 500
