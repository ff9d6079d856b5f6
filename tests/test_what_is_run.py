"""What can be run: the example of `make run`, and no thing that is no flow."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.errors import BuildError

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "word_count_live.py"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([1], r"expected a Flow, got list \[1\]; build one with ab.Flow"),
        (None, r"expected a Flow, got NoneType None; build"),
        (word_count.build, "got function .*; call the function that builds it"),
        (ab.Flow("f").source("s", ab.memory([{"a": 1}])), "got Stream .*that the stream belongs"),
    ],
)
@pytest.mark.parametrize("use", [ab.run, ab.start, ab.plan])
def test_what_is_no_flow_is_refused_by_name(use, given, told):
    with pytest.raises(BuildError, match=told):
        use(given)


def test_the_example_of_make_run_says_what_came_of_it(monkeypatch, capsys):
    """On the local engine, which starts at once; the flow is the same."""
    monkeypatch.setattr(ab, "start", partial(ab.start, engine="local"))
    runpy.run_path(str(EXAMPLE))["main"](seconds=0.2, policy="none")
    said = capsys.readouterr().out
    assert "word-count on local: " in said
    assert "stopped before the end of its sources" in said
