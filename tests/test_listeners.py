"""Listeners of a run: several may be given, and none of them can do it harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BuildError, SinkError
from anabranch.events import Decision, Event, Kind, Observed, RunEnded, RunStarted
from anabranch.flow import Flow

ROWS = 1000


def numbers() -> tuple[Flow, Any]:
    flow, out = Flow("numbers"), ab.collect()
    schema = pa.schema([("x", pa.int64())])
    source = ab.generate(lambda rng, index: {"x": index}, schema, ROWS)
    flow.source("s", source).map("double", lambda batch: {}, keeps="*").sink("out", out)
    return flow, out


def raising_at(*kinds: type) -> Callable[[Event], None]:
    def broken(event: Event) -> None:
        if isinstance(event, kinds):
            raise ValueError("cannot hear")

    return broken


def run(listener: Any) -> tuple[ab.Result, list[int]]:
    flow, out = numbers()
    result = ab.run(flow, engine="local", policy="none", listener=listener)
    return result, out.table()["x"].to_pylist()


@pytest.mark.parametrize("kind", [RunStarted, Observed, RunEnded])
def test_what_a_listener_raises_does_not_reach_the_run(kind):
    result, written = run(raising_at(kind))
    assert result.ended
    assert written == list(range(ROWS))


def test_a_listener_that_raises_is_told_of_once_and_by_name():
    result, _ = run(raising_at(RunStarted, Observed, Decision, RunEnded))
    (told,) = result.decisions
    assert (told.policy, told.outcome) == ("listening", Kind.NOTED)
    assert "raising_at.<locals>.broken raised ValueError: cannot hear at RunStarted" in told.why
    assert "(test_listeners.py:" in told.why
    assert 0 <= told.at_s < 60


def test_each_of_two_broken_listeners_is_told_of():
    result, _ = run([raising_at(Observed), raising_at(RunEnded)])
    assert ["at Observed" in each.why for each in result.decisions] == [True, False]
    assert ["at RunEnded" in each.why for each in result.decisions] == [False, True]


def test_a_listener_that_raised_still_hears_what_follows():
    heard: list[Event] = []

    def hear(event: Event) -> None:
        heard.append(event)
        if isinstance(event, RunStarted):
            raise KeyError("once")

    run(hear)
    assert any(isinstance(event, RunEnded) for event in heard)


def test_all_listeners_hear_all_events_and_the_note_behind_what_caused_it():
    first: list[Event] = []
    last: list[Event] = []
    run((first.append, raising_at(Observed), last.append))
    assert first == last
    kinds = [type(event) for event in last]
    assert kinds[:3] == [RunStarted, Observed, Decision]
    assert kinds[-1] is RunEnded


def test_what_cannot_be_called_is_refused_before_anything_runs():
    flow, out = numbers()
    with pytest.raises(BuildError, match="a function of one event, or several in a sequence"):
        ab.start(flow, engine="local", listener=[print, "progress"])
    with pytest.raises(SinkError, match="before any run"):
        out.table()


def test_a_run_that_fails_tells_with_what():
    def breaks(batch):
        raise ZeroDivisionError("no way")

    flow = ab.Flow("fragile")
    flow.source("s", ab.memory([{"x": 1}])).map("share", breaks, keeps="x").sink("o", ab.collect())
    heard = []
    run = ab.start(flow, engine="local", policy="none", listener=heard.append)
    with pytest.raises(ab.AnabranchError):
        run.await_termination()
    assert not heard[-1].ended
    assert "step 'share'" in heard[-1].error
    assert "no way" in heard[-1].error


def test_where_nobody_tunes_there_is_nothing_to_pause_and_nothing_is_noted():
    flow, _ = numbers()
    run = ab.start(flow, engine="local", policy="none")
    assert run.adapting is None
    run.pause_adaptation()
    run.resume_adaptation()
    run.await_termination()
    assert (run.adapting, run.decisions) == (None, [])


def test_pausing_twice_is_noted_once():
    flow, _ = numbers()
    heard: list[Event] = []
    run = ab.start(flow, engine="local", policy="auto", listener=heard.append)
    run.resume_adaptation()  # which goes on already
    for _ in range(2):
        run.pause_adaptation()
    assert run.adapting is False
    for _ in range(2):
        run.resume_adaptation()
    assert run.adapting is True
    run.await_termination()
    noted = [each for each in heard if isinstance(each, Decision) and each.policy == "by hand"]
    assert [each.why for each in noted] == ["adaptation is paused by hand", "adaptation goes on"]
