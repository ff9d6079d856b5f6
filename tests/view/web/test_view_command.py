"""`anabranch view`: where the page is, what it shows, how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from anabranch.events import RunEnded
from anabranch.view.journal import to_object
from tests.processes import start_process
from tests.view.web.made import small_change, small_seen, small_start


@pytest.fixture
def journal(tmp_path):
    events = [small_start(), small_seen(1.0), small_change(), RunEnded(4.0, 1000, 500, ended=True)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(to_object(event)) + "\n" for event in events))
    return path


def viewed(journal):
    """The line that says where it is, what the page gets, and the other lines."""
    command = [sys.executable, "-m", "anabranch.cli", "view", str(journal), "--port", "0"]
    with start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        line = run.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        with urllib.request.urlopen(url + "api/history", timeout=30) as answer:
            shown = json.load(answer)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 0
    assert "Traceback" not in errors
    return line, shown, errors


@pytest.mark.parametrize("cut", [0, 30])
def test_a_journal_is_shown_until_the_user_has_seen_enough(journal, cut):
    text = journal.read_text()
    journal.write_text(text[: len(text) - cut])
    line, shown, errors = viewed(journal)
    assert "could not be shown" not in errors
    assert (shown["journal"], shown["controls"]) == ("run.jsonl", False)
    assert shown["plan"]["replicas"]["count"] == 2
    assert (shown["ended"] is None) == bool(cut)
    assert ("(it ends before the run)" in line) == bool(cut)


def test_one_bad_event_costs_no_other(journal):
    lines = journal.read_text().splitlines()
    bad = json.loads(lines[2]) | {"after": "{}"}
    journal.write_text("\n".join([*lines[:2], json.dumps(bad), *lines[2:]]) + "\n")
    line, shown, errors = viewed(journal)
    assert "(it ends before the run)" not in line
    assert (shown["rows_in"], shown["plan"]["replicas"]["count"]) == (1000, 2)
    assert [entry["who"] for entry in shown["entries"]] == ["plan 2"]
    (told,) = [each for each in errors.splitlines() if "could not be shown" in each]
    assert told.startswith("1 event could not be shown: ")
    assert "JSON with flow" in told


def test_a_file_that_is_no_journal_is_named(command_line, tmp_path):
    (tmp_path / "other").write_text("nothing\n")
    for name, reason in (("other", "a line of JSON"), ("none", "No such file"), (".", "director")):
        found = command_line("view", tmp_path / name, "--port", 0)
        assert (found.code, reason in found.err) == (2, True)


def test_a_journal_with_a_plan_that_is_none_is_refused(command_line, tmp_path, journal):
    lines = journal.read_text().splitlines()
    first = json.loads(lines[0]) | {"plan": "{}"}
    (tmp_path / "bad").write_text(json.dumps(first) + "\n")
    found = command_line("view", tmp_path / "bad", "--port", 0)
    assert (found.code, "JSON with flow" in found.err) == (2, True)
