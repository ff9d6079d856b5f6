"""The stress check notices when the engine is broken on purpose: each break has its property."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from anabranch.engines.local import engine, entry
from anabranch.engines.local import region as region_module
from anabranch.engines.local.change import Change
from anabranch.engines.local.entry import Piece
from anabranch.engines.local.gate import ElasticGate
from anabranch.engines.local.holding import InOrder
from anabranch.engines.local.outlet import Outlet
from anabranch.engines.local.region import RegionRun
from anabranch.engines.local.replica import Replica
from anabranch.planning.regions import RegionKind
from anabranch.runtime.gate import split
from anabranch.state.positions import FIRST, LAST, Jumbo, Root
from anabranch.state.tables.store import ObjectStore
from tests.engines.local import switching
from tests.engines.local.switching import Switching

SEEDS = range(4)

Patch = pytest.MonkeyPatch


def drop_the_barrier(patch: Patch) -> None:
    """The first replica to arrive begins the epoch, whatever the others still do."""
    work = Replica._work

    def slowly(self: Any, pipeline: int, load: Any) -> None:
        if self.number:
            time.sleep(0.002)  # so that not all arrive at the same time
        work(self, pipeline, load)

    def arrive(self: Any, control: Any) -> None:
        with self._lock:
            first, control.missing = control.missing > 0, 0
            if first:
                self._begin_epoch(control)

    patch.setattr(Replica, "_work", slowly)
    patch.setattr(RegionRun, "arrive", arrive)


def give_a_bucket_to_a_second_owner(patch: Patch) -> None:
    reassign = region_module.reassign

    def generous(old: Any, new: Any, plan: Any) -> None:
        reassign(old, new, plan)
        if new[0].region.kind is RegionKind.SHARED and len(new) > 1:
            first, second = new[:2]
            second.buckets = tuple(sorted({*first.buckets[:1], *second.buckets}))
            for kernel in second.kernels.values():
                kernel.context = replace(kernel.context, owned=second.buckets)

    patch.setattr(region_module, "reassign", generous)


def keep_what_was_given_away(patch: Patch) -> None:
    release = ObjectStore.release

    def stingy(self: ObjectStore, buckets: Any) -> Any:
        kept = {b: self._buckets[b] for b in buckets if b in self._buckets}
        given = release(self, buckets)
        self._buckets.update(kept)
        return given

    patch.setattr(ObjectStore, "release", stingy)


def release_out_of_order(patch: Patch) -> None:
    """What is ready is not merged: the pieces follow each other as they came."""
    patch.setattr(entry, "merged", lambda jumbos: Jumbo.concat(jumbos) if jumbos else None)


def straddle_a_timestamp(patch: Patch) -> None:
    """Releases end inside a timestamp wherever they can, and so do epochs."""
    release = InOrder.release

    def eager(self: InOrder) -> tuple[list[list[Piece]], Root]:
        pieces, frontier = release(self)
        roots = sorted(
            Root(*row[:4]) for port in pieces for p in port for row in p.jumbo.positions.rows()
        )
        inside = [b for a, b in pairwise(roots) if a.time == b.time and a < b]
        if len(pieces) > 1 or not inside or any(p.jumbo.marks for p in pieces[0]):
            return pieces, frontier
        cut, kept = inside[-1], []
        for piece in pieces[0]:
            early, late = split(piece.jumbo, cut)
            if early is not None:
                kept.append(Piece(piece.source, early, piece.born_s, late is None and piece.last))
            if late is not None:
                rest = Piece(piece.source, late, piece.born_s, piece.last)
                self._waiting[0].insert(0, rest)
        return [kept], cut

    patch.setattr(InOrder, "release", eager)


def skip_an_entry_after_a_switch(patch: Patch) -> None:
    switched, next_ready = ElasticGate.switched, ElasticGate.next_ready
    skipping: set[int] = set()

    def note(self: ElasticGate, readers: Any) -> int:
        skipping.add(id(self))
        return switched(self, readers)

    def hasty(self: ElasticGate, reader: Any) -> Any:
        entry = next_ready(self, reader)
        if entry.control is None and id(self) in skipping:
            skipping.discard(id(self))
            return next_ready(self, reader)
        return entry

    patch.setattr(ElasticGate, "switched", note)
    patch.setattr(ElasticGate, "next_ready", hasty)


def announce_sources_without_a_minimum(patch: Patch) -> None:
    """Nobody waits for new replicas: what others have passed is released without them."""
    work = Replica._work

    def slowly(self: Any, pipeline: int, load: Any) -> None:
        if self.number:
            time.sleep(0.001)
        work(self, pipeline, load)

    def join(self: Outlet, new: Any, like: int) -> None:
        if self.turns is None:
            for edge, gate in self._ways:
                far = Root(LAST - 1, FIRST, FIRST, FIRST)
                gate.announce_sources([self._name(edge, r) for r in new], far)

    patch.setattr(Replica, "_work", slowly)
    patch.setattr(Outlet, "join", join)


def forget_a_region(patch: Patch) -> None:
    """A change of plan does not reach one of the regions that it concerns."""
    begin = Change.__init__

    def partly(self: Change, parts: Any, before: Any, after: Any, wake: Any) -> None:
        regions = parts.regions
        parts.regions = [run for run in regions if run.region.name != "chained"]
        try:
            begin(self, parts, before, after, wake)
        finally:
            parts.regions = regions

    patch.setattr(Change, "__init__", partly)


def forget_a_replica(patch: Patch) -> None:
    """One replica of a region goes on as before."""
    reassign = region_module.reassign

    def partly(old: Any, new: Any, plan: Any) -> None:
        before = old[0].buckets
        reassign(old, new, plan)
        if new[0] is old[0]:
            new[0].buckets = before

    patch.setattr(region_module, "reassign", partly)


MUTATIONS: dict[Callable[[Patch], None], tuple[str, ...]] = {
    drop_the_barrier: ("P4", "P1"),  # it may crash before an epoch overlaps another
    give_a_bucket_to_a_second_owner: ("P2",),
    keep_what_was_given_away: ("P2",),
    release_out_of_order: ("P3",),
    straddle_a_timestamp: ("P6",),
    skip_an_entry_after_a_switch: ("P1",),
    announce_sources_without_a_minimum: ("P3",),
    forget_a_region: ("P5",),
    forget_a_replica: ("P5",),
}
"""Each break, and the property that must notice it: one of them."""


@pytest.fixture(autouse=True)
def _impatient_threads(monkeypatch: Patch) -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    monkeypatch.setattr(switching, "DEADLINE_S", 5.0)
    monkeypatch.setattr(engine, "DRAIN_S", 0.2)
    monkeypatch.setattr(engine, "END_S", 0.5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mutate", MUTATIONS)
def test_the_stress_check_notices(mutate: Callable[[Patch], None]):
    found: list[str] = []
    for seed in SEEDS:  # races are rare: not every seed meets them
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            found += Switching(patch, seed, changes=12, rows=150).run()
        if any(wrong.startswith(MUTATIONS[mutate]) for wrong in found):
            return
    pytest.fail(f"unnoticed; all that was found: {found}")
