"""Curves made up by hand, so that every rule can be seen to hold and to fail."""

from __future__ import annotations

from anabranch.planning.profile import Overheads
from papers.claims import Machine
from papers.pipelined_fission.engine import EngineCurves, EnginePoint
from papers.pipelined_fission.model import APPROACHES, CoresPoint, Curves, Point, SolveTime
from papers.pipelined_fission.paper import Results


def machine(cores=2, free_share=1.0):
    return Machine(cores, "Linux", "3.11", free_share)


def curves(figure, xs=(1.0, 2.0, 3.0, 4.0), **columns):
    """One number or one per point for each approach; by default the claims of most figures hold."""
    given = {"sequential": 1.0, "fission": 3.0, "exact": 3.05} | columns
    given = {"fission-only": 2.0, "pipelining-only": 2.0} | given
    spread = {
        name: value if isinstance(value, (list, tuple)) else [value] * len(xs)
        for name, value in given.items()
    }
    points = (Point(x, {name: spread[name][i] for name in APPROACHES}) for i, x in enumerate(xs))
    return Curves(figure, "something", tuple(points))


def as_the_paper_says():
    """Curves that agree with every claim of figures 5 to 11."""
    return {
        "figure 5": curves("figure 5", **{"fission-only": [2.2, 2.1, 2.0, 1.9]}),
        "figure 6": curves("figure 6", **{"fission-only": [1.8, 1.9, 2.1, 2.2]}),
        "figure 7": curves("figure 7", **{"fission-only": [1.5, 1.7, 2.0, 2.5]}),
        "figure 8": curves("figure 8", **{
            "fission": [3.0, 2.9, 2.7, 2.4],
            "exact": [3.1, 2.95, 2.7, 2.4],
            "pipelining-only": 2.4,
            "fission-only": [2.9, 2.4, 2.0, 1.8],
        }),
        "figure 9": curves("figure 9", **{
            name: [high, high * 0.9, high * 0.8, high * 0.7]
            for name, high in zip(APPROACHES[1:], (3.0, 3.05, 2.2, 2.4), strict=True)
        }),
        "figure 10": curves("figure 10", xs=(1, 4, 8, 12), **{"fission": 3.0, "exact": 3.2}),
        "figure 11": curves("figure 11", **{"pipelining-only": [1.0, 1.6, 2.1, 2.3]}),
    }  # fmt: skip


def engine_curves(figure, fission=(90.0, 80.0), exact=(95.0, 82.0), sequential=(50.0, 45.0)):
    rates = zip(sequential, fission, exact, strict=True)
    names = ("sequential", "fission", "exact")
    points = (
        EnginePoint(float(x), dict(zip(names, row, strict=True)), 0.5)
        for x, row in enumerate(rates)
    )
    return EngineCurves(figure, "something", tuple(points))


def engine():
    kinds = {"sequential": (50.0, 51.0), "fission": (70.0, 90.0), "exact": (72.0, 92.0)}
    falling = [engine_curves(f"figure {n}") for n in (13, 14, 15)]
    return [*falling, engine_curves("figure 16", **kinds)]


def times(fission_ms=1.0, slow_ms=9000.0):
    return [SolveTime(5, 5, 600, 0.5, 2.0, 3.0), SolveTime(9, 9, 700_000, fission_ms, 8.0, slow_ms)]


def log_watch(fission=9.0):
    one = CoresPoint(1, {"sequential": 10.0, "fission": 10.0, "exact": 10.0})
    return [one, CoresPoint(12, {"sequential": 1.0, "fission": fission, "exact": 9.2})]


def here(speedup=1.8):
    return EnginePoint(2, {"sequential": 100.0, "fission": 100.0 * speedup, "exact": 180.0}, 1.0)


def results() -> Results:
    return Results(
        {2: [4, 12, 40, 84, 144]},
        list(as_the_paper_says().values()),
        times(),
        Overheads(0.1, 2.0),
        engine(),
        log_watch(),
        1.0,
        here(),
    )
