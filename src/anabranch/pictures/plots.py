"""Plots of numbers, as SVG text that is the same whenever it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any

from anabranch.errors import EngineError, Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
ROW_INCHES = 0.32
MOST_WORDED = 12
"""Of more marks than these only the numbers are written."""
BESIDE = (1.0, 0.5)
"""Where the legend is: right of the axes, so that it hides no line."""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Bars of one kind, a number for each of several names; None where there is none.

    Attributes:
        label: What they measure, with its unit.
        values: One for each name.
        log: Whether they are drawn to a scale of powers.
    """

    label: str
    values: Sequence[float | None]
    log: bool = False


def require(option: str = "--out") -> None:
    """Raise unless plots can be drawn here, which an option of the command line asks for."""
    if find_spec("matplotlib") is None:
        remedy = f'run: pip install "anabranch[plots]", or leave out {option}'
        raise EngineError(Subject("package", "matplotlib"), "matplotlib", "none", remedy)


def lines(
    title: str,
    x: str,
    y: str,
    series: Mapping[str, Points],
    log_y: bool = False,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """A line for each series of points, and upright ones with words where something happened.

    Example:
        >>> picture = lines("Sizes", "year", "metres", {"house": [(1, 3.0), (2, 5.0)]})
        >>> picture.startswith("<?xml"), "house" in picture
        (True, True)
    """
    with drawn(title, x, y) as (axes, text):
        for number, (name, points) in enumerate(series.items()):
            across, up = [point[0] for point in points], [point[1] for point in points]
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(across, up, label=name, marker=marker, markersize=4)
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        _mark(axes, marks)
        axes.legend(loc="center left", bbox_to_anchor=BESIDE)
    return text.getvalue()


def _mark(axes: Axes, marks: Sequence[tuple[float, str]]) -> None:
    for number, (place, words) in enumerate(marks, start=1):
        told = words if len(marks) <= MOST_WORDED else str(number)
        axes.axvline(place, color="0.4", linestyle=":", linewidth=1)
        axes.annotate(
            _plain(told),
            (place, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(2, 0),
            textcoords="offset points",
            rotation=90,
            fontsize=7,
            color="0.3",
        )


def panels(title: str, names: Sequence[str], shown: Sequence[Panel]) -> str:
    """Bars that lie, panel beside panel: the numbers of a name stand in one row.

    Example:
        >>> sizes = Panel("metres", [3.0, 5.0])
        >>> picture = panels("Sizes", ["house", "tower"], [sizes, Panel("rooms", [4, None])])
        >>> all(word in picture for word in ("house", "tower", "metres", "rooms"))
        True
    """
    size = (SIZE_INCHES[0] * 1.3, 1.2 + ROW_INCHES * len(names))
    with _figure(size) as (figure, text):
        figure.suptitle(_plain(title))
        # All see the same axis of names, from top to bottom.
        every = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        places = range(len(names))
        every[0].set_yticks(places, [_plain(name) for name in names])
        every[0].invert_yaxis()
        for axes, panel in zip(every, shown, strict=True):
            known = [
                (place, value)
                for place, value in zip(places, panel.values, strict=True)
                if value is not None and (value > 0 or not panel.log)
            ]
            drawn = axes.barh([p for p, _ in known], [v for _, v in known], height=0.6)
            axes.bar_label(drawn, [_short(v) for _, v in known], padding=3, fontsize=8)
            axes.set_xlabel(panel.label)
            axes.margins(x=0.18)
            axes.grid(visible=False, axis="y")
            if panel.log and known:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    return text.getvalue()


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plain(text: str) -> str:
    """Text whose dollars are dollars, and not the beginning of a formula."""
    return text.replace("$", r"\$")


@contextmanager
def drawn(title: str, x: str, y: str) -> Iterator[tuple[Axes, StringIO]]:
    """Axes to draw on, and where the text of the picture is when they are left."""
    with _figure(SIZE_INCHES) as (figure, text):
        axes = figure.add_subplot()
        axes.set_title(_plain(title))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        yield axes, text


@contextmanager
def _figure(size: tuple[float, float]) -> Iterator[tuple[Figure, StringIO]]:
    """A figure to draw on, and where its text is when it is left."""
    require()
    # The figure alone, without pyplot: that would choose a display and keep what was drawn.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = StringIO()
    with rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, text
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
