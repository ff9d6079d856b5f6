"""The loop of a worker: tuples for several processes are sent once."""

from __future__ import annotations

import pyarrow as pa

from anabranch.engines.local.loop import Broadcast, broadcasts
from anabranch.runtime.messages import Barrier, Delivery, Link, UnitId
from anabranch.state.positions import START, Jumbo, Positions


def jumbo() -> Jumbo:
    return Jumbo(pa.record_batch({"x": [1]}), Positions.of_rows([(0, 0, 0, 0)], 4))


def delivery(of: Jumbo | None, replica: int = 0) -> Delivery:
    return Delivery(0, Link(0, UnitId("a", 0), UnitId("b", replica)), of, START)


def test_deliveries_of_the_same_tuples_are_one_message():
    same, other = jumbo(), jumbo()
    sent = [
        (1, delivery(same, 0)),
        (2, delivery(same, 1)),
        (2, delivery(other)),
        (1, delivery(None)),
        (2, Barrier(0, delivery(None).link)),
    ]
    (hosts, together), *alone = broadcasts(sent)
    assert hosts == {1, 2}
    assert isinstance(together, Broadcast)
    assert [together.for_host(host) for host in (1, 2, 3)] == [[sent[0][1]], [sent[1][1]], []]
    assert alone == [({host}, message) for host, message in sent[2:]]
