"""Columns of a graph, their order, and heights within them."""

from __future__ import annotations

from itertools import pairwise

from anabranch.pictures.drawing import Pull, in_layers, tops


def crossings(columns, arcs):
    place = {node: number for column in columns for number, node in enumerate(column)}
    return (
        sum((place[a] - place[c]) * (place[b] - place[d]) < 0 for a, b in arcs for c, d in arcs)
        // 2
    )


def test_what_can_be_drawn_without_crossings_is():
    # Each of five sources has one sink, listed the other way round.
    arcs = [(n, 9 - n) for n in range(5)]
    layers = in_layers(10, arcs, arcs)
    assert crossings(layers.columns, arcs) == 0


def test_a_node_stands_behind_the_last_of_those_before_it():
    arcs = [(0, 1), (1, 2), (0, 2), (0, 3)]
    layers = in_layers(4, arcs, arcs, last=[3])
    column = {node: n for n, nodes in enumerate(layers.columns) for node in nodes}
    assert [column[node] for node in range(4)] == [0, 1, 2, 2]


def test_every_arc_goes_from_one_column_to_the_next():
    arcs = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    layers = in_layers(4, arcs, "abcde")
    column = {node: n for n, nodes in enumerate(layers.columns) for node in nodes}
    assert [(route[0], route[-1]) for route in layers.routes] == arcs
    assert all(
        column[right] - column[left] == 1
        for route in layers.routes
        for left, right in pairwise(route)
    )


def test_arcs_of_one_bundle_share_their_bends():
    arcs = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 3)]
    shared, apart = in_layers(4, arcs, "abcdd"), in_layers(4, arcs, "abcde")
    assert shared.routes[3] == shared.routes[4]
    assert not set(apart.routes[3][1:-1]) & set(apart.routes[4])


def test_what_is_pulled_most_stays_level():
    heights = dict.fromkeys(range(4), 10.0)
    pulls = [Pull(0, 1, 5, 5), Pull(0, 2, 5, 5, 0.001), Pull(0, 3, 5, 5, 0.001)]
    found = tops([[0], [1, 2, 3]], heights, 2, pulls)
    assert found[0] == found[1]
    assert (found[2] - found[1], found[3] - found[2]) == (12, 12)


def test_heights_are_as_ports_pull_them():
    found = tops([[0], [1]], {0: 40.0, 1: 20.0}, 2, [Pull(0, 1, 30, 5)])
    assert found[0] + 30 == found[1] + 5
