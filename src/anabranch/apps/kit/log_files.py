"""A system log in files: of which year its lines are, and which of the files comes first.

Lines of the older form have no year, and a rotated log has its newest file first by name. Both
follow from the first lines of the files and, for the year alone, from when the newest file was
written; never from a clock, so the same files are always read in the same way. A log is taken to be
of less than a year, which begins behind the longest time of which no file begins.
"""

from __future__ import annotations

import os
import re
from calendar import isleap
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pyarrow as pa

from anabranch.apps.kit.arguments import Requirement, require
from anabranch.columns.times import UTC_NAME, required_zone
from anabranch.io import files
from anabranch.io.files_source import FilesSource, Paths
from anabranch.operators.parsing.syslog import MONTHS, Syslog
from anabranch.state.positions import LAST

Year = int | date | str
"""The year of a log, or the day on which it ends; also as a text, `2026` or `2026-03-01`."""

HEAD_ROWS = 100
LEAP_YEAR, LEAP_DAY = 2024, (2, 29)
SLACK = timedelta(days=7)
"""Lines of so much before the first one may come behind it."""

ONE_DAY = timedelta(days=1)
_STAMP = re.compile(rf"(?:<\d{{1,3}}>)?({'|'.join(MONTHS)}) ([ \d]\d) \d\d:\d\d:\d\d")


def log_files(
    app: str, paths: Paths, year: Year | None, zone: str = UTC_NAME
) -> tuple[FilesSource, date]:
    """The files in the order of their first lines, and the day on which the log ends.

    Args:
        app: Who asks, for errors.
        paths: Where the log is.
        year: Its year or last day; None for what the files say.
        zone: That of lines that tell none.
    """
    zone = required_zone(app, zone)
    source = files(paths, format="text")
    heads = {part: source.first_lines(part)[:HEAD_ROWS] for part in source.parts()}
    if year is None:
        written = datetime.fromtimestamp(max(map(os.path.getmtime, heads)), UTC).date()
        last = day_of_end(heads.values(), written)
    else:
        last = last_day(app, year)
    times = {part: _first_time(head, last, zone) for part, head in heads.items()}
    ordered = sorted(times, key=times.__getitem__)
    return files(ordered, format="text"), last


def last_day(app: str, year: Year) -> date:
    """The day on which a log ends, the last one of its year if that is all that is known.

    Example:
        >>> print(last_day("log-watch", 2026), last_day("log-watch", "2026-03-01"))
        2026-12-31 2026-03-01
    """
    try:
        day = date.fromisoformat(f"{year}-12-31"[:10])
    except ValueError:
        day = date.min
    require(
        app,
        year=Requirement(
            year,
            date(1970, 1, 1) <= day < date(9999, 1, 1),
            "the year of the log, or the day on which it ends (2026 or 2026-03-01), from 1970 on",
        ),
    )
    return day


def day_of_end(heads: Iterable[pa.Array], written: date) -> date:
    """The day up to which lines of the twelve months before it are those of the log.

    Args:
        heads: The first lines of each file.
        written: When the newest file was last written, in UTC.

    Example:
        >>> heads = [["Jan  4 00:00:00 web a: x"], ["Dec 28 00:00:00 web a: x"]]
        >>> print(day_of_end([pa.array(head) for head in heads], date(2026, 1, 6)))
        2026-12-20
    """
    days = sorted({day for head in heads if (day := _first_day(head)) is not None})
    if not days:
        return written
    # The log begins behind the longest gap, which may be that over New Year.
    gaps = {later: later - earlier for earlier, later in pairwise(days)}
    gaps[days[0]] = days[0] - days[-1] + timedelta(days=366)
    begin = _latest(max(gaps, key=lambda day: gaps[day]), written + ONE_DAY) - SLACK
    return _year_behind(begin) - ONE_DAY


def _latest(day: date, until: date) -> date:
    """The last time that a day of a leap year came; somewhere it is tomorrow already."""
    years: Sequence[int] = range(until.year, until.year - 9, -1)
    if (day.month, day.day) == LEAP_DAY:
        years = [year for year in years if isleap(year)]
    return next(each for year in years if (each := day.replace(year=year)) <= until)


def _year_behind(day: date) -> date:
    if (day.month, day.day) == LEAP_DAY:
        return date(day.year + 1, 3, 1)
    return day.replace(year=day.year + 1)


def _first_day(head: pa.Array) -> date | None:
    """The day of the first line that has one without a year, in a leap year; None without such."""
    for line in head.to_pylist():
        if found := _STAMP.match(line):
            try:
                return date(LEAP_YEAR, 1 + MONTHS.index(found[1]), int(found[2]))
            except ValueError:  # a day that no month has
                continue
    return None


def _first_time(head: pa.Array, last: date, zone: str) -> int:
    """The time of the first line that has one; without such, a file comes behind all others."""
    tables = [table for table in Syslog(last, zone).parse(head).columns if table.num_rows]
    return int(tables[0]["ts"][0].value) if tables else LAST
