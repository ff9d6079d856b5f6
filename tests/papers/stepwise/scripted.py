"""Runs made up by hand, so that every rule can be seen to hold and to fail."""

from __future__ import annotations

from papers.stepwise.paper import Results
from papers.stepwise.profiling import METHODS, STELA, STEPWISE, Round, Scaling

REVOKED = "9.0 s  stepwise: profiled: 2 revocations in a row, noted"
NEAR = "9.0 s  stepwise: profiled: all regions within 2× of their least latency, noted"


def run(
    *rates: float,
    method: str = STEPWISE,
    nodes: int = 6,
    journal: tuple[str, ...] = (NEAR,),
    grows: bool = True,
) -> Scaling:
    """A run with such throughputs, round by round; tasks grow with them if not told otherwise."""
    rounds = tuple(
        Round((1, number + 1 if grows else 1), (rate, rate), 40.0)
        for number, rate in enumerate(rates)
    )
    return Scaling("T", method, nodes, rounds, 0, True, journal)


def figure_11() -> dict[str, dict[str, Scaling]]:
    """Every claim of figure 11 holds."""

    def methods(*rates: float, journal: tuple[str, ...] = (NEAR,)) -> dict[str, Scaling]:
        found = {name: run(100, 200, 300, 250, method=name) for name in METHODS}
        found["threshold"] = run(100, 110, 120, 130, method="threshold")
        return found | {STEPWISE: run(*rates, journal=journal)}

    kept = "5.0 s  stepwise: region op3: 1 → 2 replicas, tried, gained 9.0%, kept"
    return {
        "Linear": methods(100, 200, 150, 195),
        "Star": methods(100, 200, 300, 300),
        "Diamond": methods(100, 200, 300, 320, journal=(kept, NEAR)),
        "WC": methods(150, 300, 500, 600),
        "SWC": methods(140, 300, 400, 500, 510, 520),
        "TSA": methods(150, 300, 500, 600, journal=(REVOKED,)),
    }


def lines() -> dict[int, Scaling]:
    return {6: run(100, 150, 180), 8: run(100, 120, 140), 12: run(100, 110, 115)}


def sizes() -> dict[int, Scaling]:
    return {6: run(100, 600), 10: run(100, 900), 14: run(100, 1100)}


def figure_13() -> dict[int, dict[str, Scaling]]:
    return {
        n: {STEPWISE: run(500, 1600.0 * n), STELA: run(500, 900.0 * n, method=STELA)}
        for n in (2, 4, 8)
    }


def figure_14() -> dict[str, dict[float, Scaling]]:
    tried = "5.0 s  stepwise: region op3: 1 → 2 replicas, tried"
    return {
        "latency_ms": {300.0: run(100, 200), 500.0: run(100, 300), 700.0: run(100, 300)},
        "unit": {0.1: run(120, 110, 115), 0.3: run(100, 300), 0.5: run(90, 250)},
        "k": {
            1.5: run(100, 300, journal=(tried,) * 4),
            2.0: run(100, 300, journal=(tried,) * 2),
            3.0: run(100, 290, journal=()),
        },
    }


def results() -> Results:
    return Results(figure_11(), lines(), sizes(), figure_13(), figure_14())
