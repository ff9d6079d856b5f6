"""The order of a sink: whatever replica reports first, rows become visible in their order."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.io.sink import PositionRange, Receipt
from anabranch.runtime.sink_order import Prepared, Segment, SinkOrder
from anabranch.state.positions import Root, end

ROWS = 40
SEEDS = range(60)


def segment(numbers: list[int]) -> Segment:
    first, last = ((n, 0, n, 0) for n in (numbers[0], numbers[-1]))
    return Segment(Receipt(str(numbers), len(numbers), positions=PositionRange(first, last)), ())


def numbers_of(segments: list[Segment]) -> list[int]:
    return [n for each in segments for n in eval(each.receipt.name)]


def reports(rng: Random, generation: int, numbers: list[int]) -> list[list[Prepared]]:
    """By replica what it reports of some rows, in ranges of four that are dealt out in turn."""
    replicas = rng.randint(1, 3)
    found: list[list[Prepared]] = []
    for replica in range(replicas):
        mine = [numbers[at : at + 4] for at in range(4 * replica, len(numbers), 4 * replicas)]
        own: list[Prepared] = []
        while mine:
            count = rng.randint(0, 2)
            taken, mine = mine[:count], mine[count:]
            at = mine[0][0] if mine else numbers[-1] + 1
            place = "out", generation, replica, replicas
            own.append(Prepared(*place, tuple(map(segment, taken)), Root(at, 0, at, 0)))
        left = Prepared("out", generation, replica, replicas, (), end(0), left=True)
        found.append([*own, left])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_become_visible_once_in_order_and_all_of_them(seed: int) -> None:
    rng = Random(seed)
    cut = rng.randrange(1, ROWS)
    numbers = list(range(ROWS))
    queues = reports(rng, 0, numbers[:cut]) + reports(rng, 1, numbers[cut:])
    order, shown = SinkOrder(), []
    while queues := [queue for queue in queues if queue]:
        shown += numbers_of(order.take(rng.choice(queues).pop(0)))
        assert shown == numbers[: len(shown)]
    assert shown == numbers
    assert order.held() == []


def test_one_replica_shows_what_it_has_at_once() -> None:
    order = SinkOrder()
    ready = order.take(Prepared("out", 0, 0, 1, (segment([5]),), Root(0, 0, 0, 0)))
    assert numbers_of(ready) == [5]


def test_rows_of_a_later_generation_wait_for_all_that_wrote_before() -> None:
    order = SinkOrder()
    assert order.take(Prepared("out", 1, 0, 1, (segment([9]),), end(0), left=True)) == []
    assert numbers_of(order.held()) == [9]
    ready = order.take(Prepared("out", 0, 0, 1, (segment([1]),), end(0), left=True))
    assert numbers_of(ready) == [1, 9]
