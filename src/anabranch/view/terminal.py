"""A run as a picture on a terminal that moves: figures, the plan as a tree, the newest decisions.

A frame is made of a `Standing` for the size that the terminal has. What does not fit is left out,
the least telling first; no line is ever wider or the whole higher than the terminal.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.control import Control
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from anabranch.events import Observation
from anabranch.view.glyphs import curve, printable
from anabranch.view.plan_tree import tree
from anabranch.view.standing import Entry, Standing, rates, steady
from anabranch.view.words import (
    backlog_line,
    duration,
    known_lag_ms,
    latency_line,
    milliseconds,
    work_line,
)

FRAMES_PER_S = 4
CURVE_CELLS = 30
LEAST_CURVE = 8
JOURNAL_LINES = 8
HEAD_SHARE = JOURNAL_SHARE = 3
"""Where there are few lines, one in three is for the figures; of the others, one in three is for
the journal."""
INDENT = 11
"""Cells in front of an entry of the journal: the time."""


class Size(NamedTuple):
    """Cells of a terminal, and whether it knows only ASCII."""

    width: int
    height: int
    ascii_only: bool = False


@contextmanager
def on_terminal(standing: Callable[[], Standing], console: Console) -> Iterator[None]:
    """Draw while the block runs, when there is news; leave nothing behind."""
    drawn = _Drawn(standing, console)
    over = threading.Event()
    # Whatever the run prints goes above the picture.
    with Live(
        get_renderable=drawn.frame,
        console=console,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),
        transient=True,
        vertical_overflow="crop",
    ) as live:

        def keep_drawing() -> None:
            while not over.wait(1 / FRAMES_PER_S):
                if drawn.outdated():
                    if drawn.too_wide():
                        console.control(Control.home(), Control.clear())
                    live.refresh()

        live.refresh()
        drawing = threading.Thread(target=keep_drawing, name="anabranch-terminal", daemon=True)
        drawing.start()
        try:
            yield
        finally:
            over.set()
            drawing.join()


class _Picture:
    """Lines that fit already: nothing has to be measured or wrapped again."""

    def __init__(self, lines: Sequence[Text]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for number, line in enumerate(self._lines):
            if number:
                yield Segment.line()
            yield from line.render(console)


class _Drawn:
    """The newest frame: it is made again only when there is news, or another size to fill."""

    def __init__(self, standing: Callable[[], Standing], console: Console) -> None:
        self._standing, self._console = standing, console
        self._made_of: tuple[int, Size] | None = None
        self._frame = _Picture(())
        self._seen: Observation | None = None

    def outdated(self) -> bool:
        return self._made_of != (self._standing().news, self._size())

    def too_wide(self) -> bool:
        """Whether the terminal has wrapped the lines of the last frame: nobody knows where."""
        return self._made_of is not None and self._made_of[1].width > self._console.width

    def frame(self) -> _Picture:
        now, size = self._standing(), self._size()
        if self._made_of != (now.news, size):
            self._seen = steady(now.seen, self._seen)
            self._frame = _Picture(frame(replace(now, seen=self._seen), size))
            self._made_of = (now.news, size)
        return self._frame

    def _size(self) -> Size:
        options = self._console.options
        # The cursor needs a line of its own, or the terminal scrolls.
        return Size(self._console.width, self._console.height - 1, options.ascii_only)


def frame(now: Standing, size: Size) -> list[Text]:
    """The lines of a picture: never more, and none wider, than the size."""
    if size.height < 1:
        return []
    head = header(now, size.width)[: max(1, size.height // HEAD_SHARE)]
    room = size.height - len(head)
    kept = len(journal(now.journal, size.width, room // JOURNAL_SHARE))
    lines = head + tree(now, size.width, room - (kept + 1 if kept else 0))
    if kept:
        left = min(JOURNAL_LINES, size.height - len(lines) - 1)
        lines += [Text(), *journal(now.journal, size.width, left)]
    return [_fitted(line, size) for line in lines]


def header(now: Standing, width: int) -> list[Text]:
    """Where it runs and how fast; what rows have to wait; how many there were."""
    seen = now.seen
    if seen is None:
        return [Text(printable(now.title), style="bold")]
    lag_ms = known_lag_ms(seen)
    waits = [
        latency_line(seen.latency_p50_ms, seen.latency_p99_ms),
        *([f"lag {milliseconds(lag_ms)}"] if lag_ms is not None else []),
        f"backlog {backlog_line(seen)}",
    ]
    return [
        first_line(now, seen, width),
        Text(f"latency  {'   '.join(waits)}"),
        Text(f"rows     {now.rows}"),
        Text(printable(work_line(seen)), style="dim"),
    ]


def first_line(now: Standing, seen: Observation, width: int) -> Text:
    """What runs, how fast, for how long, and how fast it was in the last minute."""
    rate = f"{now.rate_per_s:,.0f} rows/s"
    whole = (now.title, rate, duration(seen.at_s))
    shorter = [printable("  ".join(each)) for each in (whole, whole[:2], (now.name, rate))]
    line = Text(next((each for each in shorter if cell_len(each) < width), rate), style="bold")
    cells = min(CURVE_CELLS, width - line.cell_len - 2)
    if line.plain == shorter[0] and cells >= LEAST_CURVE:
        line.append("  " + curve(rates(now.minute, cells)).lstrip(), style="not bold cyan")
    return line


def journal(entries: Sequence[Entry], width: int, room: int) -> list[Text]:
    """The newest decisions and plan changes, as many as there is room for, newest last."""
    lines: list[Text] = []
    for entry in reversed(entries):
        told = entry_lines(entry, width)
        if len(lines) + len(told) > room:
            break
        lines = told + lines
    if entries and room > 0 and not lines:  # the newest is too long: its beginning
        lines = entry_lines(entries[-1], width)[:room]
        lines[-1].append(" …")
    return lines


def entry_lines(entry: Entry, width: int) -> list[Text]:
    """An entry of the journal, wrapped at words; without its time where that takes too much."""
    timed = width >= 4 * INDENT
    indent = INDENT if timed else 2
    pieces = wrapped(printable(entry.text), width - indent)
    first = f"{entry.at_s:7.1f} s" if timed else "–"
    fronts = [first, *[""] * (len(pieces) - 1)]
    parts = zip(fronts, pieces, strict=True)
    return [Text.assemble((front.ljust(indent), "dim"), piece) for front, piece in parts]


@lru_cache(maxsize=64)  # entries of the journal stay for many frames
def wrapped(text: str, width: int) -> tuple[str, ...]:
    """A text in lines of some cells, broken between words where there are any.

    Example:
        >>> wrapped("1 → 2 replicas of region count", 12)
        ('1 → 2', 'replicas of', 'region count')
    """
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        line = word
        while cell_len(line) > width > 1:  # a word that no line has room for
            head = line[: max(1, width // 2)]  # a character may take two cells
            lines.append(head)
            line = line[len(head) :]
    return (*lines, line)


def _fitted(line: Text, size: Size) -> Text:
    """No wider than the terminal, in characters that it has."""
    fitting = line.copy()
    fitting.truncate(size.width, overflow="ellipsis")
    if size.ascii_only:
        fitting.plain = printable(fitting.plain, ascii_only=True)
    return fitting
