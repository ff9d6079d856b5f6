"""SIGTERM, as service managers send it, ends a command as Ctrl-C does: in order, with a word."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.cli.exits import Terminated, terminable
from anabranch.events import RunEnded
from anabranch.view.journal import read_journal
from tests.processes import start_process

PATIENCE_S = 60

ENDLESS = """
import sys

import anabranch as ab


def build():
    def make(rng, index):
        if index[0] == 1024:  # one write, as two readers may pass here
            sys.stderr.write("reading\\n")
            sys.stderr.flush()
        return {"x": index}

    flow = ab.Flow("endless")
    source = ab.generate(make, "x: int64", rate_per_s=5000)
    flow.source("s", source).sink("out", ab.collect())
    return flow


def slow():
    import time

    sys.stderr.write("reading\\n")
    sys.stderr.flush()
    time.sleep(600)
"""


@contextmanager
def started(
    folder: Path, *arguments: object, ignores_sigint: bool = False, start_new_session: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A command that has begun to read."""
    (folder / "endless.py").write_text(ENDLESS)
    with start_process(
        [sys.executable, "-m", "anabranch.cli", *map(str, arguments)],
        ignores_sigint=ignores_sigint,
        start_new_session=start_new_session,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stderr is not None
            while "reading" not in (line := process.stderr.readline()):
                assert line, "it ended before it read anything"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_a_run_finishes_what_is_under_way_tells_what_came_and_says_who_ended_it(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    journal = tmp_path / "journal.jsonl"
    arguments = ["run", "endless:build", "--engine", "local", "--json", "--journal", journal]
    with started(tmp_path, *arguments) as process:
        process.send_signal(sent)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    told = json.loads(out)
    assert told["rows_in"] >= 1024
    assert told["rows_out"] == told["rows_in"]  # drained
    assert not told["ended"]
    assert "finishing what is under way" in err
    assert "interrupted; with --checkpoint DIR it could go on" in err
    assert isinstance(list(read_journal(journal))[-1], RunEnded)


def test_a_signal_to_all_processes_of_a_run_ends_it_in_order(tmp_path: Path) -> None:
    arguments = ["run", "endless:build", "--engine", "local", "--json"]
    with started(tmp_path, *arguments, start_new_session=True) as process:
        os.killpg(process.pid, signal.SIGTERM)  # as service managers do
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143, err
    assert json.loads(out)["rows_in"] >= 1024


def test_a_run_that_inherits_sigint_as_ignored_is_stopped_by_sigterm_alone(tmp_path: Path) -> None:
    arguments = ["run", "endless:build", "--engine", "local", "--json"]
    with started(tmp_path, *arguments, ignores_sigint=True) as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143, err
    assert "finishing what is under way; another SIGTERM to give up" in err
    assert json.loads(out)["rows_in"] >= 1024


def test_a_command_that_has_not_started_its_run_ends_at_once(tmp_path: Path) -> None:
    with started(tmp_path, "run", "endless:slow", "--engine", "local") as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (143, "", "")


def test_tuning_tells_what_it_found_until_then(tmp_path: Path) -> None:
    arguments = ["tune", "endless:build", "--engine", "local", "--json"]
    with started(tmp_path, *arguments) as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143, err
    assert json.loads(out)["end"] == "interrupted"


def test_what_a_signal_did_before_it_does_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_beside_the_main_thread_signals_are_left_alone() -> None:
    seen: list[object] = []

    def look() -> None:
        with terminable():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
