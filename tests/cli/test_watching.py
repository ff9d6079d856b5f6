"""`anabranch run --journal --dashboard --metrics`: who else hears a run."""

from __future__ import annotations

import json
import re
import socket
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import anabranch.cli.running
from anabranch.cli.ports import with_ports
from anabranch.cli.running import WatchOptions, watching
from anabranch.events import Observed, RunEnded, RunStarted
from anabranch.view.journal import read_journal
from anabranch.view.metrics import Metrics
from anabranch.view.web import DEFAULT_PORT

RUN = ("run", "word-count", "--engine", "local", "--policy", "none", "--set", "rows=3000")


def test_a_journal_holds_the_run_and_the_json_stays_clean(command_line, tmp_path):
    ran = command_line(*RUN, "--json", "--journal", tmp_path / "run.jsonl")
    events = list(read_journal(tmp_path / "run.jsonl"))
    assert [type(events[0]), type(events[-1])] == [RunStarted, RunEnded]
    seen = sum(event.observation.rows_in for event in events if isinstance(event, Observed))
    assert seen == events[-1].rows_in == json.loads(ran.out)["rows_in"] == 3000


def test_a_journal_that_cannot_be_written_is_refused_before_anything_runs(command_line, tmp_path):
    ran = command_line(*RUN, "--journal", tmp_path / "no" / "run.jsonl")
    assert (ran.code, ran.out) == (2, "")
    assert "expected a file that can be written, got No such file or directory" in ran.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_costs_the_journal_and_not_the_result(command_line):
    ran = command_line(*RUN, "--json", "--journal", "/dev/full")
    assert (ran.code, json.loads(ran.out)["rows_in"]) == (0, 3000)
    (line,) = [each for each in ran.err.splitlines() if "/dev/full" in each]
    assert re.fullmatch(
        r"the journal /dev/full lacks the last \d+ events: No space left on device", line
    )


def test_a_file_that_is_no_journal_is_left_alone(command_line, tmp_path):
    (tmp_path / "notes.txt").write_text("dear diary\n")
    ran = command_line(*RUN, "--journal", tmp_path / "notes.txt")
    assert (ran.code, ran.out) == (2, "")
    assert "got dear diary" in ran.err
    assert (tmp_path / "notes.txt").read_text() == "dear diary\n"


def test_a_port_that_is_taken_does_not_cost_an_old_journal(command_line, tmp_path):
    command_line(*RUN, "--json", "--journal", tmp_path / "run.jsonl")
    before = (tmp_path / "run.jsonl").read_text()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = command_line(*RUN, "--metrics", port, "--journal", tmp_path / "run.jsonl")
    assert ran.code == 2
    assert (tmp_path / "run.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("options", "listens"),
    [
        ((), "127.0.0.1"),
        (("--address", "0.0.0.0"), "127.0.0.1"),
        (("--metrics-address", "0.0.0.0"), "0.0.0.0"),
    ],
)
def test_the_address_of_the_page_is_not_that_of_the_metrics(
    command_line, monkeypatch, options, listens
):
    asked = []
    serve = Metrics.serve

    def served(metrics, port, address):
        asked.append(address)
        return serve(metrics, port, "127.0.0.1")

    monkeypatch.setattr(Metrics, "serve", served)
    command_line(*RUN, "--metrics", "0", *options, "--json")
    assert asked == [listens]


def test_page_and_metrics_are_there_while_it_runs_and_gone_afterwards(command_line, monkeypatch):
    """Asked for when the run has been waited for, and before anything is closed."""
    told, texts, wait = threading.Event(), {}, anabranch.cli.running.wait_for

    def waited(handle, seconds):
        finished = wait(handle, seconds)
        for name, url in addresses.items():
            texts[name] = urlopen(url, timeout=30).read().decode()
        told.set()
        return finished

    addresses = {}

    def echo(text, err=False):
        found = re.search(r"http://[\d.:]+/\S*", text)
        if found and err:
            addresses["metrics" if "Prometheus" in text else "page"] = found.group()

    monkeypatch.setattr(anabranch.cli.running, "wait_for", waited)
    monkeypatch.setattr("anabranch.cli.running.typer.echo", echo)
    command_line(*RUN, "--dashboard", "0", "--metrics", "0", "--json")
    assert told.is_set()
    assert "<!doctype html>" in texts["page"].lower()
    assert 'anabranch_read_rows_total{flow="word-count",source="lines"} 3000.0' in texts["metrics"]
    for url in addresses.values():
        with pytest.raises(OSError, match="refused"):
            urlopen(url, timeout=30)


def test_a_page_that_goes_with_its_run_says_how_to_see_it_again(command_line, tmp_path):
    ran = command_line(*RUN, "--json", "--dashboard", "0")
    assert "the page is gone; with --journal FILE it could be seen again" in ran.err
    path = tmp_path / "my run.jsonl"
    ran = command_line(*RUN, "--json", "--dashboard", "0", "--journal", path)
    assert f"see it again with: anabranch view '{path}'" in ran.err
    ran = command_line(*RUN, "--json", "--journal", path)
    assert "see it again" not in ran.err  # there was no page


def test_a_page_may_be_told_to_change_nothing():
    for allowed, status in ((True, 409), (False, 403)):
        with watching(WatchOptions(dashboard=0, controls=allowed)) as watchers:
            url = watchers.page.url + "api/adaptation"
            headers = {"Content-Type": "application/json", "X-Anabranch": "1"}
            asked = Request(url, b'{"paused": true}', headers)
            with pytest.raises(HTTPError) as refused:
                urlopen(asked, timeout=30)
        assert refused.value.code == status
        refused.value.close()


def test_a_port_that_is_taken_is_said(command_line):
    with watching(WatchOptions(dashboard=0)) as watchers:
        port = watchers.page.url.rsplit(":", 1)[1].strip("/")
        ran = command_line(*RUN, "--dashboard", port)
    assert ran.code == 2
    assert "a port that is free" in ran.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--dashboard"], ["--dashboard", str(DEFAULT_PORT)]),
        (["--metrics", "--json"], ["--metrics", "9464", "--json"]),
        (["--dashboard", "0", "--metrics"], ["--dashboard", "0", "--metrics", "9464"]),
        (["--input", "--dashboard.csv"], ["--input", "--dashboard.csv"]),
    ],
)
def test_a_port_may_be_left_out(given, meant):
    assert with_ports(["run", "x", *given]) == ["run", "x", *meant]
