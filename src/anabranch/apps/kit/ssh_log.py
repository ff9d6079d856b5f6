"""What SSH servers write into the system log: reading attempts to log in, and generating lines.

The generated log is that of three servers on the open internet, collected on one machine. Somebody
tries to break in about every two seconds: a few hosts at a time, which try one password after
another for half an hour, and many that come once. One server's lines arrive late.

A failure may be told of more than once, and a line may tell of several:

- Where sshd asks PAM, which is so on Debian and Ubuntu unless changed, PAM writes of a failure and
  then sshd does. So what PAM says does not count here unless it is asked for: that is for logs
  which hold PAM's lines alone, as /var/log/messages does where sshd writes elsewhere.
- PAM writes of the first failure of a connection, and of all others together when it ends: `PAM 2
  more authentication failures`.
- rsyslog, as Ubuntu sets it up, writes `message repeated 5 times: [ … ]` for five more lines that
  are like the one before. When each of them was written is lost; they count at the time of that
  line. Other loggers write `last message repeated 5 times`, which does not say what was repeated:
  that counts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.operators.parsing.syslog import MONTHS

# A user's name is whatever somebody typed, so it may look like the rest of the line: `.*` is greedy
# and the last `from` counts; PAM writes the name last, so there the first `rhost=` does.
ATTEMPT = (
    r"^(?:(?P<outcome>Accepted|Failed) \S+ for (?:invalid user )?(?P<user>.*)"
    r" from (?P<rhost>\S+) port \d+"
    r"|(?:pam_unix\(sshd:auth\): |PAM (?P<more>\d{1,4}) more )?authentication failures?;"
    r".*? rhost=(?P<pam_rhost>\S+)(?: +user=(?P<pam_user>.*))?)"
)
_REPEATED = "message repeated "
REPEATED = rf"^{_REPEATED}(?P<times>\d{{1,4}}) times: \[ ?(?P<said>.*?)\]?$"


def attempts(program: pa.Array, message: pa.Array, pam: bool = False) -> dict[str, pa.Array]:
    """Whether a login was accepted, whose it was, from where, and of how many a line tells.

    Where it tells of none, that number is 0 and all else is null.

    Args:
        program: Who wrote the messages.
        message: What sshd, or PAM for it, said.
        pam: Whether failures that PAM tells of count.

    Example:
        >>> said = "Failed password for invalid user guest from 192.0.2.7 port 4242 ssh2"
        >>> found = attempts(pa.array(["sshd"]), pa.array([f"message repeated 3 times: [ {said}]"]))
        >>> {name: column[0].as_py() for name, column in found.items()}
        {'accepted': False, 'user': 'guest', 'rhost': '192.0.2.7', 'n': 3}
    """
    said, times = _once(message)
    found = pc.extract_regex(said, ATTEMPT)
    by_pam = pc.equal(found.field("outcome"), "")
    told = pc.and_(found.is_valid(), pc.fill_null(pc.starts_with(program, "sshd"), False))
    if not pam:
        told = pc.and_(told, pc.fill_null(pc.invert(by_pam), False))
    more = pc.if_else(pc.equal(found.field("more"), ""), "1", found.field("more"))
    columns = {
        "accepted": pc.equal(found.field("outcome"), "Accepted"),
        "user": pc.if_else(by_pam, found.field("pam_user"), found.field("user")),
        "rhost": pc.if_else(by_pam, found.field("pam_rhost"), found.field("rhost")),
    }
    n = pc.multiply(times, more.cast(pa.int64()))
    return {
        **{name: pc.if_else(told, each, None) for name, each in columns.items()},
        "n": pc.if_else(told, n, 0),
    }


def _once(message: pa.Array) -> tuple[pa.Array, pa.Array]:
    """What rsyslog says was repeated, or the message itself; and how many times it was said."""
    if not pc.any(pc.starts_with(message, _REPEATED)).as_py():
        return message, pa.scalar(1)
    found = pc.extract_regex(message, REPEATED)
    times = pc.if_else(found.is_valid(), found.field("times"), "1").cast(pa.int64())
    return pc.if_else(found.is_valid(), found.field("said"), message), times


SECONDS_A_LINE = 7 / 4
LAST_DAY = date(2026, 12, 31)
"""Of a generated log, unless another one is asked for."""

BREAK_INS = 1 / 21_000
"""Of all lines: several in the twelve hours of Pipelined Fission's log."""

# What is written, and which share of the lines says it: 100 lines tell of 87 attempts. PAM has few,
# as if most servers did without: with each failure told twice, at most half of the lines would be.
_FAILED = "Failed password for {user} from {rhost} port {port} ssh2"
_PAM = "logname= uid=0 euid=0 tty=ssh ruser= rhost={rhost}  user={user}"
_BROKEN_IN = "Accepted password for {user} from {rhost} port {port} ssh2"
KINDS = (
    (0.565, "sshd", _FAILED),
    (0.270, "sshd", "Failed password for invalid user {guess} from {rhost} port {port} ssh2"),
    (0.010, "sshd", f"message repeated {{few}} times: [ {_FAILED}]"),
    (0.018, "sshd", f"pam_unix(sshd:auth): authentication failure; {_PAM}"),
    (0.002, "sshd", f"PAM {{few}} more authentication failures; {_PAM}"),
    (0.004, "sshd", "Accepted publickey for {member} from {office} port {port} ssh2: RSA SHA256:x"),
    (0.001, "sshd", "Failed password for {member} from {office} port {port} ssh2"),
    (
        0.040,
        "sshd",
        "Connection closed by authenticating user {user} {rhost} port {port} [preauth]",
    ),
    (0.030, "sshd", "Received disconnect from {rhost} port {port}:11: Bye Bye [preauth]"),
    (0.025, "sshd", "Invalid user {guess} from {rhost} port {port}"),
    (0.005, "sshd", "pam_unix(sshd:session): session opened for user {member} by (uid=0)"),
    (0.019, "CRON", "(root) CMD (run-parts --report /etc/cron.hourly)"),
    (0.010, "systemd", "Started Session {port} of user {member}."),
    (0.0005, "sshd", _FAILED),  # of these, only the beginning arrives
    (0.0005, "sshd", _FAILED),  # and of these, only the end
)
_CUTS = {len(KINDS) - 2: slice(0, 11), len(KINDS) - 1: slice(11, None)}
_SHARES = np.cumsum([share for share, _, _ in KINDS])

SERVERS = pa.array(["web", "db", "mail"])
_SLOW = 2
USERS = pa.array(["root"] * 12 + ["admin", "postgres", "git", "www-data", "backup", "nobody"])
GUESSES = pa.array(["test", "user", "guest", "oracle", "ubuntu", "pi", "mysql", "ftp", "Jürgen"])
MEMBERS = pa.array(["ana", "ben", "carla", "dmitri", "emma", "farid", "grace"])
OFFICES = 500
AT_A_TIME, HOT, COLD = 4, 4_000, 1 << 18
_OF_THE_FEW = np.cumsum([0.4, 0.3, 0.2])
_RARELY = 0.04
_NUMBERS = pa.array([str(n) for n in range(1 << 16)])
_CLOCK = pa.array([f"{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}" for s in range(86_400)])


def log_lines(last: date, lateness: timedelta, break_ins: float = BREAK_INS) -> Any:
    """A generator of log lines of the twelve months up to a day, and of the time after it.

    Args:
        last: That day. Lines of later days say their year, as the older form cannot.
        lateness: How long the lines of one server may take to arrive.
        break_ins: Which share of the lines tells that one of the attackers was let in.
    """
    start = _year_before(last)
    slowest = int(lateness.total_seconds())

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
        n = len(index)
        kinds = np.searchsorted(_SHARES, rng.random(n) * _SHARES[-1], side="right")
        kinds[rng.random(n) < break_ins] = len(KINDS)
        servers = rng.integers(0, len(SERVERS), n)
        seconds = (index * SECONDS_A_LINE).astype(np.int64)
        delays = np.where(servers == _SLOW, rng.integers(0, slowest, n, endpoint=True), 0)
        draw = {name: values(rng, n) for name, values in _DRAWS.items()}
        heads = [
            _stamps(start + np.maximum(seconds - delays, 0), last),
            SERVERS.take(pa.array(servers)),
        ]
        return {"line": _lines(kinds, heads, draw)}

    return make


def _lines(kinds: Any, heads: list[pa.Array], draw: Mapping[str, pa.Array]) -> pa.Array:
    """Lines of all kinds, filled in kind by kind."""
    order = np.argsort(kinds, kind="stable")
    counts = np.bincount(kinds, minlength=len(_TEMPLATES))
    parts = []
    for kind, rows in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        if len(rows):
            chosen = pa.array(rows)
            slots = [draw[p].take(chosen) if p in draw else p for p in _TEMPLATES[kind]]
            head = [each.take(chosen) for each in heads]
            lines = pc.binary_join_element_wise(head[0], " ", head[1], " ", *slots, "")
            parts.append(_cut(lines, _CUTS[kind]) if kind in _CUTS else lines)
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order)))


def _cut(lines: pa.Array, part: slice) -> pa.Array:
    return pc.utf8_slice_codeunits(lines, part.start, part.stop)


def _year_before(last: date) -> Any:
    """When the twelve months up to a day begin."""
    after = last + timedelta(days=1)
    leap = (after.month, after.day) == (2, 29)
    start = date(after.year - 1, 3, 1) if leap else after.replace(year=after.year - 1)
    return np.datetime64(start, "s")


def _stamps(moments: Any, last: date) -> pa.Array:
    """Mmm dd hh:mm:ss, and by RFC 3339 after the last day."""
    days = moments.astype("datetime64[D]")
    distinct, of_row = np.unique(days, return_inverse=True)
    texts = [_day(day.item(), last) for day in distinct]
    clock = _CLOCK.take(pa.array((moments - days).astype(np.int64)))
    before, behind = (pa.array([text[end] for text in texts]) for end in (0, 1))
    rows = pa.array(of_row.astype(np.int64))
    return pc.binary_join_element_wise(before.take(rows), clock, behind.take(rows), "")


def _day(day: date, last: date) -> tuple[str, str]:
    """What stands before and behind the time of a day."""
    if day <= last:
        return f"{MONTHS[day.month - 1]} {day.day:2} ", ""
    return f"{day:%Y-%m-%d}T", "Z"


def _attackers(rng: np.random.Generator, n: int) -> pa.Array:
    """A few hosts that try all the time, and others that are seen once."""
    few = rng.integers(0, HOT, AT_A_TIME)
    hosts = few[np.searchsorted(_OF_THE_FEW, rng.random(n))]
    hosts = np.where(rng.random(n) < _RARELY, HOT + rng.integers(0, COLD, n), hosts)
    return _addresses(hosts * 2_654_435_761 % (1 << 32), 11, 200)


def _addresses(numbers: Any, lowest: int, networks: int) -> pa.Array:
    parts = [lowest + (numbers >> 24) % networks, *((numbers >> s) % 256 for s in (16, 8, 0))]
    return pc.binary_join_element_wise(*(_NUMBERS.take(pa.array(p)) for p in parts), ".")


def _one_of(values: pa.Array) -> Callable[[np.random.Generator, int], pa.Array]:
    return lambda rng, n: values.take(pa.array(rng.integers(0, len(values), n)))


_DRAWS = {
    "rhost": _attackers,
    "user": _one_of(USERS),
    "guess": _one_of(GUESSES),
    "member": _one_of(MEMBERS),
    "office": lambda rng, n: _addresses(rng.integers(0, OFFICES, n), 10, 1),
    "port": _one_of(_NUMBERS[1024:]),
    "pid": _one_of(_NUMBERS[300:]),
    "few": _one_of(_NUMBERS[2:5]),
}
_TEMPLATES = [
    re.split(r"[{}]", f"{program}[{{pid}}]: {said}")
    for _, program, said in (*KINDS, (0.0, "sshd", _BROKEN_IN))
]
