"""Runs one-input kernels in many ways: cut anywhere, spread over replicas, moved, restarted."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator
from anabranch.state.positions import FIRST, Jumbo, Positions, Root, after, end, is_end
from tests.operators.chains import Chain

BUCKETS = 8
RANK = 3

Made = tuple[tuple[int, ...], dict[str, Any]]


@dataclass(frozen=True)
class Cut:
    """A place between two tuples, and what happens there.

    Attributes:
        row: The batch ends before this row.
        reach: Whether the frontier says that the next tuple's time has come.
        owners: Replica of each bucket from here on.
        restart: Whether every kernel is rebuilt from what was saved here.
        snapshot: Whether what is saved here is a snapshot, else what changed since it was saved.
    """

    row: int
    reach: bool = False
    owners: tuple[int, ...] = (0,) * BUCKETS
    restart: bool = False
    snapshot: bool = False


def cuts(rows: int, most: int = 4) -> st.SearchStrategy[tuple[Cut, ...]]:
    owners = st.tuples(*[st.integers(0, 2)] * BUCKETS)
    one = st.builds(Cut, st.integers(0, rows), st.booleans(), owners, st.booleans(), st.booleans())
    return st.lists(one, max_size=most).map(lambda c: tuple(sorted(c, key=lambda one: one.row)))


def stream(
    schema: pa.Schema, rows: list[dict[str, Any]], times: list[int] | None = None, depth: int = 0
) -> Jumbo:
    """A stream of tuples at these times, in order; without times they are numbered."""
    seq = np.arange(len(rows), dtype=np.int64)
    positions = Positions.of_source(0, seq)
    if times is not None:
        positions = positions.at_time(np.array(sorted(times), dtype=np.int64))
    columns = [pa.array([row[f.name] for row in rows], f.type) for f in schema]
    return Jumbo(pa.RecordBatch.from_arrays(columns, schema=schema), positions.pad(depth))


class Drive:
    """One operator, run over one stream."""

    def __init__(
        self, operator: Operator, given: StreamType, depth: int = 0, routing: tuple[str, ...] = ()
    ) -> None:
        self.operator, self.given, self.depth = operator, given, depth
        self.routing = routing
        self.out = operator.types("step", (given,))

    def kernel(self) -> Kernel:
        context = KernelContext(
            "step", RANK, (self.given,), self.out, self.depth, BUCKETS, self.routing
        )
        return self.operator.kernel(context)

    def run(self, jumbo: Jumbo, cuts: tuple[Cut, ...] = ()) -> list[Made]:
        """All results in sequential order, after checking what every kernel owes."""
        buckets = self._buckets(jumbo)
        owners, frontier, start = np.zeros(BUCKETS, np.int64), Root(FIRST, 0, 0, 0), 0
        kernels = [self.kernel() for _ in range(3)]
        chain = Chain(kernels)
        made: list[Made] = []
        last = int(jumbo.positions.columns[0].max(initial=0))
        for cut in (*(self._between_events(jumbo, c) for c in cuts), None):
            stop = len(jumbo) if cut is None else cut.row
            passed = end(last) if cut is None else self._frontier(jumbo, cut, frontier)
            for number, kernel in enumerate(kernels):
                rows = start + np.flatnonzero(owners[buckets[start:stop]] == number)
                part = jumbo.take(rows.astype(np.int64))
                (out,) = kernel.step([part if len(part) or number else None], passed)
                made += self._checked(out, frontier)
                self._check_timer(kernel, passed)
            start, frontier = stop, passed
            if cut is not None:
                owners = self._reorganize(kernels, owners, cut, chain)
        return sorted(made, key=lambda one: one[0])

    def _buckets(self, jumbo: Jumbo) -> Any:
        if self.operator.state is StateKind.PARTITIONED:
            names = self.routing or self.operator.key
            return bucket_of(hash_columns([jumbo.batch.column(n) for n in names]), BUCKETS)
        return np.zeros(len(jumbo), np.int64)

    @staticmethod
    def _between_events(jumbo: Jumbo, cut: Cut) -> Cut:
        """Tuples of one event are never parted: no frontier stands between them."""
        roots = list(zip(*(c.tolist() for c in jumbo.positions.columns[:4]), strict=True))
        row = cut.row
        while 0 < row < len(roots) and roots[row] == roots[row - 1]:
            row += 1
        return replace(cut, row=row)

    @staticmethod
    def _frontier(jumbo: Jumbo, cut: Cut, before: Root) -> Root:
        """Right behind the last tuple, or at the time of the next."""
        if cut.row < len(jumbo) and cut.reach:
            time = int(jumbo.positions.columns[0][cut.row])
            place = Root(time, FIRST, FIRST, FIRST)
            if cut.row and jumbo.positions.columns[0][cut.row - 1] == time:
                place = Root(*(int(c[cut.row]) for c in jumbo.positions.columns[:4]))
        elif cut.row:
            place = after(Root(*(int(c[cut.row - 1]) for c in jumbo.positions.columns[:4])))
        else:
            place = before
        return max(place, before)

    def _checked(self, out: Jumbo | None, frontier: Root) -> list[Made]:
        if out is None:
            return []
        assert out.batch.schema.equals(self.out[0].schema)
        out.batch.validate(full=True)
        assert out.positions.depth == self.operator.levels(self.depth)
        rows = out.positions.rows()
        assert rows == sorted(set(rows)), "results stand in order, each at a place of its own"
        assert not out.positions.before(frontier).any(), "nothing stands before the last frontier"
        return list(zip(rows, out.batch.to_pylist(), strict=True))

    @staticmethod
    def _check_timer(kernel: Kernel, frontier: Root) -> None:
        due = kernel.next_timer()
        assert due is None or (due > frontier.time and not is_end(frontier))

    def _reorganize(self, kernels: list[Kernel], owners: Any, cut: Cut, chain: Chain) -> Any:
        wanted = np.array(cut.owners)
        chain.start_anew(kernels) if cut.snapshot else chain.tell(kernels)
        for source in range(len(kernels)):
            for target in range(len(kernels)):
                moving = np.flatnonzero((owners == source) & (wanted == target)).tolist()
                if source != target and moving:
                    for old, new in zip(
                        kernels[source].stores, kernels[target].stores, strict=True
                    ):
                        new.absorb(old.release(moving))
        if cut.restart:
            for number in range(len(kernels)):
                kernels[number] = self.kernel()
                chain.load(kernels[number], np.flatnonzero(wanted == number).tolist())
        return wanted


def same(left: list[Made], right: list[Made]) -> bool:
    """Equal, where NaN equals NaN and -0.0 is not 0.0."""
    return repr(left) == repr(right)
