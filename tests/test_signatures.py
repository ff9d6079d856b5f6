"""What an editor knows of the public surface: signatures, and the types of decorated functions."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import running
from anabranch.errors import BuildError
from tests import typed_by_a_user as user
from tests.sampling import thorough

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_LINES = 150
WORDS = pa.record_batch({"word": ["rain", "sun"]})


def test_run_takes_what_start_takes_and_seconds():
    started, ran = (inspect.signature(function).parameters for function in (ab.start, ab.run))
    assert ran["seconds"].default is None
    assert {name: each for name, each in ran.items() if name != "seconds"} == dict(started)


def test_run_passes_every_option_on(monkeypatch):
    options = {name: object() for name in inspect.signature(ab.start).parameters if name != "flow"}
    given = {}

    class Stop(Exception):
        pass

    def start(flow, **options):
        given.update(options)
        raise Stop

    monkeypatch.setattr(running, "start", start)
    with pytest.raises(Stop):
        ab.run(None, seconds=1, **options)
    assert given == options


def test_the_page_to_read_first_is_short():
    lines = Path(running.__file__).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES


def public_callables() -> dict[str, Callable[..., object]]:
    functions = {name: getattr(ab, name) for name in ab._MODULE_OF if name[0].islower()}
    methods = {
        f"{kind.__name__}.{name}": method
        for kind in (ab.Flow, ab.Stream, ab.Run, ab.Plan)
        for name, method in inspect.getmembers(kind, inspect.isroutine)
        if not name.startswith("_")
    }
    return functions | methods


@pytest.mark.parametrize("name", sorted(public_callables()))
def test_a_public_function_names_its_options(name):
    """Only what a user names may be open: the columns of an aggregate, for one."""
    for each in inspect.signature(public_callables()[name]).parameters.values():
        if each.name in ("self", "cls"):
            continue
        assert each.annotation is not each.empty, each.name
        if each.kind is each.VAR_KEYWORD:
            assert "Any" not in each.annotation, each.name


def test_a_decorated_function_is_called_as_the_function():
    assert user.measure(WORDS) == {"length": [4, 3]}
    assert user.long(batch=WORDS) == [True, False]
    _, parents = user.letters(WORDS)
    assert parents == [0, 0, 0, 0, 1, 1, 1]


def test_a_decorated_function_shows_the_signature_of_the_function():
    assert list(inspect.signature(user.seen).parameters) == ["batch", "state"]
    assert list(inspect.signature(user.silent).parameters) == ["ctx"]


@pytest.mark.parametrize("use", [lambda s: s.map("m", user.measure), lambda s: ab.map(user.long)])
def test_an_operator_is_no_function(use):
    stream = ab.Flow("f").source("s", ab.memory(pa.table(WORDS)))
    with pytest.raises(BuildError, match=r"got an operator \((Map|Filter)\)"):
        use(stream)


@thorough
def test_a_type_checker_knows_what_decorators_make_and_take():
    done = subprocess.run(
        [sys.executable, "-m", "mypy", user.__file__],
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
