"""A plan as a tree of lines: sources, regions, pipelines, and how busy each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from anabranch.planning.plan import RegionPlan, SourcePlan
from anabranch.view.answers import counted
from anabranch.view.glyphs import bar, printable
from anabranch.view.standing import Pipeline, Standing, bottleneck
from anabranch.view.words import readers_line

BAR_CELLS = 10
BUSY_CELLS = len("100 %")
MARK = "bottleneck"
ROOM_FOR_BARS = 60
ROOM_FOR_MARKS = 36
WARM, HOT = 0.5, 0.8
"""From these busy shares on, a bar is yellow or red."""


@dataclass(frozen=True)
class Row:
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


def tree(now: Standing, width: int, room: int) -> list[Text]:
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
    left_out: list[Row] = []
    if len(rows) > room:
        busiest = sorted(rows, key=lambda row: row.busy or 0.0, reverse=True)
        left_out = busiest[room - 1 :]
        rows = [row for row in rows if row not in left_out]
    return drawn(rows, width) + ([_rest(left_out)] if left_out else [])


def source_row(
    now: Standing, source: SourcePlan, busy: Mapping[Pipeline, float], marked: Pipeline | None
) -> Row:
    """A source: readers, rate, what waits there, and how busy the readers are."""
    figures = ""
    for seen in now.seen.sources if now.seen is not None else ():
        if seen.source == source.source:
            figures = f"  {seen.rate_per_s:,.0f} rows/s"
            figures += "" if seen.backlog_rows is None else f", {seen.backlog_rows:,} wait"
    key = (source.source, (source.source,))
    label = f"{source.source}  {readers_line(source)}"
    return Row(label, busy.get(key), marked == key, figures=figures)


def region_rows(
    region: RegionPlan, busy: Mapping[Pipeline, float], marked: Pipeline | None
) -> list[Row]:
    """A region and its pipelines; one line where the only pipeline has nothing more to say."""
    leaves = [
        Row(
            " · ".join(steps),
            busy.get((region.region, steps)),
            marked == (region.region, steps),
            leaf=True,
        )
        for steps in region.pipelines
    ]
    if [leaf.label for leaf in leaves] == [region.region]:
        return [in_one(region, leaves)]
    return [Row(_region_label(region)), *leaves]


def in_one(region: RegionPlan, rows: list[Row]) -> Row:
    """A region in one line: its busiest pipeline speaks for it."""
    known = [row.busy for row in rows if row.busy is not None]
    return Row(_region_label(region), max(known, default=None), any(r.marked for r in rows))


def _region_label(region: RegionPlan) -> str:
    return f"{region.region}  {counted(region.replicas, 'replica')}"


def drawn(rows: list[Row], width: int) -> list[Text]:
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


def fronts(rows: list[Row]) -> list[str]:
    """The branches in front of the labels.

    Example:
        >>> print(*fronts([Row("lines"), Row("a"), Row("b", leaf=True), Row("c")]), sep="|")
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


def _rest(left_out: list[Row]) -> Text:
    known = [row.busy for row in left_out if row.busy is not None]
    at_most = f", at most {max(known) * 100:.0f} % busy" if known else ""
    return Text(f"   … {len(left_out)} more{at_most}", style="dim")
