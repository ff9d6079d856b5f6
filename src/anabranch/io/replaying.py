"""Replay a file into a Redis stream at a set pace: the message generator of tests and tuning.

Rows that are due are sent together, every few milliseconds; so they are spaced as evenly as a
server can be asked to take them. When it cannot keep up, what was reached is told beside what was
asked for.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from math import isfinite
from typing import Any

from anabranch.errors import BuildError, SourceError, Subject
from anabranch.io.redis_client import END, StreamClient
from anabranch.io.redis_rows import FIELD, codec_of
from anabranch.io.source import Source

TICK_S = 0.002
SENT_TOGETHER = 1_000
READ_ROWS = 4_096


@dataclass(frozen=True)
class Reached:
    """One step of a pace: what was asked for, and what came of it.

    Attributes:
        begin_s: When it began.
        seconds: How long it lasted.
        asked_per_s: Rows a second that were asked for.
        rows: Rows that were sent in it.
    """

    begin_s: float
    seconds: float
    asked_per_s: float
    rows: int

    @property
    def per_s(self) -> float:
        """Rows a second that were sent."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Replayed:
    """What came of a replay: step by step, and how many rows it was behind its pace at most."""

    steps: tuple[Reached, ...]
    most_behind: int

    @property
    def rows(self) -> int:
        """Rows that were sent."""
        return sum(step.rows for step in self.steps)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(step.seconds for step in self.steps)


class StreamReplay:
    """Sends the rows of a source to a stream.

    Args:
        source: What to send; bounded, like files.
        client: The stream.
        steps: The pace.
        format: How a row becomes an entry: `fields` or `json`.
        field: For `json`, which field.
        repeat: Whether to begin again at the end of the source.
        keep: About how many entries the server shall keep; all when left out.
        clock: Seconds.
        sleep: How to wait.
    """

    def __init__(
        self,
        source: Source,
        client: StreamClient,
        steps: Steps,
        *,
        format: str = "fields",
        field: str = FIELD,
        repeat: bool = False,
        keep: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source, self._client, self._steps = source, client, steps
        self._codec = codec_of(format, source.schema, field)
        self._repeat, self._keep = repeat, keep
        self._clock, self._sleep = clock, sleep
        self._sent: list[int] = [0] * len(steps.points)
        self._began_s = self._ended_s = 0.0
        self._most_behind = 0

    def run(self, rows: int | None = None, seconds: float | None = None) -> None:
        """Send until the source ends, or some rows or seconds have gone by."""
        entries = self._entries()
        self._began_s = self._clock()
        while seconds is None or self._elapsed() < seconds:
            elapsed_s = self._elapsed()
            due = self._steps.due(elapsed_s)
            due = due if rows is None else min(due, rows)
            behind = due - sum(self._sent)
            self._most_behind = max(self._most_behind, behind)
            if behind <= 0:
                if rows is not None and sum(self._sent) >= rows:
                    break
                self._sleep(TICK_S)
                continue
            batch = list(islice(entries, min(behind, SENT_TOGETHER)))
            if not batch:
                break
            self._client.append(batch, self._keep)
            self._sent[self._steps.number_at(elapsed_s)] += len(batch)
        self._ended_s = self._elapsed()

    def end(self) -> None:
        """End the stream: who reads it comes to an end there."""
        self._client.append([{END.decode(): ""}])

    def outcome(self) -> Replayed:
        """What came of it so far."""
        until_s = self._ended_s or self._elapsed()
        begins = [begin for begin, _ in self._steps.points]
        ends = [*begins[1:], until_s]
        steps = [
            Reached(begin, min(stop, until_s) - begin, rate, sent)
            for (begin, rate), stop, sent in zip(self._steps.points, ends, self._sent, strict=True)
            if begin < until_s
        ]
        return Replayed(tuple(steps), self._most_behind)

    def _elapsed(self) -> float:
        return self._clock() - self._began_s

    def _entries(self) -> Iterator[Mapping[str, Any]]:
        """The rows as entries, over and over if they are to be repeated."""
        once = True
        while once or self._repeat:
            once, any_row = False, False
            for part in self._source.parts():
                at = 0
                while (chunk := self._source.read(part, at, READ_ROWS)) is not None:
                    yield from self._codec.encode(chunk.batch)
                    at += chunk.batch.num_rows
                    any_row = True
            if not any_row:
                raise SourceError(
                    Subject("source", repr(self._source)),
                    "rows to replay",
                    "none",
                    "give a file that has some",
                )


# How many rows are due when: a rate that changes in steps.


@dataclass(frozen=True)
class Steps:
    """A rate for each stretch of time, the last one without end.

    Attributes:
        points: When a rate begins, in seconds, and how many rows a second it means; the first one
            begins at 0.

    Example:
        >>> steps = Steps.parse("0:1000, 30:5000, 60:1000")
        >>> steps.due(31.0), steps.rate_at(31.0)
        (35000, 5000.0)
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Refuse what is no sequence of steps."""
        begins = [begin for begin, _ in self.points]
        ordered = begins[:1] == [0.0] and all(a < b for a, b in pairwise(begins))
        rates = [rate for _, rate in self.points]
        finite = all(isfinite(number) for point in self.points for number in point)
        if not finite or not ordered or min(rates) < 0 or rates[-1] <= 0:
            raise _wrong(", ".join(f"{begin:g}:{rate:g}" for begin, rate in self.points))

    @staticmethod
    def constant(rate_per_s: float) -> Steps:
        """One rate for ever."""
        return Steps(((0.0, rate_per_s),))

    @staticmethod
    def parse(text: str) -> Steps:
        """Steps as `second:rate, second:rate, …`."""
        try:
            pairs = [part.split(":") for part in text.split(",")]
            return Steps(tuple((float(begin), float(rate)) for begin, rate in pairs))
        except ValueError as error:
            raise _wrong(text) from error

    def due(self, elapsed_s: float) -> int:
        """How many rows are due by then."""
        ends = [begin for begin, _ in self.points[1:]] + [elapsed_s]
        rows = 0.0
        for (begin, rate), stop in zip(self.points, ends, strict=True):
            rows += rate * max(0.0, min(stop, elapsed_s) - begin)
        return int(rows + 1e-9)

    def number_at(self, elapsed_s: float) -> int:
        """Which step that time is in."""
        return max(0, bisect_right(self.points, elapsed_s, key=lambda point: point[0]) - 1)

    def rate_at(self, elapsed_s: float) -> float:
        """The rate at that time."""
        return self.points[self.number_at(elapsed_s)][1]


def _wrong(text: str) -> BuildError:
    return BuildError(
        Subject("argument", "steps"),
        "steps as 'second:rate, second:rate, …' from second 0 on, the last rate above 0",
        repr(text),
        "write for example '0:1000, 30:5000, 60:1000'",
    )
