"""Measurements made up by hand, so that every rule can be seen to hold and to fail."""

from __future__ import annotations

from papers.claims import Machine
from papers.stretch.figure4 import Contest, LineRun, Point
from papers.stretch.figure5 import Elastic, Intra, Phase, Seen, Single, Switched
from papers.stretch.model import PURE, VIRTUAL, series
from papers.stretch.paper import Results

THREADS = (1, 2, 4)


def machine(cores: int, free_share: float = 1.0) -> Machine:
    return Machine(cores, "Linux", "3.11", free_share)


def contest(virtual, pure, *, latency=((10.0,) * 3, (300.0,) * 3), model=None) -> Contest:
    """Rates of V_SN and P_SN with 1, 2 and 4 threads; the model agrees unless told otherwise."""
    rates = {"V_SN": virtual, "P_SN": pure}
    waited = dict(zip(rates, latency, strict=True))
    points = [
        Point(way, n, rates[way][i], waited[way][i], (0.1, 1.0, 0.1), (model or rates)[way][i])
        for i, n in enumerate(THREADS)
        for way in rates
    ]
    return Contest(tuple(points), {"V_SN": VIRTUAL, "P_SN": PURE})


def intra(*comparisons: float) -> list[Intra]:
    return [Intra(n, c, 1000.0, 50.0, 0.1) for n, c in zip(THREADS, comparisons, strict=False)]


def single(gated=(100.0, 20.0), buffered=(100.0, 10.0)) -> Single:
    """Tuples per second and latency of each."""
    runs = [LineRun(w, 1, 100, 100 / r, ms, (1, 1, 1)) for w, (r, ms) in
            (("V_SN", gated), ("single", buffered))]  # fmt: skip
    return Single(*runs)


def elastic(taken=1200.0, latency=(30.0, 30.0), threads=(1, 2), load=1.2, ms=5.0, pct=0.5):
    """1000 tuples a second are the most; what was taken in and waited for after the change."""
    before = Phase(threads[0], 0.7, 700.0, Seen(5.0, 700.0, 1e6, latency[0], 0.0))
    after = Phase(threads[1], load, load * 1000, Seen(5.0, taken, 1e6, latency[1], pct))
    return Elastic(before, after, Switched(*threads, ms, ms / 2, pct))


def results() -> Results:
    both = contest((3.0, 6.0, 6.0), (2.0, 3.0, 2.0))
    return Results(
        {"V_SN": {1: series(VIRTUAL, [1])[0]}, "P_SN": {1: series(PURE, [1])[0]}},
        both,
        both,
        intra(1e8, 2e8),
        intra(1e9)[0],
        single(),
        elastic(),
        elastic(300.0, threads=(2, 1), load=0.3),
        [Switched(1, 2, 5.0, 2.0, 0.1)],
    )
