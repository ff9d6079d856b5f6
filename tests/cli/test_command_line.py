from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.apps import word_count
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.planning.plan import Plan

HONEST = """
from anabranch import Flow, collect, memory

flow = Flow("mine")
flow.source("s", memory([{"x": i} for i in range(6)])).filter(
    "small", lambda b: [x < 4 for x in b["x"].to_pylist()]
).sink("out", collect())
not_a_flow = 3


def build():
    return flow
"""
LIAR = """
from anabranch import Flow, collect, memory

flow = Flow("lying")
flow.source("s", memory([{"x": i} for i in range(6)])).map(
    "liar", lambda b: {"n": list(range(b.num_rows))}, out="n: int64"
).sink("out", collect())
"""


@pytest.fixture
def run(command_line):
    return command_line


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with modules of the user's own, where they stand."""
    (tmp_path / "honest_flow.py").write_text(HONEST)
    (tmp_path / "lying_flow.py").write_text(LIAR)
    (tmp_path / "broken_import.py").write_text("import no_such_package_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield tmp_path
    for name in ("honest_flow", "lying_flow", "broken_import"):
        sys.modules.pop(name, None)


# --- apps ----------------------------------------------------------------------------------------


def test_apps_lists_names_with_one_line_each(run):
    ran = run("apps")
    assert ran.code == 0
    assert "word-count" in [line.split()[0] for line in ran.out.splitlines()]
    assert "lines are split into words" in ran.out


def test_an_unknown_app_is_a_line_on_stderr(run):
    ran = run("plan", "word-cuont")
    assert (ran.code, ran.out) == (2, "")
    assert "application 'word-cuont': expected an application, got 'word-cuont'; " in ran.err
    assert "did you mean 'word-count'" in ran.err
    assert "finance" not in ran.err
    assert "Traceback" not in ran.err


# --- plan ----------------------------------------------------------------------------------------


SERIAL = "serial, whatever the plan:\n  `out` takes a changelog"


def test_plan_shows_the_tree_and_what_is_serial(run):
    tree = repr(Plan.sequential(word_count.build()))
    assert run("plan", "word-count").out.rstrip("\n") == f"{tree}\n{SERIAL}"


def test_plan_as_json_can_be_read_again(run):
    assert Plan.from_json(run("plan", "word-count", "--json").out) == Plan.sequential(
        word_count.build()
    )


def test_a_plan_that_fits_is_shown(run, tmp_path):
    plan = Plan.sequential(word_count.build()).with_replicas("count", 3)
    (tmp_path / "plan.json").write_text(plan.to_json())
    ran = run("plan", "word-count", "--plan", tmp_path / "plan.json")
    assert (ran.code, ran.out.rstrip("\n")) == (0, f"{plan!r}\n{SERIAL}")


BAD_PLANS = {
    "no json": (b"{", "JSON with flow, fingerprint, regions and sources"),
    "another shape": (b"[]", "JSON with flow, fingerprint, regions and sources"),
    "no text": (b"\xff\xfe\x00", "plan.json"),
    "another flow": (
        Plan.sequential(word_count.build()).to_json().replace("word-count", "x").encode()[:-1]
        + b', "fingerprint": "0"}',
        "a plan for flow 'word-count'",
    ),
}


@pytest.mark.parametrize("mistake", sorted(BAD_PLANS))
def test_a_plan_file_that_does_not_fit_is_refused(run, tmp_path, mistake):
    content, words = BAD_PLANS[mistake]
    (tmp_path / "plan.json").write_bytes(content)
    ran = run("plan", "word-count", "--plan", tmp_path / "plan.json")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


def test_a_missing_plan_file_is_refused(run, tmp_path):
    ran = run("plan", "word-count", "--plan", tmp_path / "nowhere.json")
    assert ran.code == 2
    assert "nowhere.json" in ran.err


# --- check ---------------------------------------------------------------------------------------


def test_check_of_an_honest_app_is_good(run):
    ran = run("check", "word-count", "--cases", 2, "--rows", 5, "--processes", 0)
    assert ran.code == 0
    assert "agree with the sequential run" in ran.out


def test_check_of_a_liar_fails_and_names_the_step(run, folder):
    ran = run("check", "lying_flow:flow", "--cases", 4, "--processes", 0)
    assert ran.code == 1
    assert "step 'liar' is most likely to blame" in ran.out


def test_check_as_json_is_one_object(run, folder):
    ran = run("check", "lying_flow:flow", "--cases", 4, "--processes", 0, "--json")
    answer = json.loads(ran.out)
    assert (answer["flow"], answer["ok"], answer["step"]) == ("lying", False, "liar")
    assert set(answer["input"]) == {"s"}


def test_check_as_json_of_an_honest_flow_is_one_object(run, folder):
    ran = run("check", "honest_flow:flow", "--cases", 2, "--processes", 0, "--json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["ok"], answer["step"]) == (0, True, None)


def test_check_runs_the_users_own_module_in_another_process(run, folder):
    ran = run("check", "honest_flow:flow", "--cases", 1, "--processes", 1, "--json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["processes"], answer["unsent"]) == (0, 1, None)


def test_check_says_why_a_flow_was_not_run_in_another_process(run, folder):
    locked = HONEST.replace("x < 4", "lock.locked()")
    (folder / "honest_flow.py").write_text(f"import threading\nlock = threading.Lock()\n{locked}")
    ran = run("check", "honest_flow:flow", "--cases", 1)
    assert ran.code == 0
    assert "not run in another process, because it cannot be sent to one: step 'small'" in ran.out


def test_the_seed_decides(run, folder):
    first, second = (
        run("check", "lying_flow:flow", "--seed", 3, "--processes", 0).out for _ in range(2)
    )
    assert first == second


# --- the user's own flows -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["honest_flow:flow", "honest_flow:build"])
def test_a_flow_or_a_function_that_builds_one_can_be_named(run, folder, name):
    assert run("plan", name).out.startswith("plan for mine\n")


NAMES = {
    "no_such_module:flow": "a module that can be imported, got 'no_such_module'",
    "honest_flow:flw": "got nothing of that name; there is flow",
    "honest_flow:not_a_flow": "got int; there is flow",
    "honest_flow:": "there is flow",
    ":flow": "':flow'",
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_that_leads_nowhere_says_what_exists(run, folder, name):
    ran = run("plan", name)
    assert (ran.code, ran.out) == (2, "")
    assert NAMES[name] in ran.err


def test_a_module_that_cannot_import_something_else_shows_its_own_error(run, folder):
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        run("plan", "broken_import:flow")


def test_the_installed_command_finds_a_module_where_the_user_stands(folder):
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli", "plan", "honest_flow:flow"],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("plan for mine\n")


def test_a_checkpoint_goes_back_to_an_earlier_version(run, tmp_path):
    flow = word_count.build()
    checkpoint = Checkpoint.open(tmp_path / "c", flow)
    for version in range(3):
        checkpoint.publish(Manifest(version, checkpoint.token, Plan.sequential(flow).to_json()))
    ran = run("rollback", "word-count", "--checkpoint", tmp_path / "c", "--to", 1)
    assert (ran.code, "version 1" in ran.out) == (0, True)
    assert Checkpoint.open(tmp_path / "c", flow).last.version == 1


def test_a_version_that_never_was_is_no_way_back(run, tmp_path):
    counted = run(
        "run", "word-count", "--engine", "local", "--rows", 50, "--checkpoint", tmp_path / "c"
    )
    assert counted.code == 0
    ran = run("rollback", "word-count", "--checkpoint", tmp_path / "c", "--to", 7)
    assert ran.code == 2
    assert "000000000007.json" in ran.err


def test_a_path_without_a_checkpoint_is_no_way_back(run, tmp_path):
    ran = run("rollback", "word-count", "--checkpoint", tmp_path / "mistyped", "--to", 7)
    assert ran.code == 2
    assert "name the directory that the run was given" in ran.err
    assert not (tmp_path / "mistyped").exists()
