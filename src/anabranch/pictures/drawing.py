"""Where everything lies in the picture of a flow or plan: boxes, and the lines between them.

From left to right, sources first, sinks last. The same shape gives the same drawing everywhere: the
web page, notebooks and files show this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.events import Shape
from anabranch.pictures.boxes import CARD, MOST_CARDS, Box, boxes_of
from anabranch.pictures.layout import MAIN_PORT, MARGIN, Layout, Point, is_step

__all__ = ["Box", "Drawing", "Line", "draw"]


@dataclass(frozen=True)
class Line:
    """A stream.

    Attributes:
        producer: Step that it leaves.
        consumer: Step that it enters.
        port: Output of the producer that it leaves by.
        points: From the right edge of the producer to the left edge of the consumer, none further
            left than the one before. Two of different height are best joined by a curve that is
            level at both ends.
    """

    producer: str
    consumer: str
    port: str
    points: tuple[Point, ...]

    @property
    def label(self) -> str:
        """The port, where it is not the main one."""
        return "" if self.port == MAIN_PORT else self.port


@dataclass(frozen=True)
class Drawing:
    """A picture: its size, its outermost boxes upstream first, its lines as streams are listed."""

    width: float
    height: float
    boxes: tuple[Box, ...] = ()
    lines: tuple[Line, ...] = ()

    def steps(self) -> dict[str, Box]:
        """The boxes of steps, by name."""
        inner = (box for outer in self.boxes for box in outer.walk())
        return {box.name: box for box in inner if is_step(box)}


def draw(
    shape: Shape,
    pipelines: Mapping[str, Sequence[Sequence[str]]] | None = None,
    replicas: Mapping[str, int] | None = None,
) -> Drawing:
    """Lay out a flow, or how a plan runs it.

    Args:
        shape: The flow; where its steps know their regions, those are drawn around them.
        pipelines: By region, its steps as a plan cuts them; one pipeline each when left out.
        replicas: By region or source; 1 where nothing is said.

    Example:
        >>> from anabranch.events import StepShape, StreamShape
        >>> steps = (StepShape("words", "source"), StepShape("out", "sink"))
        >>> drawing = draw(Shape(steps, (StreamShape("words", "out", "out"),)))
        >>> [(box.name, box.x) for box in drawing.boxes]
        [('words', 14.0), ('out', 120.0)]
        >>> drawing.lines[0].points
        ((84.0, 42.0), (120.0, 42.0))
    """
    boxes = boxes_of(shape, pipelines or {}, replicas or {})
    known = {box.name for outer in boxes for box in outer.walk() if is_step(box)}
    streams = [s for s in shape.streams if s.producer in known and s.consumer in known]
    placed, points = Layout(boxes, streams).arrange()
    lines = tuple(
        Line(s.producer, s.consumer, s.port, way) for s, way in zip(streams, points, strict=True)
    )
    # Room for cards even where there are none: a change of replicas moves nothing.
    right = max((box.right for box in placed), default=0.0) + (MOST_CARDS - 1) * CARD
    bottom = max([box.bottom for box in placed] + [y for way in points for _, y in way], default=0)
    return Drawing(right + MARGIN, bottom + MARGIN, tuple(placed), lines)
