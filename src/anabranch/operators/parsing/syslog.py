"""Parse syslog: a column of log lines becomes time, host, program, process, message and priority.

Three forms are known, and may stand in one file:

- RFC 3164, what /var/log/auth.log holds: `Mar  4 12:01:02 host sshd[123]: message`; some devices
  add the year, `Mar  4 2026 12:01:02`, or a fraction of the second;
- the same with a time by ISO 8601, as newer rsyslogs and journalctl write it: with a `T` or a space
  before the time of day, and with a zone or without (`2026-03-04 12:01:02.003+0100`);
- RFC 5424: `<34>1 2026-03-04T12:01:02.003Z host app 123 ID47 [data] message`.

The first has no year as a rule. Which one is meant follows from the line and from the step's
argument, never from a clock or from other lines: a line is of the twelve months up to the last day
of the log. For a log of one year that day is the 31st of December; a log that runs over New Year is
read with the day it ends on. A 29th of February that these months do not have is a bad line.

A time that tells no zone is of the step's. Where clocks are set forward, a time of the hour that is
left out is a bad line. Where they are set back, an hour comes twice, and a line does not say which
of them it is of: the first is taken (`columns/times.py`). Lines of the second hour then come an
hour too early, so that most clocks find them late. RFC 5424 has no such hours, since its times say
how far they are from UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.text_parsers import Parsed
from anabranch.columns.times import UTC_NAME, in_utc, required_zone
from anabranch.errors import BuildError, Subject
from anabranch.operators.base import OnError
from anabranch.operators.parsing.parse import Parse
from anabranch.state.positions import Ints

SYSLOG = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("host", pa.string()),
        ("program", pa.string()),
        ("pid", pa.int64()),
        ("message", pa.string()),
        ("priority", pa.int64()),
    ]
)
"""What a line becomes. Facility and severity are `priority // 8` and `priority % 8`."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
HIGHEST_PRIORITY = 191
PARSE_SYSLOG = Subject("operator", "parse_syslog")
_NIL = "-"
_SECOND_US, _MINUTE_US = 1_000_000, 60_000_000
_FIRST_US = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_END_US = int(np.datetime64("10000-01-01", "us").astype(np.int64))

_CLOCK = r"\d\d:\d\d:\d\d"
_OLD = rf"(?P<old>(?:{'|'.join(MONTHS)}) [ \d]\d (?:\d{{4}} )?{_CLOCK})"
_ISO = rf"(?P<iso>\d{{4}}-\d\d-\d\d[T ]{_CLOCK})"
# Of a fraction, six digits count; a zone is written in several ways, or left out.
_REST = r"(?:\.(?P<fraction>\d{1,6})\d{0,3})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
_RFC_3339 = (
    rf"(?P<iso>\d{{4}}-\d\d-\d\dT{_CLOCK})(?:\.(?P<fraction>\d{{1,6}}))?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)"
)
_PID = r"(?:(?P<pid>\d{1,18})|[^\]\s]*)"  # a process may have a name, which is no number
_TRADITIONAL = (
    rf"(?s)^(?:<(?P<priority>\d{{1,3}})>)?(?:{_OLD}|{_ISO}){_REST} (?P<host>\S+) "
    rf"(?:(?P<program>[^\s\[\]:]+)(?:\[{_PID}\])?:(?: |$))?(?P<message>.*)$"
)
_VALUE = r'"(?:[^"\\]|\\.)*"'
_DATA = rf'-|(?:\[[^\s="\]]+(?: [^\s="\]]+={_VALUE})*\])+'
_MODERN = (
    rf"(?s)^<(?P<priority>\d{{1,3}})>1 (?:(?P<old>-)|{_RFC_3339}) (?P<host>\S+) (?P<program>\S+) "
    rf"(?:(?P<pid>\d{{1,18}})|\S+) \S+ (?:{_DATA})(?: \x{{FEFF}}?(?P<message>.*))?$"
)
_IS_MODERN = r"^<\d{1,3}>1 "


class _Flaw(IntEnum):
    """What may be wrong with a line."""

    NONE = 0
    NO_LINE = 1
    NO_TIME = 2
    NO_PRIORITY = 3
    NO_DAY_OF_THE_LOG = 4
    NO_DAY = 5
    NO_CLOCK = 6
    LEFT_OUT = 7


Flaws = npt.NDArray[np.int8]


class Syslog:
    """One log line per text, by RFC 3164 or RFC 5424."""

    name = "a syslog line"

    def __init__(self, last_day: date, zone: str = UTC_NAME) -> None:
        """Say when the log ends and where it is, for lines that do not tell their year or zone."""
        self._last_day, self._zone = last_day, zone
        self._reasons = {
            _Flaw.NO_LINE: "no syslog line",
            _Flaw.NO_TIME: "no time",
            _Flaw.NO_PRIORITY: f"a priority above {HIGHEST_PRIORITY}",
            _Flaw.NO_DAY_OF_THE_LOG: f"no such day in the twelve months up to {last_day}",
            _Flaw.NO_DAY: "no such day",
            _Flaw.NO_CLOCK: "no such time of day",
            _Flaw.LEFT_OUT: f"a time that {zone} leaves out",
        }

    def check(self) -> None:
        """The columns are always the same."""

    def parse(self, texts: pa.Array) -> Parsed:
        """Each form at once."""
        is_modern = pc.match_substring_regex(texts, _IS_MODERN).to_numpy(zero_copy_only=False)
        parts, places = [], []
        why = np.zeros(len(texts), np.int8)
        for pattern, of_form in ((_TRADITIONAL, ~is_modern), (_MODERN, is_modern)):
            rows = np.flatnonzero(of_form)
            if not len(rows):
                continue
            own = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
            found = pc.extract_regex(own, pattern)
            matched = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            why[rows] = _Flaw.NO_LINE
            if len(matched) < len(found):
                found = found.drop_null()
            columns, flaws = self._columns(found)
            good = flaws == _Flaw.NONE
            why[rows[matched]] = flaws
            parts.append(columns if good.all() else columns.filter(pa.array(good)))
            places.append(rows[matched[good]])
        bad = [(int(row), self._reasons[_Flaw(why[row])]) for row in np.flatnonzero(why)]
        if len(parts) < 2:
            return Parsed(parts, places[0] if places else np.zeros(0, np.int64), bad)
        together = np.concatenate(places)
        order = np.argsort(together)
        return Parsed([pa.concat_tables(parts).take(pa.array(order))], together[order], bad)

    def _columns(self, found: pa.StructArray) -> tuple[pa.Table, Flaws]:
        """The columns of lines of one form, and what is wrong with each."""
        part = {field.name: found.field(field.name) for field in found.type}
        priority = _filled(part["priority"]).cast(pa.int64())
        too_high = pc.greater(priority, HIGHEST_PRIORITY).fill_null(False)
        times, flaws = self._times(part)
        flaws[too_high.to_numpy(zero_copy_only=False)] = _Flaw.NO_PRIORITY
        columns = {
            "ts": pa.array(times).view(pa.timestamp("us")),
            "host": _filled(part["host"], _NIL),
            "program": _filled(_filled(part["program"], _NIL)),
            "pid": _filled(part["pid"]).cast(pa.int64()),
            "message": part["message"],
            "priority": priority,
        }
        return pa.table(columns, schema=SYSLOG), flaws

    def _times(self, part: dict[str, pa.Array]) -> tuple[Ints, Flaws]:
        """Microseconds since 1970, and what is wrong."""
        lengths = pc.binary_length(part["old"]).to_numpy(zero_copy_only=False)
        times = np.zeros(len(lengths), np.int64)
        flaws = np.full(len(lengths), _Flaw.NO_TIME, np.int8)
        for example, read in (
            ("Mar  4 12:01:02", self._times_of_the_log),
            ("Mar  4 2026 12:01:02", _old_times),
            ("", _iso_times),
        ):
            rows = np.flatnonzero(lengths == len(example))
            if len(rows):
                chosen = part
                if len(rows) < len(lengths):
                    chosen = {name: part[name].take(pa.array(rows)) for name in _TIME_PARTS}
                times[rows], flaws[rows] = self._to_the_point(chosen, *read(chosen))
        unknown = (times < _FIRST_US) | (times >= _END_US)  # to Python's calendar
        flaws[(flaws == _Flaw.NONE) & unknown] = _Flaw.NO_DAY
        return times, flaws

    def _times_of_the_log(self, part: dict[str, pa.Array]) -> tuple[Ints, Flaws]:
        """Mmm dd hh:mm:ss, of the last twelve months."""
        chars = _characters(part["old"])
        month, day, last = _month(chars), _number(chars[:, 4:6]), self._last_day
        later = (month > last.month) | ((month == last.month) & (day > last.day))
        return _moments(last.year - later, month, day, chars[:, 7:15], _Flaw.NO_DAY_OF_THE_LOG)

    def _to_the_point(
        self, part: dict[str, pa.Array], times: Ints, flaws: Flaws
    ) -> tuple[Ints, Flaws]:
        """Times of whole seconds in UTC, with their fractions."""
        if _says(part["fraction"]):
            times = times + _number(_characters(pc.ascii_rpad(part["fraction"], 6, "0")))
        here, left_out = in_utc(times, self._zone)
        if not _says(part["zone"]):
            flaws[(flaws == _Flaw.NONE) & left_out] = _Flaw.LEFT_OUT
            return here, flaws
        zones = pc.replace_substring(part["zone"], ":", "")
        lengths = pc.binary_length(zones).to_numpy(zero_copy_only=False)
        zone = _characters(pc.if_else(pa.array(lengths < len("+0100")), "+0000", zones))
        hours, minutes = _number(zone[:, 1:3]), _number(zone[:, 3:5])
        ahead = np.where(zone[:, 0] == ord("-"), -1, 1) * (60 * hours + minutes)
        tells_none = lengths == 0
        flaws[(flaws == _Flaw.NONE) & ((hours > 23) | (minutes > 59))] = _Flaw.NO_CLOCK
        flaws[(flaws == _Flaw.NONE) & left_out & tells_none] = _Flaw.LEFT_OUT
        return np.where(tells_none, here, times - ahead * _MINUTE_US), flaws


def _old_times(part: dict[str, pa.Array]) -> tuple[Ints, Flaws]:
    """Mmm dd yyyy hh:mm:ss."""
    chars = _characters(part["old"])
    day, year = _number(chars[:, 4:6]), _number(chars[:, 7:11])
    return _moments(year, _month(chars), day, chars[:, 12:20], _Flaw.NO_DAY)


def _iso_times(part: dict[str, pa.Array]) -> tuple[Ints, Flaws]:
    """YYYY-MM-DDThh:mm:ss."""
    chars = _characters(part["iso"])
    year, month, day = (_number(chars[:, a:b]) for a, b in ((0, 4), (5, 7), (8, 10)))
    return _moments(year, month, day, chars[:, 11:19], _Flaw.NO_DAY)


def _says(texts: pa.Array) -> bool:
    """Whether any text says anything."""
    return bool(pc.max(pc.binary_length(texts)).as_py())


def _month(chars: npt.NDArray[np.uint8]) -> Ints:
    """From 1 on, by the three letters in front."""
    months: Ints = _MONTH_NUMBER[np.searchsorted(_MONTH_LETTERS, chars[:, :3] @ _LETTERS)]
    return months


def _moments(
    year: Ints, month: Ints, day: Ints, clock: npt.NDArray[np.uint8], no_such_day: _Flaw
) -> tuple[Ints, Flaws]:
    """Days and hh:mm:ss as microseconds since 1970, and what is wrong with them."""
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first, following = (
        each.astype("datetime64[D]").astype(np.int64)
        for each in (months, months + np.timedelta64(1, "M"))
    )
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (day <= following - first)
    hour, minute, second = (_number(clock[:, a : a + 2]) for a in (0, 3, 6))
    on_the_clock = (hour < 24) & (minute < 60) & (second < 60)
    flaws = np.where(exists, np.where(on_the_clock, _Flaw.NONE, _Flaw.NO_CLOCK), no_such_day)
    seconds = (((first + day - 1) * 24 + hour) * 60 + minute) * 60 + second
    return seconds * _SECOND_US, flaws.astype(np.int8)


def _characters(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """ASCII texts of one length as a matrix of their characters."""
    width = len(texts[0].as_py())
    start = texts.offset
    first = int(np.frombuffer(texts.buffers()[1], np.int32)[start])
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    return data[first : first + width * len(texts)].reshape(len(texts), width)


def _number(digits: npt.NDArray[np.uint8]) -> Ints:
    """Decimal digits, a space counting as zero, as numbers."""
    values = np.maximum(digits, ord("0")).astype(np.int64) - ord("0")
    return values @ 10 ** np.arange(digits.shape[1])[::-1]


def _filled(texts: pa.Array, none: str = "") -> pa.Array:
    """Null where a text says that there is nothing."""
    return pc.if_else(pc.equal(texts, none), pa.scalar(None, pa.string()), texts)


_TIME_PARTS = ("old", "iso", "fraction", "zone")
_LETTERS = np.array([1 << 16, 1 << 8, 1], np.int64)
_SORTED_MONTHS = sorted(range(12), key=lambda number: MONTHS[number])
_MONTH_LETTERS = np.array(
    [np.frombuffer(MONTHS[n].encode(), np.uint8) @ _LETTERS for n in _SORTED_MONTHS], np.int64
)
_MONTH_NUMBER = np.array(_SORTED_MONTHS, np.int64) + 1


def parse_syslog(
    column: str,
    year: int | date,
    on_error: OnError | str = OnError.FAIL,
    keeps: str | Sequence[str] = (),
    zone: str = UTC_NAME,
) -> Parse:
    """Read a column of syslog lines, by RFC 3164 or RFC 5424.

    A line becomes `ts` (in UTC), `host`, `program`, `pid`, `message` and `priority`; what it does
    not say is null. What RFC 5424 has beyond these, the message's id and structured data, is passed
    over.

    Args:
        column: The column of texts.
        year: The year of lines that tell none; or the day on which the log ends, for lines of the
            twelve months up to that day.
        on_error: What happens to a line of another form, without a time, or with a date, a time or
            a priority that does not exist: `fail`, `skip`, or `side` (it leaves by the port
            `errors`).
        keeps: Columns to carry along, "*" for all.
        zone: The IANA name of the time zone of lines that tell none, such as `Europe/Berlin`. Of
            the hour that comes twice when clocks are set back, times are those of the first.

    Example:
        >>> step = parse_syslog("line", year=date(2026, 3, 31))
        >>> made = step.grammar.parse(pa.array(["Dec 31 23:59:59 web sshd[7]: Bye"]))
        >>> print(made.columns[0]["ts"][0], made.columns[0]["pid"][0])
        2025-12-31 23:59:59 7
    """
    grammar = Syslog(_last_day(year), required_zone(PARSE_SYSLOG, zone))
    return Parse(column, grammar, SYSLOG, keeps, on_error)


def _last_day(year: Any) -> date:
    if isinstance(year, date):
        return year
    if isinstance(year, int) and not isinstance(year, bool) and 1 <= year <= 9999:
        return date(year, 12, 31)
    raise BuildError(
        PARSE_SYSLOG,
        "the year of the log, or the day it ends on",
        repr(year),
        "give year=2026 or year=date(2026, 3, 31)",
    )
