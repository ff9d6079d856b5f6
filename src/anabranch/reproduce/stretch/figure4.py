"""Figure 4: virtual against pure shared-nothing, with work (4a) and without (4b), and the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.flow import Flow
from anabranch.planning.models.stretch import LineCosts, fitted, line_rate_on
from anabranch.reproduce.machine import cores_here
from anabranch.reproduce.stretch.line import Line, LineRun, MakeWay, middle_of
from anabranch.reproduce.stretch.lines import forwarding, working
from anabranch.reproduce.stretch.sharing import ByReference, Copied

WORK_ROWS = 16_384
FORWARD_ROWS = 4_096
"""Tuples in a jumbo tuple: large ones where threads have work, small ones to be prompt."""

WAYS: tuple[MakeWay, MakeWay] = (ByReference, Copied)


@dataclass(frozen=True)
class Point:
    """One way with one number of threads, the median of several runs.

    Attributes:
        way: V_SN or P_SN.
        threads: T^P threads.
        rate_per_s: Tuples taken in per second.
        latency_ms: From reading a tuple to its result, on average.
        cpu_us: Processor time per tuple of T^I, T^P and T^O.
        model_per_s: What the model of §8 says, with the costs measured here and these cores.
    """

    way: str
    threads: int
    rate_per_s: float
    latency_ms: float
    cpu_us: tuple[float, float, float]
    model_per_s: float


@dataclass(frozen=True)
class Contest:
    """One half of figure 4.

    Attributes:
        points: Both ways by number of threads.
        costs: By way, the costs of the model as fitted, in µs.
    """

    points: tuple[Point, ...]
    costs: dict[str, LineCosts]

    def of(self, way: str) -> list[Point]:
        """The points of one way."""
        return [point for point in self.points if point.way == way]


def figure_4a(rows: int, threads: Sequence[int], repeats: int) -> Contest:
    """One stream, work that is divided among the threads."""
    return contest(lambda: working(rows), threads, repeats, WORK_ROWS)


def figure_4b(rows: int, threads: Sequence[int], repeats: int) -> Contest:
    """Two streams, merged and passed on."""
    return contest(lambda: forwarding(rows), threads, repeats, FORWARD_ROWS)


def contest(
    build: Callable[[], Flow],
    threads: Sequence[int],
    repeats: int,
    batch_rows: int,
) -> Contest:
    """Both ways in turn, so that what else the machine does hits both alike."""
    runs: dict[tuple[str, int], list[LineRun]] = {}
    for _ in range(repeats):
        for count in threads:
            for way in WAYS:
                run = Line(build(), way, count, batch_rows).run()
                runs.setdefault((run.way, count), []).append(run)
    middle = {key: middle_of(several) for key, several in runs.items()}
    costs = {
        way: fitted({n: middle[way, n].cpu_us for n in threads})
        for way in sorted({way for way, _ in middle})
    }
    cores = cores_here()
    points = [
        Point(
            way,
            n,
            run.rate_per_s,
            run.latency_ms,
            run.cpu_us,
            1e6 * line_rate_on(cores, costs[way], n),
        )
        for (way, n), run in sorted(middle.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
    return Contest(tuple(points), costs)
