"""The outlet of a unit: deals what it emits out to the units downstream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anabranch.runtime.bucket_loads import BucketLoads
from anabranch.runtime.layout import ANYWHERE, INNER, Exit, Layout
from anabranch.runtime.messages import Barrier, Chunk, Chunks, Delivery, Link, UnitId
from anabranch.runtime.routing import Router
from anabranch.state.positions import START, Jumbo, Root

Send = Callable[[Delivery | Barrier], None]
NONE: Chunks = frozenset()


class Outlet:
    """Sends tuples, frontiers and barriers of one unit in one epoch.

    Args:
        epoch: The epoch.
        layout: The layout of its plan.
        unit: The sender.
        loads: By region, what counts the tuples that are dealt out by bucket.
        send: Takes what is sent.
        acknowledge: Takes by how much the number of deliveries of a claim changes.
        turn: Chooses among so many replicas that all could process the tuples.
    """

    def __init__(
        self,
        epoch: int,
        layout: Layout,
        unit: UnitId,
        loads: Mapping[str, BucketLoads],
        send: Send,
        acknowledge: Callable[[Chunk, int], None],
        turn: Callable[[int], int],
    ) -> None:
        self._epoch, self._send, self._acknowledge, self._turn = epoch, send, acknowledge, turn
        self._exits = [
            (each, self._router(layout, each, loads), [START] * len(each.links))
            for each in layout.exits[unit]
        ]

    @staticmethod
    def _router(layout: Layout, each: Exit, loads: Mapping[str, BucketLoads]) -> Router | None:
        region = layout.topology.regions[each.region]
        if each.edge == INNER or region.kind in ANYWHERE:
            return None
        return Router(region, layout.plan.region(each.region), loads.get(each.region))

    def send(
        self,
        outputs: Sequence[Jumbo | None],
        reached: Sequence[Root],
        born_s: float | None,
        chunks: Chunks,
        completing: Chunks = NONE,
    ) -> None:
        """Send tuples to their units, and the frontier of each port to all that read it.

        Args:
            outputs: The tuples, by port.
            reached: How far each port has come with them.
            born_s: When the oldest of what caused them was read.
            chunks: The claims that the tuples stem from.
            completing: The claims that moved the frontiers, where tuples before these, sent now or
                earlier, wait for that; what follows from the frontiers is due to them.
        """
        for each, router, sent in self._exits:
            jumbo, frontier = outputs[each.out_port], reached[each.out_port]
            shares = self._shares(each, router, jumbo)
            for replica, (link, share) in enumerate(zip(each.links, shares, strict=True)):
                passed = frontier if router is None else router.frontier(replica, frontier)
                if share is not None:
                    sent[replica] = sent[replica] if completing else passed
                    self._deliver(link, share, sent[replica], born_s, chunks)
                if passed != sent[replica]:
                    self._deliver(link, None, passed, born_s if completing else None, completing)
                sent[replica] = passed

    def end_epoch(self) -> None:
        """Send a barrier on every link."""
        for each, _, _ in self._exits:
            for link in each.links:
                self._send(Barrier(self._epoch, link))

    def _deliver(
        self,
        link: Link,
        jumbo: Jumbo | None,
        passed: Root,
        born_s: float | None,
        chunks: Chunks,
    ) -> None:
        for chunk in chunks:
            self._acknowledge(chunk, 1)
        self._send(Delivery(self._epoch, link, jumbo, passed, born_s, chunks))

    def _shares(
        self, each: Exit, router: Router | None, jumbo: Jumbo | None
    ) -> Sequence[Jumbo | None]:
        if router is not None:
            return router.route(jumbo, turn=0)
        shares: list[Jumbo | None] = [None] * len(each.links)
        if jumbo is not None and (len(jumbo) or jumbo.marks):
            shares[self._turn(len(shares)) if len(shares) > 1 else 0] = jumbo
        return shares
