"""Pictures of the reproduction of BriskStream: figures 8, 9, 10 and 12 to 16."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.pictures import plots
from anabranch.reproduce.briskstream.planning import TRAY
from anabranch.reproduce.briskstream.reproduction import Reproduction

MILLIONS = 1000.0
STEPS = 50
"""Points of a curve of figure 14."""


def pictures(found: Reproduction) -> dict[str, str]:
    """Texts of pictures by file name."""
    drawn = {file_of(figure): draw(found) for figure, draw in DRAWN.items()}
    for one in found.patterns:
        sockets = [f"S{number}" for number in range(len(one.fetching))]
        drawn[file_of(f"15-{one.server}")] = plots.heat_map(
            f"Figure 15: cores that wait for tuples, {one.server}",
            "to",
            "from",
            sockets,
            sockets,
            one.fetching,
            "{:.1f}",
        )
    return drawn


def file_of(figure: str) -> str:
    """The file of a figure.

    Example:
        >>> file_of("9b")
        'briskstream-figure-9b.svg'
    """
    return f"briskstream-figure-{figure}.svg"


def _figure_8(found: Reproduction) -> str:
    groups = {
        one.operator: {"execute": one.execute_ns, "remote access": one.fetch_ns}
        for one in found.breakdown
    }
    return plots.bars("Figure 8: time per tuple", "ns", groups)


def _figure_9(found: Reproduction) -> str:
    series = {
        one.app.upper(): [(float(n), one.speedup(n)) for n in one.throughput_k]
        for one in found.scaling
    }
    counts = list(found.scaling[0].throughput_k)
    series["linear"] = [(float(n), float(n)) for n in counts]
    title = f"Figure 9b: throughput over that of one socket (a tray has {TRAY})"
    return plots.lines(title, "sockets", "times", series)


def _figure_10(found: Reproduction) -> str:
    groups = {
        one.app.upper(): {
            "RLAS": one.real_k / one.ideal_k,
            "without remote access": one.without_remote_k / one.ideal_k,
            "ideal": 1.0,
        }
        for one in found.gaps
    }
    return plots.bars("Figure 10: gaps to ideal", "part of ideal", groups)


def _figure_12(found: Reproduction) -> str:
    groups = {
        one.app.upper(): {
            "RLAS": one.rlas_k / MILLIONS,
            "fix(L)": one.always_k / MILLIONS,
            "fix(U)": one.never_k / MILLIONS,
        }
        for one in found.fixed
    }
    return plots.bars("Figure 12: beliefs about remote access", "M events/s", groups)


def _figure_13(found: Reproduction) -> str:
    groups = {
        f"{one.app.upper()} {one.server[-1].upper()}": {
            name: k / one.throughput_k["RLAS"] for name, k in one.throughput_k.items()
        }
        for one in found.placed
    }
    return plots.bars("Figure 13: placement, by server", "part of RLAS's throughput", groups)


def _figure_14(found: Reproduction) -> str:
    series = {}
    for one in found.random:
        every = max(1, len(one.shares) // STEPS)
        points = list(enumerate(one.shares, 1))[::every]
        series[one.app.upper()] = [(share, rank / len(one.shares)) for rank, share in points]
    title = f"Figure 14: {len(found.random[0].shares)} random plans"
    return plots.lines(title, "part of RLAS's throughput", "share of plans below", series)


def _figure_16(found: Reproduction) -> str:
    # One word a line, so that names stand beside each other.
    groups = {
        one.factor.name.replace(" ", "\n"): {"words": one.words_per_s / 1e6}
        for one in found.factors
    }
    return plots.bars("Figure 16: factors on our engine", "M words/s", groups)


DRAWN: Mapping[str, Callable[[Reproduction], str]] = {
    "8": _figure_8,
    "9b": _figure_9,
    "10": _figure_10,
    "12": _figure_12,
    "13": _figure_13,
    "14": _figure_14,
    "16": _figure_16,
}
"""Figures with one picture each; figure 15 has one for each server."""
