"""Events as lines of a file, and back."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.errors import UnknownNameError
from anabranch.events import Decision, Kind, Observed, Reconfiguration, RunEnded, RunStarted
from anabranch.view.journal import (
    EVENTS,
    JournalFile,
    Unread,
    from_object,
    read_journal,
    to_object,
)


@pytest.fixture(scope="module")
def events():
    """What a real run tells, with a change of plan."""
    heard = []
    flow = word_count.build(rows=20_000)
    run = ab.start(flow, engine="local", policy="none", listener=heard.append)
    run.reconfigure(
        run.plan.with_replicas("count", 2 if run.plan.region("count").replicas == 1 else 1)
    )
    run.hear(Decision(0.0, "by hand", Kind.NOTED, "as told"))
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
        unread = Unread()
        assert list(read_journal(tmp_path / "cut", unread)) == events[:-1]
        assert unread.count == 0  # it is no fault of the file that the run was killed


@pytest.mark.parametrize(
    "text", ["not a journal\n", "\n", "", '{"event": "Other"}\n', "[1]\n", "[" * 60_000]
)
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "other").write_text(text)
    with pytest.raises(UnknownNameError, match="a line of JSON for every event"):
        list(read_journal(tmp_path / "other"))


def test_fields_of_a_later_version_are_left_out(events):
    assert from_object(to_object(events[-1]) | {"mood": "fine"}) == events[-1]


def with_line(events, line, path):
    """A journal with another line as its third."""
    lines = [json.dumps(to_object(event)) for event in events]
    path.write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    return path


def test_events_of_a_later_version_are_left_out_and_what_follows_is_read(events, tmp_path):
    unread = Unread()
    path = with_line(events, '{"event": "Forecast", "rain": true}', tmp_path / "later")
    assert list(read_journal(path, unread)) == events
    assert unread.count == 0


@pytest.mark.parametrize(
    "line", ["5", "[]", "{}", "", "half a li", '{"event": 5}', '{"event": []}', "[" * 60_000]
)
def test_a_line_that_is_no_event_is_named_and_what_follows_is_read(events, tmp_path, line):
    unread = Unread()
    assert list(read_journal(with_line(events, line, tmp_path / "bad"), unread)) == events
    assert (unread.count, len(unread.problems)) == (1, 1)
    assert unread.problems[0] == f"line 3: {line[:60] or 'an empty line'}"


ENDED = {"event": "RunEnded", "at_s": 1.0, "rows_in": 1, "rows_out": 1, "ended": True}
TIMES = {f"{part}_s": 0.0 for part in ("total", "fixed", "scan", "shuffle", "compute", "state")}
SEEN = {"at_s": 1.0, "batch": 0, "rows_in": 1, "rows_out": 1, "times": TIMES | {"sink_s": 0.0}}
SEEN |= {"latency_p50_ms": 1.0, "latency_p99_ms": 1.0}
SOURCE = {"source": "s", "rows": 1, "rate_per_s": 1.0}
ROWLESS = SOURCE | {"rows": ""}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (ENDED | {"at_s": "soon"}, 'RunEnded: at_s is "soon", not a number'),
        (ENDED | {"at_s": float("nan")}, 'RunEnded: at_s is "NaN", not a number'),
        (ENDED | {"at_s": 10**400}, f"RunEnded: at_s is 1{'0' * 56}…, not a finite number"),
        (ENDED | {"at_s": None}, "RunEnded: at_s is null, not a number"),
        (ENDED | {"rows_in": 1.5}, "RunEnded: rows_in is 1.5, not a whole number"),
        (ENDED | {"rows_in": True}, "RunEnded: rows_in is true, not a whole number"),
        (ENDED | {"ended": 1}, "RunEnded: ended is 1, not true or false"),
        (ENDED | {"error": ["é"]}, 'RunEnded: error is ["é"], not a text'),
        ({"event": "RunEnded", "at_s": 1.0}, "RunEnded: it lacks a field 'rows_in'"),
        ({"event": "Observed", "observation": 5}, "Observed: observation is 5, not an object"),
        (
            {"event": "Observed", "observation": SEEN | {"sources": {}}},
            "Observed: observation.sources is {}, not a list",
        ),
        (
            {"event": "Observed", "observation": SEEN | {"sources": [SOURCE, ROWLESS]}},
            'Observed: observation.sources[1].rows is "", not a whole number',
        ),
        (
            {"event": "Decision", "at_s": 1.0, "policy": "p", "outcome": "dreamt", "why": ""},
            'Decision: outcome is "dreamt", not a word that is known',
        ),
    ],
)  # fmt: skip
def test_a_field_of_another_type_costs_its_event_alone_and_is_named(events, tmp_path, content, why):
    unread = Unread()
    path = with_line(events, json.dumps(content), tmp_path / "bad")
    assert list(read_journal(path, unread)) == events
    assert unread.problems == [f"line 3: {why}"]
    assert str(unread) == f"1 event could not be shown: line 3: {why}"


def test_whole_seconds_are_seconds_and_an_optional_field_may_be_null():
    seen = SEEN | {"at_s": 2, "latency_p999_ms": None, "sources": [SOURCE | {"lag_ms": 3}]}
    event = from_object({"event": "Observed", "observation": seen})
    assert isinstance(event.observation.at_s, float)
    assert event.observation.latency_p999_ms is None
    assert event.observation.sources[0].lag_ms == 3.0


def test_a_journal_from_before_readers_told_how_busy_they_are_still_opens():
    event = from_object({"event": "Observed", "observation": SEEN | {"sources": [SOURCE]}})
    assert event.observation.sources[0].busy_share is None


def test_many_problems_are_counted_and_the_first_ones_named(events, tmp_path):
    unread = Unread()
    path = with_line(events, "\n".join(["no event"] * 1007), tmp_path / "bad")
    assert list(read_journal(path, unread)) == events
    assert (unread.count, len(unread.problems)) == (1007, 5)
    assert str(unread).startswith("1007 events could not be shown: line 3: no event; line 4: ")
    assert str(unread).endswith("; line 7: no event; and 1002 more")


def test_a_first_event_that_does_not_fit_is_refused_with_its_field(tmp_path):
    (tmp_path / "bad").write_text(json.dumps(ENDED | {"at_s": "soon"}) + "\n")
    with pytest.raises(UnknownNameError, match='RunEnded: at_s is "soon", not a number'):
        list(read_journal(tmp_path / "bad"))


def test_an_earlier_journal_is_replaced(events, tmp_path):
    for told in (events, events[:1], events[1:2]):
        journal = JournalFile(tmp_path / "run.jsonl")
        for event in told:
            journal.hear(event)
        journal.close()
        assert list(read_journal(tmp_path / "run.jsonl")) == told


@pytest.mark.parametrize("content", [b"my thesis\n", b"\n", b'{"event":"Wedding"}\n', b"\xff\x00"])
def test_a_file_that_is_no_journal_is_not_overwritten(tmp_path, content):
    (tmp_path / "mine").write_bytes(content)
    with pytest.raises(UnknownNameError, match="name another file, or remove this one"):
        JournalFile(tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == content


def test_an_empty_file_may_be_written_to(events, tmp_path):
    (tmp_path / "empty").touch()
    journal = JournalFile(tmp_path / "empty")
    journal.hear(events[0])
    journal.close()
    assert list(read_journal(tmp_path / "empty")) == events[:1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_ends_the_journal_and_nothing_else(events):
    journal = JournalFile(Path("/dev/full"))
    for event in events:
        journal.hear(event)
    journal.close()
    assert journal.trouble.errno == errno.ENOSPC
    assert journal.lost == len(events)


def test_room_that_comes_back_does_not_lead_to_lines_behind_half_a_line(events, tmp_path):
    journal = JournalFile(tmp_path / "run.jsonl")
    write, room = journal._file.write, [40]

    class Disk:
        closed = False
        close = staticmethod(journal._file.close)

        def write(self, line):
            if room[0] <= 0:
                room[0] = 10**9
                raise OSError(errno.ENOSPC, "No space left on device")
            taken = write(line[: room[0]])
            room[0] -= taken
            return taken

    journal.hear(events[0])
    journal._file = Disk()
    for event in events[1:]:
        journal.hear(event)
    journal.close()
    assert journal.lost == len(events) - 1
    assert list(read_journal(tmp_path / "run.jsonl")) == events[:1]
