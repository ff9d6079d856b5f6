"""What a run found, for programs too; where there is nothing to be found, that is said."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from anabranch.cli import results


@pytest.fixture
def run(command_line):
    return lambda *arguments: command_line("run", "word-count", *arguments)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be\n")
    return tmp_path / "text.txt"


def test_json_has_the_summary_line_by_line(run, text):
    in_words = run("--engine", "local", "--input", text)
    told = json.loads(run("--engine", "local", "--input", text, "--json").out)
    assert told["found"] == [
        "top words of 4:",
        "  be   2",
        "  to   2",
        "  not  1",
        "  or   1",
    ]
    assert in_words.out.startswith("\n".join(told["found"]) + "\n\n")


def test_json_tells_how_long_the_start_took(run, text):
    told = json.loads(run("--engine", "local", "--input", text, "--json").out)
    assert told["starting_s"] >= 0


def test_a_flow_that_is_no_application_of_ours_has_found_nothing_to_tell(command_line, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    ran = command_line("run", f"{tmp_path / 'mine.py'}:flow", "--engine", "local", "--json")
    assert json.loads(ran.out)["found"] == []


def test_rows_of_a_users_own_flow_that_were_not_kept_are_counted(
    command_line, tmp_path, monkeypatch
):
    monkeypatch.setattr(results, "LAST_ROWS", 2)
    three = OWN.replace('[{"v": 1}]', '[{"v": 1}, {"v": 2}, {"v": 3}]')
    (tmp_path / "three.py").write_text(three)
    ran = command_line("run", f"{tmp_path / 'three.py'}:flow", "--engine", "local", "--json")
    assert json.loads(ran.out)["found"] == ["out: 3 rows, of which the last 2 were kept"]


OWN = """
import anabranch as ab

flow = ab.Flow("mine")
flow.source("s", ab.memory([{"v": 1}])).sink("out", ab.collect())
"""


def test_the_simulator_has_no_results_and_says_so(run):
    ran = run("--engine", "simulator", "--rows", 1000)
    assert (ran.code, ran.err.count("error")) == (0, 0)
    assert ran.out.startswith("no results: time is virtual on simulator; `anabranch simulate word")
    assert "word-count on simulator: " in ran.out


def test_earlier_output_is_replaced_where_that_is_asked_for(run, text, tmp_path):
    arguments = ["--engine", "local", "--input", text, "--out", tmp_path / "out"]
    assert run(*arguments).code == 0
    refused = run(*arguments)
    assert refused.code == 2
    assert "or pass overwrite=True (--overwrite on the command line) to replace" in refused.err
    text.write_text("not to be\n")
    ran = run(*arguments, "--overwrite")
    assert ran.code == 0
    assert ran.out.startswith("top words of 3:\n")


def test_what_to_do_about_a_bad_file_is_something_that_the_command_line_can_do(run, tmp_path):
    whole = gzip.compress(b"to be or not to be\n" * 1000)
    (tmp_path / "cut.txt.gz").write_bytes(whole[: len(whole) // 2])
    ran = run("--engine", "local", "--input", tmp_path / "cut.txt.gz")
    assert ran.code == 2  # its first lines are looked at before anything runs
    assert "repair, replace or remove it, or leave bad files out with files(…, " in ran.err


def test_the_help_shows_no_default_of_a_switch_that_only_turns_off(command_line):
    ran = command_line("run", "--help")
    shown = re.sub(r"[^\w.:\[\]-]+", " ", ran.out)
    assert "--no-controls" in shown
    assert "default: True" not in shown
