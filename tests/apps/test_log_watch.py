from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.apps import APPS, log_watch
from anabranch.errors import BuildError
from anabranch.flow import Stream
from anabranch.graph import Output, Role
from anabranch.io import collect, memory
from anabranch.operators.parsing.syslog import MONTHS
from anabranch.planning.regions import regions
from anabranch.testing.sequential import run_sequential
from tests.sampling import thorough

START = datetime(2026, 3, 4, 12)
CHAIN = ["RawLines", "Lines", "ParsedLines", "RawEvents", "Events", "Range", "Cutoff"]
CHAIN += ["RealTime", "Breakins", "out"]


def said(second, message):
    at = START + timedelta(seconds=second)
    return f"{MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S} web sshd[7]: {message}"


def failed(second, host="192.0.2.7", user="root"):
    return said(second, f"Failed password for {user} from {host} port 4242 ssh2")


def accepted(second, host="192.0.2.7", user="root"):
    return said(second, f"Accepted password for {user} from {host} port 4242 ssh2")


def watched(*lines, **properties):
    flow = log_watch.build(rows=0, **properties)
    return run_sequential(flow.reading({"RawLines": memory(pa.table({"line": lines}))}))


def break_ins(*lines, **properties):
    rows = watched(*lines, **properties).rows("out")
    return [(row["user"], row["seconds"], row["bursts"], row["break_in"]) for row in rows]


def on_threads(flow, plan=None):
    """What the sinks get on the local engine, which is faster than one tuple at a time."""
    sinks = {name: collect() for name in flow.names(Role.SINK)}
    ab.run(flow.writing(sinks), plan=plan, engine="local", policy="none")
    return {name: sink.table() for name, sink in sinks.items()}


def test_a_login_after_five_failures_is_a_break_in():
    lines = [*(failed(n * 10) for n in range(5)), accepted(60)]
    (row,) = watched(*lines).rows("out")
    assert row == {
        "ts": START + timedelta(seconds=60),
        "user": "root",
        "rhost": "192.0.2.7",
        "seconds": 60,
        "bursts": 1,
        "break_in": 1,
    }


def test_four_failures_are_not_enough():
    assert break_ins(*(failed(n) for n in range(4)), accepted(9)) == []


def test_failures_of_another_host_do_not_count():
    lines = [*(failed(n) for n in range(4)), failed(5, "198.51.100.1"), accepted(9)]
    assert break_ins(*lines) == []


@pytest.mark.parametrize(("second", "found"), [(300, 1), (301, 0)])
def test_the_fifth_failure_from_the_last_must_not_be_too_long_ago(second, found):
    assert len(break_ins(*(failed(n * 10) for n in range(5)), accepted(second))) == found


def test_the_users_of_the_failures_need_not_be_the_one_that_was_let_in():
    lines = [*(failed(n, user=f"guess{n}") for n in range(5)), accepted(9, user="ana")]
    assert break_ins(*lines) == [("ana", 9, 0, 1)]


def test_bursts_and_break_ins_are_counted_by_user():
    burst = [failed(n) for n in range(10)]
    slow = [failed(1000 * n, "198.51.100.1") for n in range(1, 6)]
    lines = [*burst, accepted(11), accepted(12, user="ana"), accepted(13), *slow]
    found = break_ins(*lines, *(failed(6000 + n) for n in range(5)), accepted(6010))
    assert found == [("root", 6, 2, 1), ("ana", 7, 0, 1), ("root", 8, 2, 2), ("root", 10, 3, 3)]


def test_time_counts_and_not_arrival_but_lines_of_a_second_keep_their_order():
    lines = [failed(0), failed(1), failed(4), accepted(5), failed(2), failed(3)]
    assert len(break_ins(*lines)) == 1
    assert len(break_ins(*[failed(0)] * 5, accepted(0))) == 1
    assert break_ins(accepted(0), *[failed(0)] * 5) == []


def test_what_comes_too_late_is_set_aside():
    ran = watched(failed(100), failed(89, user="late"), failed(90))
    assert [row["user"] for row in ran.rows("late")] == ["late"]


def test_bad_lines_are_set_aside_with_the_reason():
    lines = ["", "Mar  4 12:0", "Feb 30 12:00:00 web sshd[7]: x", *map(failed, range(5))]
    ran = watched(*lines, accepted(6))
    bad = ran.rows("RawLines.bad")
    assert [row["line"] for row in bad] == lines[:3]
    assert "no such day" in bad[2]["error"]
    assert len(ran.rows("out")) == 1


def test_what_pam_tells_of_counts_where_it_is_asked_for():
    pam = "pam_unix(sshd:auth): authentication failure; tty=ssh ruser= rhost=192.0.2.7  user=root"
    lines = [*(said(n, pam) for n in range(5)), accepted(6)]
    assert len(break_ins(*lines, pam=True)) == 1
    assert break_ins(*lines) == []


UBUNTU = [
    said(0, "pam_unix(sshd:auth): authentication failure; ruser= rhost=192.0.2.7  user=root"),
    failed(2),
    said(9, "message repeated 3 times: [ Failed password for root from 192.0.2.7 port 4242 ssh2]"),
    said(9, "PAM 3 more authentication failures; ruser= rhost=192.0.2.7  user=root"),
]
"""One connection, as a server with PAM and rsyslog tells of it: four failures."""


@pytest.mark.parametrize("pam", [False, True])
def test_each_failure_on_ubuntu_counts_once_and_twice_if_pam_is_asked_for(pam):
    (row,) = watched(*UBUNTU, accepted(12), pam=pam, failures=4).rows("out")
    assert (row["seconds"], row["bursts"]) == ((3, 2) if pam else (10, 1))
    assert break_ins(*UBUNTU, accepted(12), failures=5) == []


@pytest.mark.parametrize("year", ["2026-03-01", date(2026, 3, 1)])
def test_a_log_over_new_year_is_one_log(year):
    lines = [f"Dec 31 23:59:5{n} web sshd[7]: {failed(0).split(': ', 1)[1]}" for n in range(5)]
    lines.append(f"Jan  1 00:00:09 web sshd[7]: {accepted(0).split(': ', 1)[1]}")
    ran = watched(*lines, year=year)
    assert [(row["ts"], row["seconds"]) for row in ran.rows("out")] == [
        (datetime(2026, 1, 1, 0, 0, 9), 19)
    ]
    assert ran.rows("late") == []
    (row,) = watched(*lines, year=2026).rows("late")
    assert row["accepted"], "it is the first of January of the same year"


def test_the_day_on_which_a_log_ends_comes_from_the_command_line(command_line, tmp_path):
    (tmp_path / "auth.log").write_text("\n".join([*map(failed, range(5)), accepted(9)]))
    ran = command_line(
        "run", "log-watch", "--engine", "local", "--policy", "none",
        *("--input", f"RawLines={tmp_path / 'auth.log'}", "--set", "year=2025-06-30"),
    )  # fmt: skip
    assert "2025-03-04 12:00:09  root from 192.0.2.7" in ran.out


@pytest.mark.parametrize("year", ["26", "2026-02-30", "March", 0, True, "1969"])
def test_a_year_that_is_none_is_refused(year):
    with pytest.raises(BuildError, match="the day on which it ends"):
        log_watch.build(year=year)


def test_a_line_of_a_far_future_does_not_make_all_others_late():
    future = "9999-12-31T23:59:59Z web sshd[7]: Failed password for x from ::1 port 1 ssh2"
    ran = watched(failed(0), future, *(failed(n) for n in range(1, 5)), accepted(6))
    assert len(ran.rows("out")) == 1
    assert [row["rhost"] for row in ran.rows("late")] == ["::1"]


def test_fewer_than_one_failure_is_refused():
    with pytest.raises(BuildError, match="failures: a whole number of at least 1"):
        log_watch.build(failures=0)


def test_steps_and_regions_are_those_of_the_paper():
    flow = log_watch.build()
    assert [step for step in flow.resolve().order if step not in ("RawLines.bad", "late")] == CHAIN
    found = {step: (r.kind.value, r.key) for r in regions(flow) for step in r.steps}
    assert found["Range"] == found["Cutoff"] == found["RealTime"] == ("partitioned", ("rhost",))
    assert found["Breakins"] == ("partitioned", ("user",))
    assert {found[step][0] for step in ("Lines", "ParsedLines", "RawEvents")} == {"stateless"}


def test_selectivities_come_near_those_of_the_paper():
    flow = log_watch.build(rows=200_000, seed=3)
    for step in CHAIN[:-1]:
        Stream(flow, Output(step)).sink(f"after {step}", collect())
    rows = {name: table.num_rows for name, table in on_threads(flow).items()}
    after = [rows[f"after {step}"] for step in CHAIN[:-1]]
    selectivity = dict(zip(CHAIN[1:-1], (b / a for a, b in pairwise(after)), strict=True))
    assert selectivity["Lines"] == pytest.approx(1, abs=0.002)
    assert selectivity["ParsedLines"] == selectivity["RealTime"] == 1
    assert selectivity["RawEvents"] == pytest.approx(0.87, abs=0.005)
    assert selectivity["Events"] == pytest.approx(1, abs=0.0001)
    assert selectivity["Range"] == pytest.approx(0.20, abs=0.02)
    assert selectivity["Cutoff"] == pytest.approx(0.99, abs=0.01)
    assert selectivity["Breakins"] == pytest.approx(0.00027, rel=0.6)


@pytest.mark.parametrize("batch_rows", [7, 100, 65_536])
def test_one_host_with_most_of_the_failures(batch_rows):
    hot = [failed(n // 10) for n in range(900)]
    cold = [failed(n, f"198.51.100.{n}", "admin") for n in range(90)]
    lines = [*sorted([*hot, *cold]), accepted(95), accepted(95, "198.51.100.1")]
    table = pa.table({"line": lines})
    flow = log_watch.build(rows=0).reading({"RawLines": memory(table)})
    plan = ab.plan(flow).with_source("RawLines", batch_rows=batch_rows)
    (row,) = on_threads(flow, plan)["out"].to_pylist()
    assert (row["rhost"], row["seconds"], row["bursts"]) == ("192.0.2.7", 6, 180)


@thorough
def test_it_does_not_matter_how_it_is_run():
    flow = log_watch.build(rows=70, break_ins=0.15)
    assert len(run_sequential(flow).rows("out")) > 3
    report = ab.check(flow, cases=12, rows=70, processes=0)
    assert report.ok, report


@pytest.mark.parametrize("ending", ["log", "log.gz", "anything"])
def test_files_give_what_the_same_lines_give(tmp_path, ending):
    properties = {"break_ins": 0.02, "seed": 5}
    made = log_watch.build(rows=3000, **properties)
    lines = made.graph.steps["RawLines"].body.source.read("generated", 0, 3000).batch["line"]
    with pa.output_stream(tmp_path / f"auth.{ending}") as stream:
        stream.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())
    read = log_watch.build(input=str(tmp_path / f"auth.{ending}"))
    expected, found = on_threads(made), on_threads(read)
    assert expected["out"].num_rows > 30
    assert expected["RawLines.bad"].num_rows > 0
    assert found == expected


def test_bytes_that_are_no_text_harm_only_their_line(tmp_path):
    hostile = failed(0, user="?").encode().replace(b"?", b"\xff\xfe")
    lines = [
        hostile,
        b"\x80\x00\xff",
        *(failed(n).encode() for n in range(4)),
        accepted(6).encode(),
    ]
    (tmp_path / "auth.log").write_bytes(b"\n".join(lines))
    found = on_threads(log_watch.build(input=str(tmp_path)))
    assert found["out"].num_rows == 1
    assert found["RawLines.bad"]["line"].to_pylist() == ["\ufffd\x00\ufffd"]


def test_an_empty_log_has_no_break_ins(tmp_path):
    (tmp_path / "auth.log").write_text("")
    found = on_threads(log_watch.build(input=str(tmp_path)))
    assert {name: table.num_rows for name, table in found.items()} == dict.fromkeys(found, 0)
    assert str(log_watch.Summary.of(found)) == "0 break-ins, at 0 users:"


def test_the_summary_names_user_host_and_time():
    found = {"out": watched(*(failed(n) for n in range(5)), accepted(9)).outputs["out"]}
    assert str(log_watch.Summary.of(found)).splitlines()[1:] == [
        "  2026-03-04 12:00:09  root from 192.0.2.7, which failed for 9 s; 1 bursts before"
    ]


def test_it_is_known_by_name():
    assert APPS["log-watch"].module is log_watch
