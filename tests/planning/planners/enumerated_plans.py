"""Every plan of a small problem, and small problems drawn at random."""

from collections.abc import Iterator

import numpy as np

from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.models.placed_rates import Counts
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.search.placing import Placing
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile


def every_plan(placing: Placing) -> Counts:
    """Replicas by plan, unit and socket, within the limits."""
    sockets, room = placing.problem.machine.sockets, placing.room
    rows = [[c for k in range(1, m + 1) for c in spread(k, sockets)] for m in room.most]

    def plans(unit: int, left: int) -> Iterator[tuple[tuple[int, ...], ...]]:
        if unit == len(rows):
            yield ()
            return
        for row in rows[unit]:
            rest = left - sum(row)
            if rest >= len(rows) - unit - 1:
                yield from ((row, *others) for others in plans(unit + 1, rest))

    return np.array(list(plans(0, room.limit)), dtype=np.float64)


def spread(replicas: int, sockets: int) -> Iterator[tuple[int, ...]]:
    """Ways to put replicas on sockets."""
    if sockets == 1:
        yield (replicas,)
        return
    for here in range(replicas + 1):
        yield from ((here, *rest) for rest in spread(replicas - here, sockets - 1))


def random_problem(draw: np.random.Generator) -> Problem:
    """Two to four operators, some stateful, in any graph, on two or three small sockets."""
    size, sockets = int(draw.integers(2, 5)), int(draw.integers(2, 4))
    cores = 1 if size * sockets > 9 else int(draw.integers(1, 3))
    operators = tuple(
        OperatorProfile(
            f"o{number}",
            float(draw.uniform(50, 800)),
            state=StateKind.STATEFUL if draw.random() < 0.15 else StateKind.STATELESS,
            tuple_bytes=float(draw.choice([32, 100, 300])),
            memory_bytes=float(draw.choice([0, 100, 400])),
        )
        for number in range(size)
    )
    streams = []
    for consumer in range(1, size):
        producers = [p for p in range(consumer) if draw.random() < (0.8, 0.3)[p < consumer - 1]]
        streams += [
            StreamProfile(f"o{p}", f"o{consumer}", float(draw.choice([0.5, 1, 1, 2, 4])))
            for p in producers or [0]
        ]
    latency = draw.uniform(80, 500, (sockets, sockets))
    np.fill_diagonal(latency, 0.0)
    bandwidth = draw.uniform(500, 20_000, (sockets, sockets))
    machine = Machine(
        "drawn",
        sockets,
        cores,
        latency_ns=tuple(map(tuple, latency.tolist())),
        bandwidth_mb_s=tuple(map(tuple, bandwidth.tolist())) if draw.random() < 0.5 else (),
    )
    return Problem(Profile(operators, tuple(streams)), machine)
