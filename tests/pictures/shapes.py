"""Shapes to be drawn: of random flows with regions, and of names that are markup."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from anabranch.events import Shape, StepShape, StreamShape

STATES = ("stateless", "partitioned", "stateful", "shared")


def random_shape(seed: int, operators: int) -> Shape:
    """Sources, runs of operators that are a region each, sinks; some runs have side outputs."""
    draw = Random(seed)
    steps: list[StepShape] = []
    streams: list[StreamShape] = []
    ends: list[str] = []  # of regions, which later ones may read
    for number in range(1 + operators // 40):
        steps.append(StepShape(f"source{number}", "source", region=f"source{number}"))
        ends.append(f"source{number}")
    late: list[str] = []
    while len(steps) < operators:
        length, state = draw.randint(1, 4), draw.choice(STATES)
        run = [f"step{len(steps) + n}" for n in range(length)]
        key = ("k",) if state == "partitioned" else ()
        steps += [StepShape(n, "operator", state, key, region=run[0]) for n in run]
        inputs = draw.sample(ends[-12:], min(len(ends), draw.choice((1, 1, 1, 2, 3))))
        streams += [StreamShape(name, "out", run[0]) for name in inputs]
        streams += [StreamShape(a, "out", b) for a, b in pairwise(run)]
        ends.append(run[-1])
        late += [run[-1]] if draw.random() < 0.1 else []
    read = {stream.producer for stream in streams}
    for number, (name, port) in enumerate(
        [(end, "out") for end in ends if end not in read] + [(end, "late") for end in late]
    ):
        steps.append(StepShape(f"sink{number}", "sink", region=f"sink{number}"))
        streams.append(StreamShape(name, port, f"sink{number}"))
    return Shape(tuple(steps), tuple(streams))


def cut(shape: Shape, seed: int) -> dict[str, list[list[str]]]:
    """Pipelines for the regions of a shape, as a plan might cut them."""
    draw = Random(seed)
    pipelines: dict[str, list[list[str]]] = {}
    for step in shape.steps:
        runs = pipelines.setdefault(step.region, [])
        if not runs or draw.random() < 0.5:
            runs.append([])
        runs[-1].append(step.step)
    return pipelines


def without_regions(shape: Shape) -> Shape:
    """The same as a flow tells it, before anybody has looked for regions."""
    return replace(shape, steps=tuple(replace(step, region="") for step in shape.steps))


def chain(*names: str) -> Shape:
    """A source, operators and a sink, one behind the other."""
    roles = ["source", *["operator"] * (len(names) - 2), "sink"]
    steps = tuple(StepShape(n, role, region=n) for n, role in zip(names, roles, strict=True))
    return Shape(steps, tuple(StreamShape(a, "out", b) for a, b in pairwise(names)))
