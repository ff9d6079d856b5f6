from __future__ import annotations

from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.testing.compare import blame


def three_steps() -> Flow:
    flow = Flow("f")
    stream = flow.source("s", memory([{"x": 1}]))
    for name in ("first", "second", "third"):
        stream = stream.map(name, lambda b: {}, keeps="*")
    stream.sink("out", collect())
    return flow


def run_of(first: str, second: str, third: str) -> dict:
    """What went in and came out of each step, written as `in>out`."""
    steps = {"first": first, "second": second, "third": third}
    return {n: tuple([side] for side in text.split(">")) for n, text in steps.items()}


def test_who_got_the_same_and_gave_something_else_is_to_blame():
    left, right = run_of("a>b", "b>c", "c>d"), run_of("a>b", "b>x", "x>y")
    assert blame(three_steps(), left, right) == "second"


def test_sure_guilt_counts_more_than_an_earlier_suspicion():
    left, right = run_of("a>b", "b>c", "c>d"), run_of("w>x", "x>c", "c>y")
    assert blame(three_steps(), left, right) == "third"


def test_without_sure_guilt_the_first_suspect_is_named():
    left, right = run_of("a>b", "b>c", "c>d"), run_of("w>x", "x>y", "y>z")
    assert blame(three_steps(), left, right) == "first"


def test_a_step_that_was_never_called_in_one_run_got_nothing():
    left, right = run_of("a>b", "b>c", "c>d"), run_of("a>b", "b>x", "c>d")
    del right["third"]
    assert blame(three_steps(), left, right) == "second"


def test_nobody_is_to_blame_when_every_step_gave_the_same():
    same = run_of("a>b", "b>c", "c>d")
    assert blame(three_steps(), same, same) is None
