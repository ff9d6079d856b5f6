from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta

import pyarrow as pa
import pytest

from anabranch.apps.kit.columns import LINES
from anabranch.apps.kit.ssh_log import KINDS, attempts, log_lines
from anabranch.io import generate
from anabranch.operators.parsing.syslog import parse_syslog

LATENESS = timedelta(seconds=10)
MANY = 60_000


def log(rows=2000, seed=0, start=0, year=2026, **properties):
    last = date(year, 12, 31)
    source = generate(log_lines(last, LATENESS, **properties), LINES, rows=start + rows, seed=seed)
    return source.read("generated", start, rows).batch["line"]


def parsed(lines, year=2026):
    made = parse_syslog("line", year).grammar.parse(lines)
    return pa.concat_tables(made.columns), made.bad


def said(message, program="sshd", pam=True):
    found = attempts(pa.array([program], pa.string()), pa.array([message]), pam)
    return tuple(found[name][0].as_py() for name in ("accepted", "user", "rhost"))


@pytest.fixture(scope="module")
def many():
    return parsed(log(MANY))


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Failed password for root from 192.0.2.7 port 4242 ssh2", (False, "root", "192.0.2.7")),
        ("Failed password for invalid user bo from ::1 port 1 ssh2", (False, "bo", "::1")),
        ("Failed none for invalid user  from 192.0.2.7 port 4 ssh2", (False, "", "192.0.2.7")),
        ("Accepted publickey for ana from 10.0.0.1 port 9 ssh2: RSA x", (True, "ana", "10.0.0.1")),
        (
            "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= "
            "rhost=192.0.2.7  user=root",
            (False, "root", "192.0.2.7"),
        ),
        ("authentication failure; logname= uid=0 rhost=192.0.2.7 ", (False, "", "192.0.2.7")),
        ("authentication failure; logname= uid=0 rhost= ", (None, None, None)),
        ("Invalid user bo from 192.0.2.7 port 4242", (None, None, None)),
        ("Connection closed by 192.0.2.7 port 4242 [preauth]", (None, None, None)),
        ("", (None, None, None)),
    ],
)
def test_what_messages_say(message, told):
    assert said(message) == told


@pytest.mark.parametrize(
    "message",
    [
        "Failed password for invalid user x from 6.6.6.6 port 1 ssh2 from 192.0.2.7 port 4 ssh2",
        "authentication failure; ruser= rhost=192.0.2.7  user=x rhost=6.6.6.6",
    ],
)
def test_a_user_name_that_looks_like_a_host_does_not_hide_the_host(message):
    assert said(message)[2] == "192.0.2.7"


def test_only_what_sshd_writes_counts():
    message = "Failed password for root from 192.0.2.7 port 4242 ssh2"
    assert said(message, "sshd-session") == said(message, "sshd") != (None, None, None)
    assert said(message, "logger") == said(message, None) == (None, None, None)


FAILED = "Failed password for root from 192.0.2.7 port 4242 ssh2"
BY_PAM = "logname= uid=0 euid=0 tty=ssh ruser= rhost=192.0.2.7  user=root"


@pytest.mark.parametrize(
    ("message", "n"),
    [
        (FAILED, 1),
        (f"message repeated 5 times: [ {FAILED}]", 5),
        (f"message repeated 2 times: [{FAILED}", 2),
        (f"PAM 1 more authentication failure; {BY_PAM}", 1),
        (f"PAM 5 more authentication failures; {BY_PAM}", 5),
        (f"message repeated 2 times: [ PAM 5 more authentication failures; {BY_PAM}]", 10),
        ("message repeated 2 times: [ Connection closed by 192.0.2.7 port 4242]", 0),
        (f"message repeated 12345 times: [ {FAILED}]", 0),
        (f"message repeated times: [ {FAILED}]", 0),
        ("PAM service(sshd) ignoring max retries; 6 > 3", 0),
        ("Disconnecting: Too many authentication failures for root [preauth]", 0),
    ],
)
def test_a_line_may_tell_of_several_attempts(message, n):
    beside = pa.array([message, FAILED, None])
    found = attempts(pa.array(["sshd"] * 3), beside, pam=True)
    assert found["n"].to_pylist() == [n, 1, 0]
    assert said(message) == ((False, "root", "192.0.2.7") if n else (None, None, None))


def test_failures_told_by_pam_can_be_left_out():
    by_pam = "authentication failure; rhost=192.0.2.7  user=root"
    by_sshd = "Failed password for root from 192.0.2.7 port 4242 ssh2"
    assert said(by_pam, pam=False) == (None, None, None)
    assert said(by_sshd, pam=False) == said(by_pam)


def test_no_messages_tell_of_no_attempts():
    empty = attempts(pa.array([], pa.string()), pa.array([], pa.string()))
    assert [len(column) for column in empty.values()] == [0, 0, 0, 0]


def test_the_log_follows_from_the_seed_and_can_be_read_from_anywhere():
    whole = log(3000, seed=1)
    assert whole.equals(log(3000, seed=1))
    assert not whole.equals(log(3000, seed=2))
    assert whole.slice(2500).equals(log(500, seed=1, start=2500))


def test_shares_add_up():
    assert sum(share for share, _, _ in KINDS) == pytest.approx(1)


def test_one_line_in_a_thousand_is_bad(many):
    _, bad = many
    assert 30 < len(bad) < 90
    assert {why for _, why in bad} == {"no syslog line"}


def test_somebody_tries_to_break_in_about_every_two_seconds(many):
    table, _ = many
    found = attempts(table["program"].combine_chunks(), table["message"].combine_chunks())
    tried = sum(found["n"].to_pylist())
    assert tried / len(table) == pytest.approx(0.87, abs=0.01)
    span = table["ts"][-1].as_py() - table["ts"][0].as_py()
    assert span.total_seconds() / tried == pytest.approx(2, abs=0.1)
    hosts = Counter(found["rhost"].drop_null().to_pylist())
    assert hosts.most_common(1)[0][1] > 400, "some hosts are hot"
    assert sum(1 for n in hosts.values() if n == 1) > 1000, "and many come once"


def test_lines_come_out_of_order_within_the_lateness(many):
    times = many[0]["ts"].to_pylist()
    latest, behind = times[0], []
    for time in times:
        behind.append(latest - time)
        latest = max(latest, time)
    assert timedelta(seconds=5) < max(behind) <= LATENESS
    assert sum(each > timedelta() for each in behind) > MANY / 10


def test_break_ins_are_as_frequent_as_asked_for():
    accepted = [line for line in log(20_000, break_ins=0.01).to_pylist() if "Accepted pass" in line]
    assert 150 < len(accepted) < 250
    assert not any("Accepted pass" in line for line in log(20_000, break_ins=0).to_pylist())


@pytest.mark.parametrize("last", [date(2026, 3, 31), date(2028, 2, 28), date(2028, 2, 29)])
def test_a_log_begins_a_year_before_it_ends(last):
    source = generate(log_lines(last, LATENESS), LINES, rows=2000, seed=0)
    made = parse_syslog("line", last).grammar.parse(source.read("generated", 0, 2000).batch["line"])
    table = pa.concat_tables(made.columns)
    first = table["ts"][0].as_py()
    assert first.date() == date(last.year - 1, last.month % 12 + 1, 1)
    assert table["ts"][-1].as_py() - first < timedelta(hours=1)


def test_lines_of_later_years_say_their_year():
    a_year = int(366 * 86_400 / 1.75)
    table, bad = parsed(log(400, start=a_year, year=2024), 2024)
    assert len(bad) < 5
    assert table["ts"][0].as_py() > datetime(2024, 12, 31, 23, 59)
    assert table["ts"][-1].as_py() > datetime(2025, 1, 1)
    assert log(1, year=2024)[0].as_py().startswith("Jan  1 00:00:00 ")
