"""Boxes and streams, arranged from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from anabranch.events import StreamShape
from anabranch.pictures.boxes import CARD, MOST_CARDS, Box, text_width
from anabranch.pictures.layers import in_layers
from anabranch.pictures.places import Pull, tops

MAIN_PORT = "out"
MARGIN = 14.0
LINE_GAP, BOX_PAD = 12.0, 6.0
"""Lines that pass each other stand so far apart, and so much further from boxes."""
LEAST_GAP, MOST_GAP, STEEPEST = 36.0, 120.0, 4.0
"""Between columns: the longest way up or down between them divided by the last, within these."""
PORT_LETTER, PORT_MARGIN = 5.8, 10.0
SIDE_WEIGHT = 0.001
"""What leaves by a side port or goes far bends rather than what goes straight on."""

Point = tuple[float, float]


class Layout:
    """Boxes with their corners at 0, 0 and the streams between their steps, on their way to places.

    After `arrange`, `placed` has the boxes where they belong, and `points` the way of each stream.
    """

    def __init__(self, boxes: Sequence[Box], streams: Sequence[StreamShape]) -> None:
        self.boxes, self.streams = boxes, streams
        self.home = {b.name: n for n, box in enumerate(boxes) for b in box.walk() if is_step(b)}
        self.steps = {b.name: b for box in boxes for b in box.walk() if is_step(b)}
        self.crossing = [n for n, s in enumerate(streams) if self._crosses(s)]
        arcs = [(self.home[streams[n].producer], self.home[streams[n].consumer])
                for n in self.crossing]  # fmt: skip
        bundles = [(streams[n].producer, streams[n].port) for n in self.crossing]
        sinks = [n for n, box in enumerate(boxes) if box.role == "sink"]
        self.layers = in_layers(len(boxes), arcs, bundles, sinks)
        self.routes = dict(zip(self.crossing, self.layers.routes, strict=True))
        self.column = {n: c for c, nodes in enumerate(self.layers.columns) for n in nodes}
        self.place = {n: p for nodes in self.layers.columns for p, n in enumerate(nodes)}

    def _crosses(self, stream: StreamShape) -> bool:
        return self.home[stream.producer] != self.home[stream.consumer]

    def arrange(self) -> tuple[list[Box], list[tuple[Point, ...]]]:
        """Boxes in their places, and for each stream its points."""
        leaving, entering = self._leaving(), self._entering()
        top = self._tops(leaving, entering)
        columns = self._columns(top, leaving, entering)
        placed = []
        for node, box in enumerate(self.boxes):
            left, right = columns[self.column[node]]
            in_last = self.column[node] == len(columns) - 1
            x = left if in_last else (left + right - box.width) // 2
            placed.append(box.moved(x, top[node] + BOX_PAD))
        steps = {b.name: b for box in placed for b in box.walk() if is_step(b)}
        points = []
        for number, stream in enumerate(self.streams):
            producer, consumer = steps[stream.producer], steps[stream.consumer]
            start = (producer.right, producer.y + leaving.get(number, producer.height / 2))
            end = (consumer.x, consumer.y + entering.get(number, consumer.height / 2))
            route = self.routes.get(number, ())
            between = [(x, top[bend]) for bend in route[1:-1] for x in columns[self.column[bend]]]
            if route:
                between = [(columns[self.column[route[0]]][1], start[1]), *between,
                           (columns[self.column[route[-1]]][0], end[1])]  # fmt: skip
            points.append(without_needless([start, *between, end]))
        return placed, points

    def _leaving(self) -> dict[int, float]:
        """How far below the top of its step each crossing stream leaves: by port, uncrossed."""
        ports: dict[str, dict[str, list[int]]] = {}
        for number in self.crossing:
            stream, following = self.streams[number], self.routes[number][1]
            by_port = ports.setdefault(stream.producer, {})
            by_port.setdefault(stream.port, []).append(self.place[following])
        slots = {}
        for producer, ways in ports.items():
            means = {port: sum(places) / len(places) for port, places in ways.items()}
            ordered = sorted(means, key=means.__getitem__)
            # What goes straight on leaves in the middle, the others above and below it.
            middle = ordered.index(MAIN_PORT) if MAIN_PORT in means else (len(ordered) - 1) / 2
            most = max(middle, len(ordered) - 1 - middle) + 1
            for slot, port in enumerate(ordered):
                share = 0.5 + 0.5 * (slot - middle) / most
                slots[producer, port] = float(round(self.steps[producer].height * share))
        streams = self.streams
        return {n: slots[streams[n].producer, streams[n].port] for n in self.crossing}

    def _entering(self) -> dict[int, float]:
        """How far below the top of its step each crossing stream enters."""
        inputs: dict[str, list[int]] = {}
        for number in self.crossing:
            inputs.setdefault(self.streams[number].consumer, []).append(number)
        entering = {}
        for consumer, numbers in inputs.items():
            ordered = sorted(numbers, key=lambda n: self.place[self.routes[n][-2]])
            for slot, number in enumerate(ordered):
                share = (slot + 1) / (len(numbers) + 1)
                entering[number] = float(round(self.steps[consumer].height * share))
        return entering

    def _tops(self, leaving: dict[int, float], entering: dict[int, float]) -> dict[int, float]:
        """The top of every box, with what it keeps free above it, and the height of every bend."""
        heights = dict.fromkeys(self.column, 0.0)
        heights |= {n: box.height + 2 * BOX_PAD for n, box in enumerate(self.boxes)}
        pulls = []
        for number, route in self.routes.items():
            stream = self.streams[number]
            first = BOX_PAD + self.steps[stream.producer].y + leaving[number]
            last = BOX_PAD + self.steps[stream.consumer].y + entering[number]
            downs = [first, *[0.0] * (len(route) - 2), last]
            weight = 1.0 if stream.port == MAIN_PORT and len(route) == 2 else SIDE_WEIGHT
            for (left, down), (right, right_down) in pairwise(zip(route, downs, strict=True)):
                pulls.append(Pull(left, right, down, right_down, weight))
        found = tops(self.layers.columns, heights, LINE_GAP, pulls)
        free = MARGIN + (MOST_CARDS - 1) * CARD - BOX_PAD
        return {node: y + free for node, y in found.items()}

    def _columns(
        self, top: dict[int, float], leaving: dict[int, float], entering: dict[int, float]
    ) -> list[tuple[float, float]]:
        """Left and right edge of each column, with room between for curves and names of ports."""
        gaps = [LEAST_GAP] * len(self.layers.columns)
        for number, route in self.routes.items():
            stream, column = self.streams[number], self.column[route[0]]
            if stream.port != MAIN_PORT:
                name = text_width(stream.port, PORT_LETTER) + PORT_MARGIN
                gaps[column] = max(gaps[column], name)
            ys = [top[node] for node in route]
            ys[0] += BOX_PAD + self.steps[stream.producer].y + leaving[number]
            ys[-1] += BOX_PAD + self.steps[stream.consumer].y + entering[number]
            for node, (y, following) in zip(route, pairwise(ys), strict=False):
                wanted = min(abs(y - following) // STEEPEST, MOST_GAP)
                gaps[self.column[node]] = max(gaps[self.column[node]], wanted)
        columns, left = [], MARGIN
        for nodes, gap in zip(self.layers.columns, gaps, strict=True):
            width = max((self.boxes[n].width for n in nodes if n < len(self.boxes)), default=0.0)
            columns.append((left, left + width))
            left += width + gap
        return columns


def is_step(box: Box) -> bool:
    """Whether a box stands for a step."""
    return box.kind == "step"


def without_needless(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points of a line, without those in the middle of a level stretch.

    Example:
        >>> without_needless([(0, 1), (1, 1), (2, 1), (3, 5), (3, 5)])
        ((0, 1), (2, 1), (3, 5))
    """
    kept: list[Point] = []
    for point in points:
        if kept and kept[-1] == point:
            continue
        if len(kept) > 1 and kept[-2][1] == kept[-1][1] == point[1]:
            kept.pop()
        kept.append(point)
    return tuple(kept)
