"""Boxes of a picture: steps inside pipelines inside regions, sized by what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal
from unicodedata import east_asian_width

from anabranch.events import Shape, StepShape

Kind = Literal["region", "pipeline", "step"]

LONGEST_LABEL = 24
LETTER = 6.8
"""Width of a letter of a label; wide ones have twice that."""
STEP_HEIGHT, LEAST_WIDTH, STEP_MARGIN = 40.0, 70.0, 15.0
ALONE_WIDTH = 96.0
"""Of the only step of a region: the page writes `999k/s · 100 %` into it."""
STEP_GAP, PIPELINE_GAP = 22.0, 26.0
PIPELINE_PAD, REGION_PAD, TITLE = 8.0, 8.0, 18.0
CARD, MOST_CARDS = 4.0, 3
"""Replicas lie behind a box like cards: how far each looks out, and how many are shown."""


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture.

    Attributes:
        name: Of the step or region; of a pipeline its region, a slash and its number from 0.
        kind: What it stands for.
        x: Left edge.
        y: Upper edge; y grows downwards.
        width: To the right.
        height: Downwards.
        label: What to write on it: the name, shortened where it is long; "" for pipelines, and for
            regions of one step of their name.
        replicas: How many copies of it run.
        inside: Boxes that lie in it.
        role: Of a step: source, operator or sink; of others that of their first step.
        state: What a step remembers; "" for sources and sinks.
        detail: Of a step, in words: its role or its state, and its key.
    """

    name: str
    kind: Kind
    x: float
    y: float
    width: float
    height: float
    label: str
    replicas: int = 1
    inside: tuple[Box, ...] = ()
    role: str = ""
    state: str = ""
    detail: str = ""

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height

    @property
    def cards(self) -> int:
        """How many cards look out behind it."""
        return min(self.replicas, MOST_CARDS) - 1

    def moved(self, right: float, down: float) -> Box:
        """The same elsewhere, with all that is in it."""
        inside = tuple(box.moved(right, down) for box in self.inside)
        return replace(self, x=self.x + right, y=self.y + down, inside=inside)

    def walk(self) -> Iterator[Box]:
        """This box and all in it, outermost first."""
        yield self
        for box in self.inside:
            yield from box.walk()


def shortened(name: str, longest: int = LONGEST_LABEL) -> str:
    """A name that fits a box; the middle is left out, as names often differ at their ends.

    Example:
        >>> shortened("count"), shortened("a-very-long-name-of-a-step.combine")
        ('count', 'a-very-long-na…p.combine')
    """
    if len(name) <= longest:
        return name
    tail = (longest - 1) * 2 // 5
    return name[: longest - 1 - tail] + "…" + name[-tail:]


def text_width(text: str, letter: float = LETTER) -> float:
    """About how wide a text is."""
    return float(ceil(letter * sum(2 if east_asian_width(c) in "WF" else 1 for c in text)))


def boxes_of(
    shape: Shape, pipelines: Mapping[str, Sequence[Sequence[str]]], replicas: Mapping[str, int]
) -> list[Box]:
    """The outermost boxes, each with its upper left corner at 0, 0: regions, else steps."""
    members: dict[str, list[StepShape]] = {}
    found: list[Box] = []
    for step in shape.steps:
        if step.region:
            members.setdefault(step.region, []).append(step)
    for step in shape.steps:
        if not step.region:
            found.append(_step(step, replicas.get(step.step, 1)))
        elif step is members[step.region][0]:
            runs = pipelines.get(step.region, ())
            copies = replicas.get(step.region, 1)
            found.append(_region(step.region, members[step.region], runs, copies))
    return found


def _step(step: StepShape, replicas: int, least: float = LEAST_WIDTH) -> Box:
    label, detail = shortened(step.step), _in_words(step)
    width = max(least, text_width(label) + 2 * STEP_MARGIN)
    width = max(width, text_width(detail, LETTER * 0.84) + 2 * STEP_MARGIN)
    return Box(
        step.step, "step", 0, 0, width, STEP_HEIGHT, label, replicas,
        role=step.role, state=step.state, detail=detail,
    )  # fmt: skip


def _in_words(step: StepShape) -> str:
    if not step.key:
        return step.state or step.role
    by = shortened(", ".join(step.key), 20)
    # What is kept by key is partitioned, unless it says otherwise.
    return f"by {by}" if step.state == "partitioned" else f"{step.state} by {by}"


def _region(name: str, steps: list[StepShape], runs: Sequence[Sequence[str]], replicas: int) -> Box:
    alone = len(steps) == 1
    inner = [
        _around(
            Box(f"{name}/{number}", "pipeline", 0, 0, 0, 0, "", replicas),
            [_step(step, replicas, ALONE_WIDTH if alone else LEAST_WIDTH) for step in run],
            STEP_GAP,
            0.0 if alone else PIPELINE_PAD,
        )
        for number, run in enumerate(_cut(steps, runs))
    ]
    # A region of one step has its name, and says it there.
    label = "" if alone and steps[0].step == name else shortened(name)
    return _around(
        Box(name, "region", 0, 0, 0, 0, label, replicas), inner, PIPELINE_GAP, REGION_PAD
    )


def _cut(steps: list[StepShape], runs: Sequence[Sequence[str]]) -> list[list[StepShape]]:
    """Steps as a plan cuts them into runs; those that it does not name are the last one."""
    known = {step.step: step for step in steps}
    cut = [[known.pop(name) for name in run if name in known] for run in runs]
    return [run for run in [*cut, list(known.values())] if run]


def _around(outer: Box, boxes: list[Box], gap: float, pad: float) -> Box:
    """A box made to hold others in a row, under its label if it has one."""
    head = pad + (TITLE if outer.label else 0.0)
    row = sum(box.width for box in boxes) + gap * (len(boxes) - 1)
    width = max(row, text_width(outer.label)) + 2 * pad
    height = head + max(box.height for box in boxes) + pad
    inside, x = [], (width - row) // 2
    for box in boxes:
        inside.append(box.moved(x, head))
        x += box.width + gap
    return replace(outer, width=width, height=height, inside=tuple(inside), role=boxes[0].role)
