"""Events as lines of a file, and back."""

from __future__ import annotations

import json

import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.errors import UnknownNameError
from anabranch.events import Observed, Reconfiguration, RunEnded, RunStarted
from anabranch.view.journal import EVENTS, JournalFile, from_object, read_journal, to_object


@pytest.fixture(scope="module")
def events():
    """What a real run tells, with a change of plan."""
    heard = []
    flow = word_count.build(rows=20_000)
    run = ab.start(flow, engine="local", policy="none", listener=heard.append)
    run.apply(run.plan.with_replicas("count", 2 if run.plan.region("count").replicas == 1 else 1))
    run.pause_adaptation()
    run.await_termination()
    return heard


def test_every_kind_of_event_comes_back_as_it_was(events):
    kinds = {type(event) for event in events}
    assert {RunStarted, Observed, RunEnded} <= kinds
    assert [from_object(json.loads(json.dumps(to_object(event)))) for event in events] == events
    assert set(EVENTS) == {"RunStarted", "Observed", "Reconfiguration", "Decision", "RunEnded"}
    change = Reconfiguration(1.5, 3, 0.2, ("this", "that"), 7, "{}", "{}")
    assert from_object(json.loads(json.dumps(to_object(change)))) == change


def test_the_start_tells_what_the_flow_looks_like(events):
    shape = next(event.shape for event in events if isinstance(event, RunStarted))
    assert [(s.step, s.role, s.state, s.key, s.region) for s in shape.steps] == [
        ("lines", "source", "", (), "lines"),
        ("split", "operator", "stateless", (), "split"),
        ("count.combine", "operator", "stateless", (), "split"),
        ("count", "operator", "partitioned", ("word",), "count"),
        ("out", "sink", "", (), "out"),
    ]
    assert [(s.producer, s.port, s.consumer) for s in shape.streams] == [
        ("lines", "out", "split"),
        ("split", "out", "count.combine"),
        ("count.combine", "out", "count"),
        ("count", "out", "out"),
    ]


def test_a_file_holds_what_was_heard(events, tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")
    for event in events:
        journal.hear(event)
    journal.close()
    journal.hear(events[0])  # too late, and no error
    assert list(read_journal(tmp_path / "journal.jsonl")) == events


def test_a_file_that_is_cut_off_opens_with_what_is_there(events, tmp_path):
    lines = [json.dumps(to_object(event)) + "\n" for event in events]
    for end in (1, len(lines[-1]) // 2, len(lines[-1]) - 2):
        (tmp_path / "cut").write_text("".join(lines[:-1]) + lines[-1][:end])
        assert list(read_journal(tmp_path / "cut")) == events[:-1]


@pytest.mark.parametrize("text", ["not a journal\n", "\n", '{"event": "Other"}\n', "[1]\n"])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "other").write_text(text)
    with pytest.raises(UnknownNameError, match="a line of JSON for every event"):
        list(read_journal(tmp_path / "other"))


def test_fields_of_a_later_version_are_left_out(events):
    assert from_object(to_object(events[-1]) | {"mood": "fine"}) == events[-1]
