"""No promise of a source passes a row that is under way, whatever its readers do in between."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engines.local.dispenser import MOST_AHEAD
from anabranch.io.reader import place
from anabranch.state.positions import FIRST, Root
from tests.engines.local.rows_to_read import Rows
from tests.engines.local.test_dispenser import hired, plan

pytestmark = pytest.mark.timeout(120)


@st.composite
def sources(draw: st.DrawFn, limited: bool) -> tuple[Rows, int | None, int, int]:
    sizes = draw(st.lists(st.integers(0, 9), max_size=4))
    source = Rows(sizes, seekable=draw(st.booleans()), exact=draw(st.booleans()))
    limit = draw(st.integers(0, 20)) if limited else None
    return source, limit, draw(st.integers(1, 4)), draw(st.integers(0, 2**32))


class Interleaving:
    """Readers that take one small step each, in an order drawn from a seed."""

    def __init__(self, source: Rows, limit: int | None, readers: int, seed: int) -> None:
        self.source, self.rng = source, Random(seed)
        self.dispenser = hired(source, readers, self.rng.randint(1, 4), limit)
        self.working: dict[int, object] = {}
        self.idle, self.over = list(range(readers)), set[int]()
        self.promised = Root(FIRST, FIRST, FIRST, FIRST)
        self.delivered: list[tuple[int, int]] = []

    def run(self) -> list[tuple[int, int]]:
        while self.working or any(self._may_claim(reader) for reader in self.idle):
            ready = [r for r in self.idle if self._may_claim(r)]
            reader = self.rng.choice([*ready, *self.working])
            if reader in ready:
                self._claim(reader)
            elif self.rng.random() < 0.1:
                self._change()
            else:
                self._read(reader)
        return self.delivered

    def _may_claim(self, reader: int) -> bool:
        """Whether `claim` would come back at once: tests in one thread cannot wait."""
        d = self.dispenser
        if d._active.index(reader) >= d._plan.replicas or (d._over() and not d._claims):
            return True
        claimed = {claim.part for claim in d._claims.values()}
        first = min([*claimed, *d._next], default=0)
        free = [
            p
            for p in d._next
            if (p == first or d._next[p] < MOST_AHEAD * d._batch_rows())
            and (self.source.seekable or (p not in claimed and d._owner.get(p, reader) == reader))
        ]
        in_turn = d._limit is None or not (d._next or d._claims)
        return bool(d._due() and (free or (in_turn and d._unopened < len(d._parts))))

    def _claim(self, reader: int) -> None:
        self.idle.remove(reader)
        claim = self.dispenser.claim(reader)
        if claim is not None:
            self.working[reader] = claim
        else:
            self.dispenser.leave(reader)

    def _read(self, reader: int) -> None:
        claim, d = self.working[reader], self.dispenser
        rows = self.rng.randint(1, claim.stop - claim.at)
        chunk = self.source.read(str(claim.part), claim.at, rows)
        if chunk is not None:
            count = chunk.batch.num_rows
            frontier = d.frontier_after(reader, count)
            self._deliver([(claim.part, claim.at + i) for i in range(count)], frontier)
            d.advance(reader, count)
        if chunk is None or claim.at == claim.stop:
            self._deliver([], d.finish(reader, part_over=chunk is None))
            del self.working[reader]
            self.idle.append(reader)

    def _change(self) -> None:
        replicas, rows = self.rng.randint(1, 4), self.rng.randint(1, 4)
        self.idle += self.dispenser.change(plan(replicas, rows))

    def _deliver(self, rows: list[tuple[int, int]], frontier: Root) -> None:
        early = [row for row in rows if place(0, *row) < self.promised]
        assert not early, f"{early} came though {self.promised} was promised"
        self.delivered += rows
        self.promised = max(self.promised, frontier)


@given(sources(limited=False))
def test_no_promise_passes_a_row_that_is_not_delivered(case):
    source, *_ = case
    delivered = Interleaving(*case).run()
    every = [(int(part), row) for part, size in source.sizes.items() for row in range(size)]
    assert sorted(delivered) == every


@given(sources(limited=True))
def test_a_limit_gives_the_first_rows_whoever_reads(case):
    source, limit, *_ = case
    delivered = Interleaving(*case).run()
    every = [(int(part), row) for part, size in source.sizes.items() for row in range(size)]
    assert sorted(delivered) == every[:limit]
