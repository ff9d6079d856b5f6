"""Pictures for the pages of reproductions, as SVG text that is the same whenever it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

from anabranch.errors import EngineError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (6.4, 3.8)
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "anabranch",  # identifiers that do not change from run to run
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
MARKERS = "osD^vPX*"
BESIDE = (1.0, 0.5)
"""Where the legend is: right of the axes, so that it hides no line."""
Points = Sequence[tuple[float, float]]


def require() -> None:
    """Raise unless pictures can be drawn here."""
    if find_spec("matplotlib") is None:
        raise EngineError(
            "plots", "matplotlib", "none", 'run: pip install "anabranch[plots]", or leave out --out'
        )


def lines(title: str, x: str, y: str, series: Mapping[str, Points], log_y: bool = False) -> str:
    """A line with marks for each series of points.

    Example:
        >>> picture = lines("Sizes", "year", "metres", {"house": [(1, 3.0), (2, 5.0)]})
        >>> picture.startswith("<?xml"), "house" in picture
        (True, True)
    """
    with _drawn(title, x, y) as (axes, text):
        for number, (name, points) in enumerate(series.items()):
            across, up = [point[0] for point in points], [point[1] for point in points]
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(across, up, label=name, marker=marker, markersize=4)
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=BESIDE)
    return text.getvalue()


def bars(title: str, y: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Bars side by side: a colour for each name within the groups.

    Example:
        >>> picture = bars("Sizes", "metres", {"here": {"house": 3.0}, "there": {"house": 5.0}})
        >>> "here" in picture and "there" in picture
        True
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / len(names)
    with _drawn(title, "", y) as (axes, text):
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
    with _drawn(title, x, y) as (axes, text):
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


@contextmanager
def _drawn(title: str, x: str, y: str) -> Iterator[tuple[Axes, StringIO]]:
    """Axes to draw on, and where the text of the picture is when they are left."""
    require()
    # The figure alone, without pyplot: that would choose a display and keep what was drawn.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = StringIO()
    with rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        yield axes, text
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
