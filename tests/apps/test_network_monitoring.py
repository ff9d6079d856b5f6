from __future__ import annotations

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.apps import APPS, network_monitoring
from anabranch.io import memory
from anabranch.planning.regions import regions
from anabranch.testing.sequential import run_sequential
from tests.apps.test_log_watch import UBUNTU, accepted, failed, on_threads, said
from tests.sampling import thorough


def fed(lines, **properties):
    flow = network_monitoring.build(rows=0, **properties)
    return flow.reading({"lines": memory(pa.table({"line": lines}))})


def attackers(*lines, **properties):
    rows = run_sequential(fed(lines, **properties)).rows("out")
    return [(row["rhost"], row["failures"], row["seconds"]) for row in rows]


def test_a_host_that_fails_five_times_in_a_minute_is_an_attacker():
    assert attackers(*(failed(n * 10) for n in range(5))) == [("192.0.2.7", 5, 40)]
    assert attackers(*(failed(n * 10) for n in range(4))) == []


def test_failures_of_two_minutes_do_not_add_up():
    assert attackers(*(failed(n) for n in (57, 58, 59, 60, 61))) == []


def test_hosts_are_counted_apart():
    lines = [failed(n, f"192.0.2.{n % 2}") for n in range(11)]
    assert sorted(attackers(*lines)) == [("192.0.2.0", 6, 10), ("192.0.2.1", 5, 8)]


def test_the_window_says_when_it_began_and_when_the_failures_did():
    (row,) = run_sequential(fed([failed(n) for n in range(70, 75)])).rows("out")
    begin, first, last = (f"{row[name]:%M:%S}" for name in ("window_start", "first", "last"))
    assert (begin, first, last) == ("01:00", "01:10", "01:14")
    assert (row["window_end"] - row["window_start"]).total_seconds() == 60


@pytest.mark.parametrize(
    "line",
    [
        accepted(5),
        said(5, "Invalid user bo from 192.0.2.7 port 4242"),
        said(5, "error: Failed to allocate internet-domain X11 display socket."),
        failed(5).replace("sshd[", "logger["),
        said(5, "").replace("sshd[7]: ", "last message repeated 5 times"),
    ],
)
def test_only_failures_to_log_in_count(line):
    assert attackers(*(failed(n) for n in range(4)), line) == []


def test_what_pam_tells_of_counts_where_it_is_asked_for():
    pam = "pam_unix(sshd:auth): authentication failure; tty=ssh ruser= rhost=192.0.2.7  user=root"
    lines = [said(n, pam) for n in range(5)]
    assert len(attackers(*lines, pam=True)) == 1
    assert attackers(*lines) == []


@pytest.mark.parametrize(("pam", "failures"), [(False, 4), (True, 8)])
def test_each_failure_on_ubuntu_counts_once_and_twice_if_pam_is_asked_for(pam, failures):
    found = attackers(*UBUNTU, pam=pam, failures=2)
    assert found == [("192.0.2.7", failures, 9 if pam else 7)]


def test_a_log_over_new_year_is_read_with_the_day_on_which_it_ends():
    message = failed(0).split(": ", 1)[1]
    lines = [f"Dec 31 23:59:5{n} web sshd[7]: {message}" for n in range(5)]
    lines += [f"Jan  1 00:00:0{n} web sshd[7]: {message}" for n in range(5)]
    rows = run_sequential(fed(lines, year="2026-03-01")).rows("out")
    assert [(row["first"].year, row["failures"]) for row in rows] == [(2025, 5), (2026, 5)]


def test_files_may_be_given_by_the_name_of_the_source(tmp_path):
    (tmp_path / "auth.log").write_text("\n".join(map(failed, range(5))))
    flow = network_monitoring.build(input={"lines": str(tmp_path / "auth.log")})
    assert on_threads(flow)["out"].num_rows == 1


def test_time_counts_and_not_arrival():
    lines = [failed(n) for n in (57, 60, 58, 59, 56, 55)]
    assert attackers(*lines) == [("192.0.2.7", 5, 4)]


def test_what_comes_too_late_or_does_not_parse_is_set_aside():
    lines = [failed(100), failed(89, user="late"), "Feb 30 12:00:00 web sshd[7]: Failed x"]
    ran = run_sequential(fed(lines))
    assert [row["user"] for row in ran.rows("late")] == ["late"]
    assert [row["line"] for row in ran.rows("lines.bad")] == lines[2:]


def test_regions_are_those_of_the_paper():
    found = {r.steps: r.kind.value for r in regions(network_monitoring.build())}
    assert found["FailureWindow", "CutOff", "Diff"] == "partitioned"
    stateless = [step for steps, kind in found.items() if kind == "stateless" for step in steps]
    assert stateless == ["AuthFailureFilter", "Syslog", "FailureParser"]


def test_one_host_with_most_of_the_failures():
    hot = [failed(n // 50) for n in range(2700)]
    cold = [failed(n // 6, f"198.51.100.{n % 100}", "admin") for n in range(300)]
    found = on_threads(fed(sorted([*hot, *cold])))["out"]
    assert [(r["rhost"], r["failures"]) for r in found.to_pylist()] == [("192.0.2.7", 2700)]


def test_every_host_may_come_once():
    lines = [failed(n // 1000, f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(50_000)]
    found = on_threads(fed(lines, failures=1))["out"]
    assert found.num_rows == 50_000


@thorough
def test_it_does_not_matter_how_it_is_run():
    flow = network_monitoring.build(rows=70, failures=3)
    assert len(run_sequential(flow).rows("out")) > 3
    report = ab.check(flow, cases=12, rows=70, processes=0)
    assert report.ok, report


def test_files_give_what_the_same_lines_give(tmp_path):
    made = network_monitoring.build(rows=20_000, seed=5)
    lines = made.graph.steps["lines"].body.source.read("generated", 0, 20_000).batch["line"]
    (tmp_path / "auth.log").write_text("".join(f"{line}\n" for line in lines.to_pylist()))
    expected = on_threads(made)
    found = on_threads(network_monitoring.build(input=str(tmp_path / "*.log")))
    assert expected["out"].num_rows > 300
    assert expected["lines.bad"].num_rows > 0
    assert found == expected


def test_an_empty_log_has_no_attackers(tmp_path):
    (tmp_path / "auth.log").write_text("")
    found = on_threads(network_monitoring.build(input=str(tmp_path)))
    assert {name: table.num_rows for name, table in found.items()} == dict.fromkeys(found, 0)
    assert str(network_monitoring.Summary.of(found)) == "0 hosts tried to break in:"


def test_the_summary_names_those_that_failed_most():
    lines = [failed(n // 3, f"192.0.2.{n % 3}") for n in range(40)] + [failed(60)] * 14
    found = on_threads(fed(lines))
    assert str(network_monitoring.Summary.of(found)).splitlines()[1:] == [
        "  192.0.2.0  14 failures in 1 windows",
        "  192.0.2.7  14 failures in 1 windows",
        "  192.0.2.1  13 failures in 1 windows",
        "  192.0.2.2  13 failures in 1 windows",
    ]


def test_it_is_known_by_name():
    assert APPS["network-monitoring"].module is network_monitoring
