from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import BuildError, OperatorError
from anabranch.operators.parsing.syslog import MONTHS, parse_syslog
from tests.operators.driving_ports import ONE_THREAD, drive, simple, ways

LINES = pa.schema([("line", pa.string()), ("n", pa.int64())])
YEAR = 2026


def parsed(*lines, year=YEAR, zone="UTC"):
    """The rows of the good lines, and the reasons of the bad ones."""
    operator = parse_syslog("line", year=year, on_error="side", zone=zone)
    ran = drive(operator, [simple(LINES, [(line, n) for n, line in enumerate(lines)])])
    return ran.rows(), [row["error"] for row in ran.rows(1)]


def one(line, year=YEAR):
    rows, errors = parsed(line, year=year)
    assert errors == []
    return rows[0]


def test_a_traditional_line():
    assert one("Mar  4 12:01:02 web sshd[123]: Failed password for root") == {
        "ts": datetime(2026, 3, 4, 12, 1, 2),
        "host": "web",
        "program": "sshd",
        "pid": 123,
        "message": "Failed password for root",
        "priority": None,
    }


def test_a_modern_line():
    line = '<34>1 2026-03-04T12:01:02.003Z web su 123 ID47 [ex@1 a="]\\"["][b] \'su root\' failed'
    assert one(line) == {
        "ts": datetime(2026, 3, 4, 12, 1, 2, 3000),
        "host": "web",
        "program": "su",
        "pid": 123,
        "message": "'su root' failed",
        "priority": 34,
    }


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ("<13>Mar 14 12:01:02 web cron: x", "priority", 13),
        ("<0>Mar 14 12:01:02 web cron: x", "priority", 0),
        ("Mar 14 12:01:02 web cron: x", "pid", None),
        ("Mar 14 12:01:02 web cron[main]: x", "pid", None),
        ("Mar 14 12:01:02 web cron[main]: x", "program", "cron"),
        ("Mar 14 12:01:02 web a[999999999999999999]: x", "pid", 999_999_999_999_999_999),
        ("Mar 14 12:01:02 web a[9999999999999999999]: x", "pid", None),
        ("Mar 14 12:01:02 web kernel: [12.5] usb 1-1: new", "message", "[12.5] usb 1-1: new"),
        ("Mar 14 12:01:02 web -- MARK --", "program", None),
        ("Mar 14 12:01:02 web -- MARK --", "message", "-- MARK --"),
        ("Mar 14 12:01:02 web pam_unix(sshd:auth): x", "message", "pam_unix(sshd:auth): x"),
        ("Mar 14 12:01:02 web time:12:30", "program", None),
        ("Mar 14 12:01:02 web cron:", "message", ""),
        ("Mar 14 12:01:02 2001:db8::1 sshd[1]: x", "host", "2001:db8::1"),
        ("Mar 14 12:01:02 web sshd[1]: Jürgen 東京 \ufffd", "message", "Jürgen 東京 \ufffd"),
        ("Mar 14 12:01:02 web sshd[1]: two\nlines", "message", "two\nlines"),
        ("Mar 14 12:01:02 web sshd[1]: " + "x" * 200_000, "message", "x" * 200_000),
        ("2026-03-04T12:01:02.5+02:00 web a: x", "ts", datetime(2026, 3, 4, 10, 1, 2, 500_000)),
        ("2026-03-04T12:01:02-00:30 web a[1]: x", "ts", datetime(2026, 3, 4, 12, 31, 2)),
        ("2026-03-04T12:01:02+0100 web a: x", "ts", datetime(2026, 3, 4, 11, 1, 2)),
        ("2026-03-04T12:01:02.25-0330 web a: x", "ts", datetime(2026, 3, 4, 15, 31, 2, 250_000)),
        ("2026-03-04T12:01:02.123456789Z web a: x", "ts", datetime(2026, 3, 4, 12, 1, 2, 123_456)),
        ("2026-03-04 12:01:02 web a: x", "ts", datetime(2026, 3, 4, 12, 1, 2)),
        ("2026-03-04 12:01:02 web a: x", "host", "web"),
        ("2026-03-04 12:01:02.5+02:00 web a: x", "ts", datetime(2026, 3, 4, 10, 1, 2, 500_000)),
        ("2026-03-04T12:01:02 web a: x", "ts", datetime(2026, 3, 4, 12, 1, 2)),
        ("Mar  4 2019 12:01:02 web a: x", "ts", datetime(2019, 3, 4, 12, 1, 2)),
        ("<166>Feb 29 2024 12:01:02 fw : %ASA-6-1: x", "ts", datetime(2024, 2, 29, 12, 1, 2)),
        ("Mar  4 12:01:02.123456 web a: x", "ts", datetime(2026, 3, 4, 12, 1, 2, 123_456)),
        ("Mar  4 2019 12:01:02.25 web a: x", "ts", datetime(2019, 3, 4, 12, 1, 2, 250_000)),
        ("Mar  4 12:01:02 2026 a: x", "host", "2026"),
        ("Mar  4 12:01:02 web last message repeated 3 times", "program", None),
        ("<1>1 0001-01-01T00:00:00Z - - - - -", "ts", datetime(1, 1, 1)),
        ("<1>1 9999-12-31T23:59:59.999999Z - - - - -", "ts", datetime.max),
        ("<1>1 2026-03-04T12:01:02Z - - - - -", "host", None),
        ("<1>1 2026-03-04T12:01:02Z - - - - -", "program", None),
        ("<1>1 2026-03-04T12:01:02Z - - - - -", "message", ""),
        ("<1>1 2026-03-04T12:01:02Z h a main - -", "pid", None),
        ("<1>1 2026-03-04T12:01:02Z h a 7b - - m", "pid", None),
        ("<1>1 2026-03-04T12:01:02Z h a - - - \ufeffmärz", "message", "märz"),
    ],
)
def test_what_lines_say(line, column, value):
    assert one(line)[column] == value


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "no syslog line"),
        (" ", "no syslog line"),
        ("no log at all", "no syslog line"),
        ("Mar  4 12:0", "no syslog line"),
        ("Mär  4 12:01:02 web a: x", "no syslog line"),
        ("Mar  4 12:01:02", "no syslog line"),
        ("Mar ٤٤ 12:01:02 web a: x", "no syslog line"),
        ("<34>2 2026-03-04T12:01:02Z h a 1 - - m", "no syslog line"),
        ("<34>1 2026-03-04T12:01:02Z h a 1 - m", "no syslog line"),
        ("<34>1 2026-03-04T12:01:02Z h a 1 - [x m", "no syslog line"),
        ("<34>1 2026-03-04T12:01:02.1234567Z h a 1 - - m", "no syslog line"),
        ("<34>1 2026-03-04T12:01:02+0100 h a 1 - - m", "no syslog line"),
        ("<34>1 2026-03-04 12:01:02Z h a 1 - - m", "no syslog line"),
        ("<34>1 2026-03-04T12:01:02 h a 1 - - m", "no syslog line"),
        ("Mar  4 26 12:01:02 web a: x", "no syslog line"),
        ("2026-03-04T12:01:02+01 web a: x", "no syslog line"),
        ("Feb 29 2026 12:01:02 web a: x", "no such day"),
        ("Mar  4 0000 12:01:02 web a: x", "no such day"),
        ("2026-03-04 12:01:02+0160 web a: x", "no such time"),
        ("<34>1 - h a 1 - - m", "no time"),
        ("<192>Mar  4 12:01:02 web a: x", "priority above 191"),
        ("<192>1 2026-03-04T12:01:02Z h a 1 - - m", "priority above 191"),
        ("Feb 30 12:01:02 web a: x", "no such day"),
        ("Feb 29 12:01:02 web a: x", "no such day in the twelve months up to 2026-12-31"),
        ("Apr 31 12:01:02 web a: x", "no such day"),
        ("Mar  0 12:01:02 web a: x", "no such day"),
        ("2026-02-30T12:01:02Z web a: x", "no such day"),
        ("2026-13-01T12:01:02Z web a: x", "no such day"),
        ("2026-00-01T12:01:02Z web a: x", "no such day"),
        ("2026-02-30T12:01:02+24:00 web a: x", "no such day"),
        ("0000-01-01T12:01:02Z web a: x", "no such day"),
        ("0001-01-01T00:01:02+00:30 web a: x", "no such day"),
        ("9999-12-31T23:59:59-00:01 web a: x", "no such day"),
        ("Mar  4 24:00:00 web a: x", "no such time"),
        ("Mar  4 12:60:00 web a: x", "no such time"),
        ("Mar  4 12:00:60 web a: x", "no such time"),
        ("2026-03-01T12:01:02+24:00 web a: x", "no such time"),
        ("2026-03-01T12:01:02+01:60 web a: x", "no such time"),
    ],
)
def test_a_bad_line_is_told_apart_and_says_why(line, reason):
    rows, (error,) = parsed("Mar  4 12:01:02 web a: before", line, "Mar  4 12:01:03 web a: behind")
    assert [row["message"] for row in rows] == ["before", "behind"]
    assert reason in error


def test_no_line_at_all_is_bad():
    assert parsed(None) == ([], ["no syslog line"])


@pytest.mark.parametrize(
    ("stamp", "year", "meant"),
    [
        ("Feb 29", 2024, date(2024, 2, 29)),
        ("Feb 29", date(2025, 2, 10), date(2024, 2, 29)),
        ("Dec 31", 2025, date(2025, 12, 31)),
        ("Jan  1", 2025, date(2025, 1, 1)),
        ("Dec 31", date(2026, 1, 15), date(2025, 12, 31)),
        ("Jan 15", date(2026, 1, 15), date(2026, 1, 15)),
        ("Jan 16", date(2026, 1, 15), date(2025, 1, 16)),
    ],
)
def test_a_line_without_a_year_is_of_the_twelve_months_up_to_the_last_day(stamp, year, meant):
    assert one(f"{stamp} 23:59:59 web a: x", year)["ts"].date() == meant


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))


@given(st.lists(MOMENTS, max_size=8))
def test_every_second_of_a_year_is_read_as_it_was_written(moments):
    moments = [each.replace(year=2024, microsecond=0) for each in moments if each.day < 29]
    lines = [f"{MONTHS[m.month - 1]} {m.day:2} {m:%H:%M:%S} web sshd[1]: x" for m in moments]
    assert [row["ts"] for row in parsed(*lines, year=2024)[0]] == moments


@given(st.lists(st.tuples(MOMENTS, st.integers(-1439, 1439)), max_size=8))
def test_every_modern_time_is_read_as_it_was_written(moments):
    zoned = [m.replace(tzinfo=timezone(timedelta(minutes=z))) for m, z in moments]
    lines = [f"<9>1 {m.isoformat()} web sshd 1 - - x" for m in zoned]
    assert [row["ts"].replace(tzinfo=UTC) for row in parsed(*lines)[0]] == zoned


STAMPS = ["Mar  4 12:01:02 ", "Feb 30 12:01:02 ", "Mar  4 25:01:02 ", "2026-03-04T12:01:02Z "]
FRAGMENTS = st.sampled_from(
    [*STAMPS, "<34>", "<9>1 ", "web ", "sshd[7]: ", "cron: ", "- ", "ü ", "\n", "[x] ", "message"]
)
GOOD = [
    "Mar  4 12:01:02 web sshd[7]: old",
    "<34>Mar 14 12:01:02 web cron: old",
    "2026-03-04T12:01:02+01:00 web sshd[7]: newer",
    "2026-03-04 12:01:02 web sshd[7]: with a space",
    "Mar  4 2019 12:01:02.5 web sshd[7]: with its year",
    "Mar  4 12:01:02.75 web sshd[7]: with a fraction",
    "<34>1 2026-03-04T12:01:02.25Z web app 7 - - modern",
]
LINE = st.one_of(st.sampled_from(GOOD), st.lists(FRAGMENTS, max_size=8).map("".join), st.none())


@given(st.lists(LINE, max_size=12), ways(2))
@example([*GOOD, "", "Feb 30 12:01:02 web a: x", None, *GOOD[::-1]], ONE_THREAD)
def test_lines_do_not_disturb_each_other(lines, way):
    operator = parse_syslog("line", YEAR, on_error="side")
    ran = drive(operator, [simple(LINES, [(line, n) for n, line in enumerate(lines)])], way)
    found = {position[0]: row for position, row in ran.ports[0]}
    alone = {n: parsed(line)[0] for n, line in enumerate(lines)}
    assert found == {n: rows[0] for n, rows in alone.items() if rows}
    bad = {row["n"]: row["error"] for row in ran.rows(1)}
    assert bad == {n: parsed(lines[n])[1][0] for n, rows in alone.items() if not rows}
    assert ran.counters.skipped == len(bad)


def test_a_bad_line_fails_a_step_that_was_not_told_otherwise():
    with pytest.raises(OperatorError, match=r"a syslog line in 'line'.*no such day.*on_error"):
        drive(parse_syslog("line", YEAR), [simple(LINES, [("Feb 30 12:01:02 web a: x", 0)])])


def test_columns_are_kept_beside_what_was_parsed():
    operator = parse_syslog("line", YEAR, "skip", keeps="n")
    lines = [("Mar  4 12:01:02 web a: x", 7), ("", 8)]
    (row,) = drive(operator, [simple(LINES, lines)]).rows()
    assert list(row) == ["n", "ts", "host", "program", "pid", "message", "priority"]
    assert row["n"] == 7


@pytest.mark.parametrize("year", [0, 10_000, True, "2026", None, 2026.0])
def test_a_year_that_is_none_is_refused(year):
    with pytest.raises(BuildError, match="year=2026"):
        parse_syslog("line", year=year)


BERLIN = ZoneInfo("Europe/Berlin")


@given(st.datetimes(datetime(2025, 1, 1), datetime(2026, 12, 31)))
@example(datetime(2026, 3, 29, 2, 30))
@example(datetime(2026, 10, 25, 2, 30))
def test_a_time_without_a_zone_is_of_the_steps(moment):
    moment = moment.replace(microsecond=0)
    rows, errors = parsed(f"{moment} web a: x", zone="Europe/Berlin")
    in_utc = moment.replace(tzinfo=BERLIN).astimezone(UTC)
    if in_utc.astimezone(BERLIN).replace(tzinfo=None) == moment:
        assert [row["ts"].replace(tzinfo=UTC) for row in rows] == [in_utc]
    else:
        assert errors == ["a time that Europe/Berlin leaves out"]


def test_of_an_hour_that_comes_twice_the_first_is_taken_whatever_stands_before():
    lines = [f"Oct 25 {clock} web a: x" for clock in ("01:59:00", "02:10:00", "02:50:00")]
    first = [datetime(2026, 10, 24, 23, 59), datetime(2026, 10, 25, 0, 10)]
    first.append(datetime(2026, 10, 25, 0, 50))
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 1]):
        rows, _ = parsed(*(lines[n] for n in order), zone="Europe/Berlin")
        assert [row["ts"] for row in rows] == [first[n] for n in order]


def test_lines_that_tell_their_zone_are_not_of_the_steps():
    lines = [
        "<34>1 2026-10-25T02:10:00+01:00 web app 7 - - second hour",
        "2026-10-25T02:10:00+02:00 web a: first hour",
        "2026-03-29T02:30:00Z web a: left out, but not in UTC",
        "Jul  1 02:00:00 web a: of the step's zone",
    ]
    rows, errors = parsed(*lines, zone="Europe/Berlin")
    assert [(row["ts"].day, row["ts"].hour) for row in rows] == [(25, 1), (25, 0), (29, 2), (1, 0)]
    assert not errors


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "CETERA", None, 1])
def test_a_zone_that_is_none_is_refused(zone):
    with pytest.raises(BuildError, match="Europe/Berlin"):
        parse_syslog("line", year=2026, zone=zone)


def test_it_is_public():
    assert ab.parse_syslog is parse_syslog
