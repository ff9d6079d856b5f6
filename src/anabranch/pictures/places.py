"""Heights of things in columns: arcs as straight as the order in each column allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

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
