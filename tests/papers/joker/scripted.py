"""Adaptations made up by hand, so that every rule can be seen to hold and to fail."""

from __future__ import annotations

from papers.joker.models import Compared, Planned
from papers.joker.paper import Results
from papers.joker.runs import Adapted, Curves, Point, Shapes, Step, Traces

XS = (8.0, 64.0, 1024.0)


def point(x: float, speedup: float, together: bool = True, **shapes) -> Point:
    return Point(x, speedup, 9, shapes or {"m1": ((2, 2), 2)}, together)


def series(*speedups: float, **more) -> tuple[Point, ...]:
    return tuple(point(x, s, **more) for x, s in zip(XS, speedups, strict=True))


def figure_9(costly=(5, 9, 13), cheap=(4, 4, 4), speedups=(4.8, 8.7, 12.0)) -> Curves:
    points = tuple(
        point(x, speedup, costly=((1,), first), cheap=((1,), second))
        for x, speedup, first, second in zip(XS, speedups, costly, cheap, strict=True)
    )
    return Curves("figure 9", "cost", {"fusion first": points})


def curves(**changed: Curves) -> list[Curves]:
    """Curves as the paper tells them; others in the place of some."""
    told = {
        "figure_5": Curves("figure 5", "cost", {
            "fusion first": series(6.0, 12.0, 20.0),
            "fission first": series(6.0, 12.5, 20.0),
            "fusion only": series(2.0, 3.0, 4.0),
            "fission only": series(5.0, 7.0, 10.0),
        }),
        "figure_6": Curves("figure 6", "cost", {
            "2 operators": series(3.0, 5.0, 19.5),
            "8 operators": series(11.0, 15.0, 19.4),
        }),
        "figure_8": Curves("figure 8", "cost", {
            "tree": series(2.0, 4.0, 7.0),
            "reverse tree": series(2.0, 4.0, 7.0),
            "chain of 2": series(2.0, 5.0, 9.0),
            "chain of 4": series(3.0, 6.0, 11.0),
        }),
        "figure_9": figure_9(),
        "figure_12": Curves("figure 12", "cost", {
            "gain 0.1": series(6.0, 12.0, 20.0),
            "gain 0.2": series(4.0, 10.0, 19.0),
            "gain 0.4": series(2.0, 5.0, 11.0),
        }),
    }  # fmt: skip
    return list((told | changed).values())


def step(at_s: float, gain: float, kept: bool, **shapes) -> Step:
    return Step(at_s, shapes, 1000.0, gain, kept)


def adapted(
    steps: list[Step], end: Shapes, speedup: float = 4.0, rates=(1000.0,) * 120, **replicas
) -> Adapted:
    counts = replicas or {name: (count,) * 400 for name, (_, count) in end.items()}
    return Adapted(1000.0, 1000.0 * speedup, end, 9, tuple(steps), tuple(rates), counts)


ONE, TWO = ((7,), 1), ((3, 4), 1)


def figure_10_steps() -> tuple[Step, ...]:
    return (
        step(6, 0.04, False, m1=((3, 4), 1)),
        step(12, 0.67, True, m1=((7,), 2)),
        step(20, 0.09, False, m1=((3, 4), 2)),
        step(26, 0.46, True, m1=((7,), 3)),
        step(34, 0.14, True, m1=((3, 4), 3)),
    )


def figure_11_run(tried: tuple[float, ...], third: bool) -> Adapted:
    """A second replica in the last load, tries at some seconds before it, maybe a third."""
    steps = [step(at_s, 0.0, False, m=((1,), 2)) for at_s in tried]
    steps.append(step(242, 0.28, True, m=((1,), 2)))
    if third:
        steps.append(step(250, 0.0, False, m=((1,), 3)))
    return adapted(steps, {"m": ((1,), 2)}, 16.0, m=(1,) * 245 + (2,) * 115)


def figure_14_runs() -> dict[str, Adapted]:
    strict = [step(8 * n, 0.3, True, m1=((2,), n)) for n in range(2, 6)]
    strict.append(step(60, 0.0, False, m1=((2,), 6)))
    eager = []
    for each in strict:
        replicas = each.shapes["m1"][1] - 1
        eager += [step(each.at_s, 0.06, False, m1=((1, 1), replicas)), each]
    end = {"m1": ((2,), 5)}
    return {"utility 0.2": adapted(strict, end), "utility 0.1": adapted(eager, end)}


def figure_15_runs(strict_speedup: float = 5.0) -> dict[str, Adapted]:
    usual = [step(6, 0.7, True, m1=((1, 1), 1)), step(14, 0.8, True, m1=((1, 1), 2))]
    strict = [step(6, 0.9, True, m1=((2,), 2))]
    return {
        "utility 0.2": adapted(usual, {"m1": ((1, 1), 8)}, 8.3),
        "utility 0.9": adapted(strict, {"m1": ((2,), 8)}, strict_speedup),
    }


def figure_16_run() -> Adapted:
    shapes = [((3, 2), 1), ((3, 1, 1), 1), ((3, 1, 1), 2), ((3, 1, 1), 3)]
    steps = [step(6 + 8 * n, 0.5, True, m1=each) for n, each in enumerate(shapes)]
    rates = [1000.0] * 31 + [650.0] * 3 + [1400.0] * 30
    return adapted(steps, {"m1": shapes[-1]}, rates=rates)


def figure_18_run(replicas: int = 8) -> Adapted:
    wider = step(60, 0.02, False, count=((1,), replicas + 1))
    return adapted([wider], {"split": ((1,), 1), "count": ((1,), replicas)}, 5.0)


def figure_19_run(**end) -> Adapted:
    steps = [
        step(6, 0.9, True, volume=((2,), 2), bargain=((1,), 2)),
        step(14, 0.4, True, volume=((2,), 4), bargain=((1,), 6)),
    ]
    return adapted(steps, {"volume": ((2,), 4), "bargain": ((1,), 6)} | end, 4.4)


def figure_20_steps() -> tuple[Step, ...]:
    return (
        step(6, 1.3, True, filter=((2,), 1), window=((3,), 2)),
        step(14, 0.24, True, filter=((1, 1), 1), window=((3,), 3)),
    )


def traces(**changed) -> list[Traces]:
    """Adaptations as the paper tells them; other runs in the place of some figures'."""
    runs = {
        10: {"run": adapted(list(figure_10_steps()), {"m1": ((3, 4), 3)}, 2.9)},
        11: {
            "busy 0.5": figure_11_run((130, 190), True),
            "busy 0.8": figure_11_run((190,), True),
            "busy 0.95": figure_11_run((), False),
        },
        14: figure_14_runs(),
        15: figure_15_runs(),
        16: {"run": figure_16_run()},
        18: {"run": figure_18_run()},
        19: {"run": figure_19_run()},
        20: {"run": adapted(list(figure_20_steps()), figure_20_steps()[-1].shapes, 2.86)},
    }
    runs |= {int(figure.removeprefix("figure_")): each for figure, each in changed.items()}
    return [Traces(f"figure {number}", "a run", each) for number, each in runs.items()]


def planned(rate: float, threads: int, *shapes) -> Planned:
    return Planned(dict(zip(("mult1", "mult4", "mult5"), shapes, strict=True)), threads, rate)


ALONE = ((1,), 1)


def compared(
    factor: float, joker: float = 1000.0, model: float = 1000.0, mistaken: float = 800.0
) -> Compared:
    """Plans as the paper tells them: upstream alone at small factors, then both."""
    behind = ALONE if factor <= 0.4 else ((3,), 3)
    return Compared(
        factor,
        planned(joker, 12, ((3,), 4), ALONE, behind),
        planned(model, 10, ((3,), 3), ALONE, behind),
        planned(mistaken, 10, ((3,), 3), ALONE, behind),
        1050.0,
    )


def all_compared(**changed) -> tuple[Compared, ...]:
    return tuple(compared(factor, **changed) for factor in (0.1, 0.2, 0.4, 0.8, 1.0))


def results() -> Results:
    steps = figure_10_steps(), figure_20_steps()
    return Results(curves(), 8.0, traces(), *steps, all_compared())
