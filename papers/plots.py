"""Plots that only papers have: bars in groups and coloured tables, as SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.pictures.plots import BESIDE, drawn


def bars(title: str, y: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Bars side by side: a colour for each name within the groups.

    Example:
        >>> picture = bars("Sizes", "metres", {"here": {"house": 3.0}, "there": {"house": 5.0}})
        >>> "here" in picture and "there" in picture
        True
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / len(names)
    with drawn(title, "", y) as (axes, text):
        for number, name in enumerate(names):
            places = [
                place + (number - (len(names) - 1) / 2) * width for place in range(len(groups))
            ]
            heights = [group.get(name, 0.0) for group in groups.values()]
            axes.bar(places, heights, width, label=name)
        axes.set_xticks(range(len(groups)), list(groups))
        axes.legend(loc="center left", bbox_to_anchor=BESIDE)
    return text.getvalue()


def heat_map(
    title: str,
    x: str,
    y: str,
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[float]],
    form: str = "{:.0f}",
) -> str:
    """A coloured table: values by row and column, written into their cells.

    Example:
        >>> picture = heat_map("Sizes", "year", "house", ["1", "2"], ["a"], [[3.0, 52.0]])
        >>> ">52<" in picture
        True
    """
    with drawn(title, x, y) as (axes, text):
        axes.imshow(values, aspect="auto", cmap="YlGnBu")
        axes.grid(visible=False)
        axes.set_xticks(range(len(columns)), list(columns))
        axes.set_yticks(range(len(rows)), list(rows))
        dark = max(max(row) for row in values) * 0.6
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                colour = "white" if value > dark else "black"
                axes.text(column, row, form.format(value), ha="center", va="center", color=colour)
    return text.getvalue()
