"""A flow in a file is named by its path, wherever the user stands."""

from __future__ import annotations

import os
import re
import sys

import pytest

OWN = """
import anabranch as ab
from helping_{name} import NAME


def build(rows=3):
    flow = ab.Flow(NAME)
    flow.source("s", ab.memory([{{"v": v}} for v in range(rows)])).sink("out", ab.collect())
    return flow


flow = build()
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with flows in files, which is not where the user stands."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    folder = tmp_path / "apps"
    folder.mkdir()
    (folder / "bikes.py").write_text(OWN.format(name="bikes"))
    (folder / "helping_bikes.py").write_text("NAME = 'bikes'\n")
    (folder / "json.py").write_text("flow = 1\n")
    (folder / "broken.py").write_text("import no_such_package_at_all\n")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["apps/bikes.py:build", "./apps/bikes.py:flow"])
def test_a_path_and_a_name_find_a_flow_and_what_lies_beside_its_file(command_line, files, name):
    ran = command_line("plan", name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("plan for bikes\n")


def test_settings_are_arguments_of_its_function(command_line, files):
    ran = command_line("run", f"{files}/bikes.py:build", "--engine", "local", "--set", "rows=7")
    assert "7 rows in, 7 out" in ran.out


def test_processes_that_are_started_find_the_file_too(command_line, files):
    command_line("plan", f"{files}/bikes.py:build")
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(files), "somewhere"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("apps/cars.py:flow", "expected a file with Python, got no file apps/cars.py"),
        ("apps/bikes.py", "expected apps/bikes.py:NAME with the name of a Flow.*; there is flow"),
        ("apps/bikes.py:flw", "called 'flw' in apps/bikes.py, got nothing of that name; there is"),
        ("apps/json.py:flow", "no other module's namesake, got .*rename the file"),
        ("wordcount", "got 'wordcount'; did you mean 'word-count'"),
        ("zzz", r"got 'zzz'; see `anabranch apps`, or .*file\.py:flow"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_to_do(command_line, files, name, told):
    ran = command_line("plan", name)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert re.search(told, ran.err), ran.err


def test_an_application_to_tell_of_is_guessed_as_well(command_line):
    ran = command_line("apps", "wordcount")
    assert (ran.code, "did you mean 'word-count'" in ran.err) == (2, True)


def test_a_file_that_cannot_import_something_shows_its_own_error(command_line, files):
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        command_line("plan", "apps/broken.py:flow")
