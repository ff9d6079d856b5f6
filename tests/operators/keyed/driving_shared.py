"""Runs a shared kernel in many ways: cut anywhere, on several replicas, moved, restarted."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.graph import StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator
from anabranch.state.positions import START, Jumbo, Root, end, is_end
from tests.operators.chains import Chain

REPLICAS = 4
Made = tuple[tuple[int, ...], dict[str, Any]]


@dataclass(frozen=True)
class Turn:
    """A place in the stream (in percent of its events), and what happens there.

    Attributes:
        place: Where.
        kind: "stay", "move", "restart" (from a snapshot) or "replay" (from all changes since one).
        owners: Replica of each bucket from here on; some replicas may own none.
    """

    place: int
    kind: str
    owners: tuple[int, ...]


def turns(buckets: int, most: int = 5) -> st.SearchStrategy[tuple[Turn, ...]]:
    owners = st.tuples(*[st.integers(0, REPLICAS - 1)] * buckets)
    kinds = st.sampled_from(["stay", "move", "restart", "replay"])
    one = st.builds(Turn, st.integers(0, 99), kinds, owners)
    return st.lists(one, max_size=most).map(lambda t: tuple(sorted(t, key=lambda one: one.place)))


class SharedDrive:
    """One shared operator, run over bounded streams; `kernels` are those at the end."""

    def __init__(self, operator: Operator, inputs: list[Jumbo], time: pa.DataType | None) -> None:
        self.operator, self.inputs = operator, inputs
        types = tuple(StreamType(j.batch.schema, time) for j in inputs)
        self.depth = max(j.positions.depth for j in inputs)
        outputs = operator.types("step", types)
        self.context = KernelContext("step", 3, types, outputs, self.depth, 8)
        self.buckets = operator.own_buckets
        self.kernels: list[Kernel] = []

    def run(self, turns: tuple[Turn, ...] = ()) -> list[Made]:
        """All that came out, in sequential order."""
        roots = sorted({Root(*p[:4]) for j in self.inputs for p in j.positions.rows()})
        frontiers = [roots[t.place * len(roots) // 100] for t in turns if roots]
        frontiers.append(end(roots[-1].time if roots else 0))
        owners = (0,) * self.buckets
        self.kernels = self.fresh(owners)
        chain = Chain(self.kernels)
        made: list[Made] = []
        previous = START
        for index, frontier in enumerate(frontiers):
            pieces = [_between(j, previous, frontier) for j in self.inputs]
            for kernel in self.kernels:
                (out,) = kernel.step(pieces, frontier)
                made += self._checked(out, previous)
            chain.tell(self.kernels)
            if not is_end(frontier) and turns[index].kind != "stay":
                self._reorganize(chain, owners, turns[index])
                owners = turns[index].owners
            previous = frontier
        places = [place for place, _ in made]
        assert len(set(places)) == len(places), "two tuples at one position"
        return sorted(made, key=lambda one: one[0])

    def fresh(self, owners: tuple[int, ...]) -> list[Kernel]:
        shares = [[b for b, o in enumerate(owners) if o == n] for n in range(REPLICAS)]
        return [self.operator.kernel(replace(self.context, owned=tuple(share))) for share in shares]

    def _reorganize(self, chain: Chain, owners: tuple[int, ...], turn: Turn) -> None:
        if turn.kind == "restart":
            chain.start_anew(self.kernels)
        old, self.kernels = self.kernels, self.fresh(turn.owners)
        for number, taker in enumerate(self.kernels):
            mine = [b for b, o in enumerate(turn.owners) if o == number]
            if turn.kind != "move":
                chain.load(taker, mine)
                continue
            for giver_number, giver in enumerate(old):
                moving = [b for b in mine if owners[b] == giver_number]
                for theirs, ours in zip(giver.stores, taker.stores, strict=True):
                    ours.absorb(theirs.release(moving))
            Chain([taker])  # from here on it remembers what changes

    def _checked(self, out: Jumbo | None, previous: Root) -> list[Made]:
        if out is None:
            return []
        assert out.batch.schema.equals(self.context.outputs[0].schema)
        out.batch.validate(full=True)
        assert out.positions.depth == self.operator.levels(self.depth)
        assert out.positions.is_sorted()
        assert not out.positions.before(previous).any()
        return list(zip(out.positions.rows(), out.batch.to_pylist(), strict=True))


def _between(jumbo: Jumbo, start: Root, stop: Root) -> Jumbo | None:
    chosen = jumbo.positions.before(stop) & ~jumbo.positions.before(start)
    return jumbo.take(np.flatnonzero(chosen)) if chosen.any() else None
