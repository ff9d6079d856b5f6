"""The message generator: how many rows are due when, and that exactly those are sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import BuildError, SourceError
from anabranch.io import memory
from anabranch.io.replaying import SENT_TOGETHER, Steps, StreamReplay

rates = st.integers(0, 5000).map(float)


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    lengths = draw(st.lists(st.integers(1, 20), max_size=4))
    begins = [float(sum(lengths[:n])) for n in range(len(lengths) + 1)]
    earlier = [(begin, draw(rates)) for begin in begins[:-1]]
    return Steps((*earlier, (begins[-1], draw(rates) + 1)))


@given(steps=steps(), at=st.lists(st.floats(0, 200), min_size=2))
def test_what_is_due_grows_with_time_and_by_the_rate(steps, at):
    earlier, later = sorted(at)[:2]
    grown = steps.due(later) - steps.due(earlier)
    most = max(rate for _, rate in steps.points) * (later - earlier)
    assert 0 <= grown <= most + 1


def test_steps_are_read_as_they_are_written():
    steps = Steps.parse("0:1000, 30:0, 31.5:20")
    assert steps == Steps(((0.0, 1000.0), (30.0, 0.0), (31.5, 20.0)))
    assert [steps.due(at) for at in (0, 1.5, 30, 31, 32)] == [0, 1500, 30000, 30000, 30010]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1000",
        "0:x",
        "5:1000",
        "0:10, 0:20",
        "0:10, 9:5, 8:1",
        "0:-1, 1:5",
        "0:10, 5:0",
        "0:nan",
        "0:inf",
        "nan:5",
        "0:5, inf:9",
        "0:nan, 1:5",
    ],
)
def test_what_are_no_steps_is_refused(text):
    with pytest.raises(BuildError, match="from second 0 on"):
        Steps.parse(text)


class Time:
    """A clock that only waiting and sending move."""

    def __init__(self, sending_s: float = 0.0) -> None:
        self.now, self.sending_s = 100.0, sending_s

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Sent:
    """What a server would get, and when."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.batches: list[tuple[float, list[Any]]] = []

    def append(self, entries: list[Any], keep: int | None = None) -> int:
        self.time.now += self.time.sending_s
        self.batches.append((self.time.now - 100.0, entries))
        return len(entries)

    @property
    def numbers(self) -> list[int]:
        return [int(e["n"]) for _, batch in self.batches for e in batch if "n" in e]


def replay(
    rows: int, steps: str, time: Time | None = None, **options: Any
) -> tuple[StreamReplay, Sent]:
    time = time or Time()
    sent = Sent(time)
    source = memory([{"n": n} for n in range(rows)])
    options = {"clock": time.clock, "sleep": time.sleep, **options}
    return StreamReplay(source, sent, Steps.parse(steps), **options), sent


def test_every_row_is_sent_once_in_its_turn_and_evenly():
    run, sent = replay(5000, "0:1000, 2:500")
    run.run()
    assert sent.numbers == list(range(5000))
    until_one = sum(len(batch) for at, batch in sent.batches if at <= 1.0)
    assert until_one == pytest.approx(1000, abs=3)
    assert max(len(batch) for _, batch in sent.batches) <= 3
    first, second = run.outcome().steps
    assert (first.per_s, second.per_s) == (pytest.approx(1000, rel=0.01), pytest.approx(500, 0.01))
    assert run.outcome().seconds == pytest.approx(8.0, rel=0.01)


def test_a_server_that_cannot_keep_up_shows():
    run, sent = replay(20_000, "0:100000", Time(sending_s=0.1))
    run.run()
    assert sent.numbers == list(range(20_000))
    (told,) = run.outcome().steps
    assert told.per_s == pytest.approx(SENT_TOGETHER / 0.1, rel=0.1)
    assert run.outcome().most_behind > 10_000


@pytest.mark.parametrize(
    ("options", "limits", "numbers"),
    [
        ({}, {"rows": 7}, list(range(7))),
        ({"repeat": True}, {"rows": 25}, [n % 10 for n in range(25)]),
        ({"repeat": True}, {"seconds": 0.025}, [n % 10 for n in range(24)]),
    ],
)
def test_a_replay_ends_where_it_is_told_to(options, limits, numbers):
    run, sent = replay(10, "0:1000", **options)
    run.run(**limits)
    assert sent.numbers == numbers


def test_a_file_without_rows_is_not_repeated_for_ever():
    source = memory([], schema=memory([{"n": 1}]).schema)
    time = Time()
    run = StreamReplay(
        source,
        Sent(time),
        Steps.constant(5),
        repeat=True,
        clock=time.clock,
        sleep=time.sleep,
    )
    with pytest.raises(SourceError, match="rows to replay"):
        run.run()
