"""Pictures of the reproduction of Joker."""

from __future__ import annotations

from math import log2

from anabranch.pictures import plots
from anabranch.reproduce.joker.adapted import Adapted
from anabranch.reproduce.joker.models import Compared
from anabranch.reproduce.joker.page import file_name
from anabranch.reproduce.joker.reproduction import Reproduction
from anabranch.reproduce.joker.traces import LOAD_S, LOADS_PER_S, Traces

RATE = "thousand tuples/s"
MOST_POINTS = 120


def pictures(found: Reproduction) -> dict[str, str]:
    """An SVG text for each figure, by file name."""
    drawn = {}
    for curves in found.curves:
        series = {
            name: [(log2(point.x), point.speedup) for point in points]
            for name, points in curves.series.items()
        }
        title = f"{curves.figure.capitalize()}: speedup"
        across = f"{curves.varied}, as a power of 2"
        drawn[file_name(curves.figure)] = plots.lines(title, across, "speedup", series)
    for traces in found.traces:
        drawn[file_name(traces.figure)] = _over_time(traces)
    drawn[file_name("Figures 22–32")] = _bars(found.compared)
    return drawn


def _over_time(traces: Traces) -> str:
    series = {name: _points(run) for name, run in traces.runs.items()}
    if traces.figure == "figure 11":
        offered = []
        for number, rate in enumerate(LOADS_PER_S):
            offered += [(LOAD_S * number, rate / 1e3), (LOAD_S * (number + 1) - 1, rate / 1e3)]
        series = {"offered": offered, **series}
    title = f"{traces.figure.capitalize()}: {traces.title}"
    return plots.lines(title, "second", RATE, series)


def _points(run: Adapted) -> list[tuple[float, float]]:
    step = -(-len(run.rates) // MOST_POINTS)
    seconds = range(0, len(run.rates), step)
    return [(float(second + 1), run.rates[second] / 1e3) for second in seconds]


def _bars(found: tuple[Compared, ...]) -> str:
    groups = {
        f"{each.factor:g}": {
            "Joker": each.joker.rate_per_s / 1e3,
            "model": each.model.rate_per_s / 1e3,
            "model, mistaken": each.mistaken.rate_per_s / 1e3,
        }
        for each in found
    }
    return plots.bars("Figure 32: throughput by factor of selectivities", RATE, groups)
