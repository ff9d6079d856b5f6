"""Where everything lies in the picture of a flow or plan: boxes, and the lines between them.

From left to right, sources first, sinks last. The same shape gives the same drawing everywhere: the
web page, notebooks and files show this one.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

from anabranch.events import Shape, StreamShape
from anabranch.pictures.boxes import CARD, MOST_CARDS, Box, boxes_of, text_width

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


# Boxes and streams, arranged from left to right.

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


# A graph in columns: every arc goes from one column to the next, few of them cross.
#
# The classical way to draw a directed graph in layers (Sugiyama and others), with longest-path
# layers and barycenters. Nodes are numbers; an arc over several columns bends in each one between.

SWEEPS = 8

Arc = tuple[int, int]


@dataclass(frozen=True)
class Layers:
    """Columns of nodes, and the way that each arc takes.

    Attributes:
        columns: Nodes from top to bottom, column by column; bends are numbered behind the nodes.
        routes: For each arc the nodes and bends that it touches, from left to right.
    """

    columns: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]


def in_layers(
    count: int, arcs: Sequence[Arc], bundles: Sequence[Hashable], last: Collection[int] = ()
) -> Layers:
    """Put nodes into columns.

    Args:
        count: How many nodes there are.
        arcs: From node to node.
        bundles: For each arc a name; arcs of one name share their bends.
        last: Nodes that belong at the right edge.

    Example:
        >>> in_layers(3, [(0, 1), (1, 2), (0, 2)], "abc").columns
        ((0,), (1, 3), (2,))
    """
    column = _columns(count, arcs, last)
    columns: list[list[int]] = [[] for _ in range(max(column, default=-1) + 1)]
    for node in range(count):
        columns[column[node]].append(node)
    bends: dict[tuple[Hashable, int], int] = {}
    routes: list[tuple[int, ...]] = []
    for (left, right), bundle in zip(arcs, bundles, strict=True):
        between = []
        for place in range(column[left] + 1, column[right]):
            if (bundle, place) not in bends:
                bends[bundle, place] = count + len(bends)
                columns[place].append(bends[bundle, place])
            between.append(bends[bundle, place])
        routes.append((left, *between, right))
    return Layers(_with_few_crossings(columns, routes), tuple(routes))


def _columns(count: int, arcs: Sequence[Arc], last: Collection[int]) -> list[int]:
    """The column of each node: one behind the last of those before it."""
    column = [0] * count
    waiting = [0] * count
    behind: list[list[int]] = [[] for _ in range(count)]
    for left, right in arcs:
        waiting[right] += 1
        behind[left].append(right)
    left_over = dict.fromkeys(range(count))
    ready = [node for node in range(count) if not waiting[node]]
    while left_over:
        # Flows have no cycles; where a file claims one, its first node breaks it.
        node = ready.pop(0) if ready else next(iter(left_over))
        del left_over[node]
        for following in behind[node]:
            waiting[following] -= 1
            if following in left_over:
                column[following] = max(column[following], column[node] + 1)
                if not waiting[following]:
                    ready.append(following)
    for node in last:
        column[node] = max(column)
    return column


def _with_few_crossings(
    columns: list[list[int]], routes: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Sort each column by where the neighbours are, to and fro; the best of that stays."""
    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for left, right in sorted({hop for route in routes for hop in pairwise(route)}):
        after.setdefault(left, []).append(right)
        before.setdefault(right, []).append(left)
    best = [list(column) for column in columns]
    fewest = _crossings(best, after)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        ltr = sweep % 2 == 0
        order = range(1, len(columns)) if ltr else range(len(columns) - 2, -1, -1)
        for place in order:
            beside = columns[place - 1 if ltr else place + 1]
            columns[place] = _by_neighbours(columns[place], beside, before if ltr else after)
        found = _crossings(columns, after)
        if found < fewest:
            best, fewest = [list(column) for column in columns], found
    return tuple(tuple(column) for column in best)


def _by_neighbours(
    column: list[int], beside: list[int], neighbours: Mapping[int, list[int]]
) -> list[int]:
    place = {node: number for number, node in enumerate(beside)}

    def barycenter(number: int) -> float:
        known = [place[n] for n in neighbours.get(column[number], ()) if n in place]
        # One without neighbours stays about where it is.
        alone = number * len(beside) / len(column)
        return sum(known) / len(known) if known else alone

    return [column[number] for number in sorted(range(len(column)), key=barycenter)]


def _crossings(columns: Sequence[Sequence[int]], after: Mapping[int, list[int]]) -> int:
    """How many pairs of arcs cross: pairs that are in another order right than left."""
    total = 0
    for left, right in pairwise(columns):
        place = {node: number for number, node in enumerate(right)}
        seen: list[int] = []
        for node in left:
            ends = [place[n] for n in after.get(node, ()) if n in place]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


# Heights of things in columns: arcs as straight as the order in each column allows.

ROUNDS = 6
LOOSE, FIRM = 1e-6, 1e3
"""How strongly something stays where it is: while nothing else pulls it, and while all may."""


@dataclass(frozen=True)
class Pull:
    """An arc between neighbouring columns: it wants both its ends at one height.

    Attributes:
        left: Where it begins.
        right: Where it ends.
        left_down: How far below the top of `left`.
        right_down: How far below the top of `right`.
        weight: How much that matters.
    """

    left: int
    right: int
    left_down: float
    right_down: float
    weight: float = 1.0


Wishes = Mapping[int, Sequence[tuple[int, float, float]]]
"""By node: another one, how far below its top this one's shall be, and how much that matters."""


def tops(
    columns: Sequence[Sequence[int]],
    heights: Mapping[int, float],
    gap: float,
    pulls: Sequence[Pull],
) -> dict[int, float]:
    """The top of each node, so that none touches the next in its column.

    To and fro, each column goes where the one beside it pulls it; at last what has no height, a
    bend, goes where the way on pulls it, so that it is level over as many columns as can be.

    Example:
        >>> tops([[0], [1, 2]], {0: 10, 1: 10, 2: 10}, 5, [Pull(0, 2, 5, 5)])
        {0: 15.0, 1: 0.0, 2: 15.0}
    """
    top: dict[int, float] = {}
    for column in columns:
        down = 0.0
        for node in column:
            top[node] = down
            down += heights[node] + gap
    by_left: dict[int, list[tuple[int, float, float]]] = {}
    by_right: dict[int, list[tuple[int, float, float]]] = {}
    for pull in pulls:
        shift = pull.left_down - pull.right_down
        by_left.setdefault(pull.right, []).append((pull.left, shift, pull.weight))
        by_right.setdefault(pull.left, []).append((pull.right, -shift, pull.weight))
    for _ in range(ROUNDS):
        for column in reversed(columns):
            _settle(column, heights, gap, by_right, top)
        for column in columns:
            _settle(column, heights, gap, by_left, top)
    bends = {node: wishes for node, wishes in by_right.items() if not heights[node]}
    for column in reversed(columns):
        _settle(column, heights, gap, bends, top, FIRM)
    highest = min(top.values(), default=0.0)
    # Whole numbers: what is all but level becomes level, and nothing comes to overlap.
    return {node: float(floor(y - highest + 0.5)) for node, y in top.items()}


def _settle(
    column: Sequence[int],
    heights: Mapping[int, float],
    gap: float,
    wishes: Wishes,
    top: dict[int, float],
    staying: float = LOOSE,
) -> None:
    """Put a column where it is pulled: least squares under the order of the column.

    What would overlap is pooled into a block that moves as one.
    """
    blocks: list[tuple[float, float, int]] = []  # places times weights, weights, nodes
    stacked, downs = 0.0, []
    for node in column:
        wanted = wishes.get(node) or [(node, 0.0, staying)]
        weight = sum(wish[2] for wish in wanted)
        total = sum((top[other] + shift) * share for other, shift, share in wanted)
        total, count = total - stacked * weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / weight:
            before = blocks.pop()
            total, weight, count = total + before[0], weight + before[1], count + before[2]
        blocks.append((total, weight, count))
        downs.append(stacked)
        stacked += heights[node] + gap
    settled = [total / weight for total, weight, count in blocks for _ in range(count)]
    for node, place, down in zip(column, settled, downs, strict=True):
        top[node] = place + down
