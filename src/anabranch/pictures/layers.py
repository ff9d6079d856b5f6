"""A graph in columns: every arc goes from one column to the next, few of them cross.

The classical way to draw a directed graph in layers (Sugiyama and others), with longest-path layers
and barycenters. Nodes are numbers; an arc over several columns bends in each one between.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
