"""A run as a picture on a terminal that moves: figures, the plan as a tree, the newest decisions.

A frame is made of a `RunState` for the size that the terminal has. What does not fit is left out,
the least telling first; no line is ever wider or the whole higher than the terminal.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.control import Control
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from anabranch.events import Observation
from anabranch.planning.plan import RegionPlan, SourcePlan
from anabranch.view.plan_report import counted
from anabranch.view.run_state import JournalEntry, Pipeline, RunState, bottleneck, rates, steady
from anabranch.view.serial_report import serial_line
from anabranch.view.text import (
    backlog_line,
    bar,
    curve,
    duration,
    known_lag_ms,
    latency_line,
    milliseconds,
    printable,
    readers_line,
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
def on_terminal(standing: Callable[[], RunState], console: Console) -> Iterator[None]:
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

    def __init__(self, standing: Callable[[], RunState], console: Console) -> None:
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


def frame(now: RunState, size: Size) -> list[Text]:
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


def header(now: RunState, width: int) -> list[Text]:
    """Where it runs and how fast; what rows have to wait; how many there were; what is serial."""
    seen = now.seen
    if seen is None:
        return [Text(printable(now.title), style="bold")]
    lag_ms, serial = known_lag_ms(seen), serial_line(now.serial())
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
        *([Text(printable(f"serial   {serial}"), style="dim")] if serial is not None else []),
    ]


def first_line(now: RunState, seen: Observation, width: int) -> Text:
    """What runs, how fast, for how long, and how fast it was in the last minute."""
    rate = f"{now.rate_per_s:,.0f} rows/s"
    whole = (now.title, rate, duration(seen.at_s))
    shorter = [printable("  ".join(each)) for each in (whole, whole[:2], (now.name, rate))]
    line = Text(next((each for each in shorter if cell_len(each) < width), rate), style="bold")
    cells = min(CURVE_CELLS, width - line.cell_len - 2)
    if line.plain == shorter[0] and cells >= LEAST_CURVE:
        line.append("  " + curve(rates(now.minute, cells)).lstrip(), style="not bold cyan")
    return line


def journal(entries: Sequence[JournalEntry], width: int, room: int) -> list[Text]:
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


def entry_lines(entry: JournalEntry, width: int) -> list[Text]:
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


# A plan as a tree of lines: sources, regions, pipelines, and how busy each of them is.

BAR_CELLS = 10
BUSY_CELLS = len("100 %")
MARK = "bottleneck"
ROOM_FOR_BARS = 60
ROOM_FOR_MARKS = 36
WARM, HOT = 0.5, 0.8
"""From these busy shares on, a bar is yellow or red."""


@dataclass(frozen=True)
class TreeLine:
    """A line of the tree, before it is laid out.

    Attributes:
        label: What stands at its left.
        busy: How busy it is; None where nobody knows.
        marked: Whether it holds the others up.
        leaf: Whether it is a pipeline, in a region.
        figures: What stands at its right.
    """

    label: str
    busy: float | None = None
    marked: bool = False
    leaf: bool = False
    figures: str = ""


def tree(now: RunState, width: int, room: int) -> list[Text]:
    """The plan in no more lines than there is room for, the busiest regions if not all.

    Nothing before there is a plan.
    """
    if now.plan is None or room < 1:
        return []
    busy, marked = now.busy(), bottleneck(now.seen)
    sources = [source_row(now, source, busy, marked) for source in now.plan.sources]
    whole = [region_rows(region, busy, marked) for region in now.plan.regions]
    rows = sources + [row for rows in whole for row in rows]
    if len(rows) > room:  # a line for each region
        rows = sources + [in_one(*each) for each in zip(now.plan.regions, whole, strict=True)]
    left_out: list[TreeLine] = []
    if len(rows) > room:
        busiest = sorted(rows, key=lambda row: row.busy or 0.0, reverse=True)
        left_out = busiest[room - 1 :]
        rows = [row for row in rows if row not in left_out]
    return drawn(rows, width) + ([_rest(left_out)] if left_out else [])


def source_row(
    now: RunState, source: SourcePlan, busy: Mapping[Pipeline, float], marked: Pipeline | None
) -> TreeLine:
    """A source: readers, rate, what waits there, and how busy the readers are."""
    figures = ""
    for seen in now.seen.sources if now.seen is not None else ():
        if seen.source == source.source:
            figures = f"  {seen.rate_per_s:,.0f} rows/s"
            figures += "" if seen.backlog_rows is None else f", {seen.backlog_rows:,} wait"
    key = (source.source, (source.source,))
    label = f"{source.source}  {readers_line(source)}"
    return TreeLine(label, busy.get(key), marked == key, figures=figures)


def region_rows(
    region: RegionPlan, busy: Mapping[Pipeline, float], marked: Pipeline | None
) -> list[TreeLine]:
    """A region and its pipelines; one line where the only pipeline has nothing more to say."""
    leaves = [
        TreeLine(
            " · ".join(steps),
            busy.get((region.region, steps)),
            marked == (region.region, steps),
            leaf=True,
        )
        for steps in region.pipelines
    ]
    if [leaf.label for leaf in leaves] == [region.region]:
        return [in_one(region, leaves)]
    return [TreeLine(_region_label(region)), *leaves]


def in_one(region: RegionPlan, rows: list[TreeLine]) -> TreeLine:
    """A region in one line: its busiest pipeline speaks for it."""
    known = [row.busy for row in rows if row.busy is not None]
    return TreeLine(_region_label(region), max(known, default=None), any(r.marked for r in rows))


def _region_label(region: RegionPlan) -> str:
    return f"{region.region}  {counted(region.replicas, 'replica')}"


def drawn(rows: list[TreeLine], width: int) -> list[Text]:
    """Rows as a tree, with bars below each other."""
    labels = [front + printable(row.label) for front, row in zip(fronts(rows), rows, strict=True)]
    pairs = list(zip(labels, rows, strict=True))
    widest = max((cell_len(label) for label, row in pairs if row.busy is not None), default=0)
    right = BUSY_CELLS + (1 + len(MARK) if width >= ROOM_FOR_MARKS else 0)
    right += BAR_CELLS + 1 if width >= ROOM_FOR_BARS else 0
    column = min(widest, max(1, width - right - 2))
    lines = []
    for label, row in pairs:
        if row.busy is None:
            lines.append(Text(label + row.figures))
            continue
        line = Text(_cut(label, column) + "  ")
        if width >= ROOM_FOR_BARS:
            line.append(bar(row.busy, BAR_CELLS) + " ", style=_style(row.busy))
        line.append(f"{row.busy * 100:3.0f} %", style=_style(row.busy))
        if row.marked and width >= ROOM_FOR_MARKS:
            line.append(f" {MARK}", style="bold red")
        if line.cell_len + cell_len(row.figures) <= width:
            line.append(row.figures)
        lines.append(line)
    return lines


def fronts(rows: list[TreeLine]) -> list[str]:
    """The branches in front of the labels.

    Example:
        >>> print(
        ...     *fronts(
        ...         [TreeLine("lines"), TreeLine("a"), TreeLine("b", leaf=True), TreeLine("c")]
        ...     ),
        ...     sep="|",
        ... )
        ├─ |├─ |│  └─ |└─
    """
    found = []
    for place, row in enumerate(rows):
        behind = rows[place + 1 :]
        trunk_goes_on = any(not each.leaf for each in behind)
        twig_goes_on = bool(behind) and behind[0].leaf
        if row.leaf:
            found.append(("│  " if trunk_goes_on else "   ") + ("├─ " if twig_goes_on else "└─ "))
        else:
            found.append("├─ " if trunk_goes_on else "└─ ")
    return found


def _cut(label: str, cells: int) -> str:
    """A label in exactly so many cells."""
    if cell_len(label) <= cells:
        return set_cell_size(label, cells)
    return set_cell_size(label, cells - 1) + "…"


def _style(busy: float) -> str:
    return "red" if busy >= HOT else "yellow" if busy >= WARM else "green"


def _rest(left_out: list[TreeLine]) -> Text:
    known = [row.busy for row in left_out if row.busy is not None]
    at_most = f", at most {max(known) * 100:.0f} % busy" if known else ""
    return Text(f"   … {len(left_out)} more{at_most}", style="dim")
