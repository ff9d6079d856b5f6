"""Logs in files whose lines do not say their year, and whose names do not say their order."""

from __future__ import annotations

import gzip
import os
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from anabranch.apps import log_watch, network_monitoring
from anabranch.apps.kit.log_files import day_of_end, log_files
from anabranch.errors import BuildError
from anabranch.operators.parsing.syslog import Syslog
from anabranch.testing.sequential import run_sequential

FAILED = "web sshd[7]: Failed password for root from 192.0.2.7 port 4242 ssh2"
ACCEPTED = "web sshd[7]: Accepted password for root from 192.0.2.7 port 4242 ssh2"


def written(path, *lines, on="2026-06-15"):
    """A file of lines, last written on a day."""
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    moment = datetime.fromisoformat(f"{on}T12:00:00").replace(tzinfo=UTC).timestamp()
    os.utime(path, (moment, moment))


def broken_in(day, clock="12:00"):
    """The lines of a break-in."""
    failed = [f"{day} {clock}:{second:02} {FAILED}" for second in range(10, 15)]
    return [*failed, f"{day} {clock}:20 {ACCEPTED}"]


def days(*paths, **config):
    """On which days somebody broke in, and how many lines came too late."""
    ran = run_sequential(log_watch.build(input=[str(path) for path in paths], **config))
    assert ran.rows("RawLines.bad") == []
    return [str(row["ts"].date()) for row in ran.rows("out")], len(ran.rows("late"))


def test_a_log_over_new_year_is_one_log(tmp_path):
    lines = [*broken_in("Dec 31"), *broken_in("Jan  1"), *broken_in("Feb 28")]
    written(tmp_path / "auth.log", *lines, on="2026-03-01")
    assert days(tmp_path / "auth.log") == (["2025-12-31", "2026-01-01", "2026-02-28"], 0)


@pytest.mark.parametrize("on", ["2026-06-16", "2027-06-14", "2031-01-01"])
def test_a_log_that_was_copied_later_is_still_one_log(tmp_path, on):
    lines = [*broken_in("Jan  2"), *broken_in("Jun 15"), *broken_in("Dec 24")]
    written(tmp_path / "auth.log", *lines, on=on)
    found, late = days(tmp_path / "auth.log")
    assert [day[5:] for day in found] == ["01-02", "06-15", "12-24"]
    assert {day[:4] for day in found} == {on[:4]}
    assert late == 0


def test_a_line_of_today_is_not_of_the_year_before_where_it_is_tomorrow(tmp_path):
    written(tmp_path / "auth.log", *broken_in("Mar  5"), on="2026-03-04")
    assert days(tmp_path / "auth.log") == (["2026-03-05"], 0)


@pytest.mark.parametrize(("on", "year"), [("2024-02-29", "2024"), ("2027-01-01", "2024")])
def test_a_day_that_few_years_have_says_which_year_it_was(tmp_path, on, year):
    written(tmp_path / "auth.log", *broken_in("Feb 29"), on=on)
    assert days(tmp_path / "auth.log") == ([f"{year}-02-29"], 0)


def test_what_is_said_of_the_year_counts(tmp_path):
    written(tmp_path / "auth.log", *broken_in("Dec 31"), *broken_in("Jan  1"), on="2026-03-01")
    assert days(tmp_path / "auth.log", year="2020-01-31")[0] == ["2019-12-31", "2020-01-01"]
    assert days(tmp_path / "auth.log", year=2020) == (["2020-12-31"], 6)


def test_rotated_files_are_read_from_the_oldest_on(tmp_path):
    written(tmp_path / "auth.log", *broken_in("Jan  4"), *broken_in("Jan  6"), on="2026-01-06")
    written(tmp_path / "auth.log.1", *broken_in("Dec 28"), *broken_in("Jan  3"), on="2026-01-04")
    written(tmp_path / "auth.log.2.gz", *broken_in("Dec 21"), on="2026-01-05")
    ordered = ["2025-12-21", "2025-12-28", "2026-01-03", "2026-01-04", "2026-01-06"]
    assert days(tmp_path / "auth.log*") == (ordered, 0)
    assert days(tmp_path / "auth.log", tmp_path / "auth.log.1")[0] == ordered[1:]


def test_files_without_a_line_that_can_be_read_come_last(tmp_path):
    written(tmp_path / "a.log", "no line at all")
    written(tmp_path / "b.log")
    written(tmp_path / "c.log", "no line", "2026-03-04T12:00:00Z web a: x")
    source, _ = log_files("log-watch", str(tmp_path), None)
    assert [os.path.basename(part) for part in source.parts()] == ["c.log", "a.log", "b.log"]


def test_the_other_log_application_reads_files_in_the_same_way(tmp_path):
    written(tmp_path / "auth.log", *broken_in("Jan  1", "00:00"), on="2026-01-04")
    written(tmp_path / "auth.log.1", *broken_in("Dec 31", "23:59"), on="2026-01-04")
    ran = run_sequential(network_monitoring.build(input=str(tmp_path / "auth.log*")))
    assert [row["first"].year for row in ran.rows("out")] == [2025, 2026]
    assert ran.rows("late") == []


def in_autumn(*clocks):
    message = "sshd[1]: {} password for root from 10.0.0.1 port 22 ssh2"
    said = ["Failed"] * (len(clocks) - 1) + ["Accepted"]
    return [f"Oct 25 {c} web {message.format(what)}" for c, what in zip(clocks, said, strict=True)]


NIGHT = [f"02:{minute:02}:{second:02}" for second in (0, 30) for minute in range(55, 60)]


def test_the_hour_that_comes_twice_is_late_unless_the_lateness_is_as_long(tmp_path):
    written(tmp_path / "auth.log", *in_autumn(*NIGHT, "02:59:45"), on="2026-11-01")
    for zone, hour in (("UTC", 2), ("Europe/Berlin", 0)):
        flow = log_watch.build(input=str(tmp_path / "auth.log"), zone=zone)
        ran = run_sequential(flow)
        assert (len(ran.rows("late")), ran.rows("out")[0]["ts"].hour) == (4, hour)
    patient = log_watch.build(
        input=str(tmp_path / "auth.log"), zone="Europe/Berlin", lateness=timedelta(hours=1)
    )
    assert len(run_sequential(patient).rows("late")) == 0


def test_files_of_lines_with_and_without_a_zone_are_in_one_order(tmp_path):
    written(tmp_path / "a.log", "2026-07-01T11:00:00Z web a: second")
    written(tmp_path / "b.log", "Jul  1 12:00:00 web a: first, at ten in UTC", on="2026-07-02")
    source, _ = log_files("log-watch", str(tmp_path), None, "Europe/Berlin")
    assert [os.path.basename(part) for part in source.parts()] == ["b.log", "a.log"]


@pytest.mark.parametrize("app", [log_watch, network_monitoring])
def test_a_zone_that_is_none_is_refused(tmp_path, app):
    written(tmp_path / "auth.log", "Jul  1 12:00:00 web a: x")
    for given in ({"rows": 0}, {"input": str(tmp_path / "auth.log")}):
        with pytest.raises(BuildError, match="IANA"):
            app.build(zone="Mars/Olympus", **given)


STAMPS = {
    "of one file": (["Mar  4"], date(2026, 6, 1), "2026-03-04"),
    "not yet reached this year": (["Jul  4"], date(2026, 6, 1), "2025-07-04"),
    "of weeks over New Year": (["Jan  4", "Dec 21", "Dec 28"], date(2026, 1, 6), "2025-12-21"),
    "of weeks around a leap day": (["Mar  5", "Feb 29", "Feb 22"], date(2024, 3, 9), "2024-02-22"),
    "with a day that no month has": (["Feb 31"], date(2026, 6, 1), None),
}


@pytest.mark.parametrize("case", STAMPS)
def test_the_year_begins_a_week_before_the_first_line(case):
    stamps, on, first = STAMPS[case]
    lines = [f"{stamp} 12:00:00 web a: x" for stamp in stamps]
    last = day_of_end([pa.array([line]) for line in lines], on)
    if first is None:
        assert last == on
        return
    ordered = Syslog(last).parse(pa.array(lines)).columns[0]["ts"].to_pylist()
    assert str(min(ordered).date()) == first
    begin = last.replace(year=last.year - 1).toordinal() + 1
    assert min(ordered).date().toordinal() - begin in (7, 8)  # with a leap day between
