"""Runs a kernel in many ways: cut anywhere, spread over replicas, moved and restarted midway."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Counters, KernelContext, Operator
from anabranch.state.positions import START, Jumbo, Positions, Root, end, is_end
from tests.operators.chains import Chain

BUCKETS = 4
RANK = 3


@dataclass(frozen=True)
class Way:
    """How to run: where to cut (in percent of the events), and what happens after each cut.

    Each action is (kind, owners): kind "stay", "move", "restart" (from a snapshot) or "replay"
    (from all changes since the last snapshot); owners by bucket.
    """

    cuts: tuple[float, ...] = ()
    actions: tuple[tuple[str, tuple[int, ...]], ...] = ()


ONE_THREAD = Way()


@dataclass
class Ran:
    """What came out: per output port (position, row), in sequential order."""

    ports: list[list[tuple[tuple[int, ...], dict[str, Any]]]]
    counters: Counters
    kernels: list[Any] = field(default_factory=list)

    def rows(self, port: int = 0) -> list[dict[str, Any]]:
        return [row for _, row in self.ports[port]]

    def shown(self) -> str:
        """Comparable even where NaN is among the values."""
        return repr(self.ports)


def ways(max_cuts: int = 5) -> st.SearchStrategy[Way]:
    owners = st.tuples(*[st.integers(0, 2)] * BUCKETS)
    action = st.tuples(st.sampled_from(["stay", "move", "restart", "replay"]), owners)
    return st.builds(
        Way,
        st.lists(st.integers(0, 99), min_size=1, max_size=max_cuts).map(lambda c: tuple(sorted(c))),
        st.lists(action, min_size=max_cuts, max_size=max_cuts).map(tuple),
    )


def jumbo(schema: pa.Schema, rows: list[tuple[tuple[int, ...], tuple[Any, ...]]]) -> Jumbo:
    """A jumbo tuple of (position, values), put in order."""
    if not rows:
        return Jumbo.empty(schema, 1)
    rows = sorted(rows, key=lambda r: r[0])
    columns = list(zip(*(values for _, values in rows), strict=True))
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return Jumbo(batch, Positions.of_rows([p for p, _ in rows], len(rows[0][0])))


def simple(schema: pa.Schema, rows: list[tuple[Any, ...]], times: list[int] | None = None) -> Jumbo:
    """Rows of one source, in their order, at times 0, 1, 2… or as given."""
    at = times if times is not None else list(range(len(rows)))
    placed = [((t, 0, i, 0, 0), r) for i, (t, r) in enumerate(zip(at, rows, strict=True))]
    return jumbo(schema, placed)


def drive(
    operator: Operator,
    inputs: list[Jumbo],
    way: Way = ONE_THREAD,
    *,
    time: pa.DataType | None = None,
    changelog: tuple[str, ...] | None = None,
    routing: tuple[str, ...] = (),
) -> Ran:
    """Run a whole bounded stream and give all that came out."""
    types = tuple(StreamType(j.batch.schema, time, changelog) for j in inputs)
    outputs = operator.types("step", types)
    counters = Counters()
    depth = max(j.positions.depth for j in inputs)
    context = KernelContext(
        "step", RANK, types, outputs, depth, BUCKETS, routing, counters=counters
    )
    roots = sorted({Root(*p[:4]) for j in inputs for p in j.positions.rows()})
    frontiers = [roots[int(c * len(roots) / 100)] for c in way.cuts if roots]
    frontiers.append(end(roots[-1].time if roots else 0))
    kernels = [operator.kernel(context) for _ in range(3)]
    chain = Chain(kernels)
    owners: tuple[int, ...] = (0,) * BUCKETS
    out: list[list[tuple[tuple[int, ...], dict[str, Any]]]] = [[] for _ in outputs]
    previous = START
    for index, frontier in enumerate(frontiers):
        pieces = [_between(j, previous, frontier) for j in inputs]
        for number, kernel in enumerate(kernels):
            mine = [_routed(operator, p, number, owners, routing) for p in pieces]
            for port, made in enumerate(kernel.step(mine, frontier)):
                if made is not None and len(made):
                    _check(operator, made, previous, outputs[port], depth)
                    rows = made.batch.to_pylist()
                    out[port] += zip(made.positions.rows(), rows, strict=True)
        chain.tell(kernels)
        if index < len(way.actions) and not is_end(frontier):
            kind, wanted = way.actions[index]
            if kind == "restart":
                chain.start_anew(kernels)
            if kind == "move":
                _move(kernels, owners, wanted)
            elif kind != "stay":
                kernels = [operator.kernel(context) for _ in kernels]
                for number, kernel in enumerate(kernels):
                    chain.load(kernel, [b for b in range(BUCKETS) if wanted[b] == number])
            owners = owners if kind == "stay" else wanted
        previous = frontier
    for made_rows in out:
        places = [p for p, _ in made_rows]
        assert len(set(places)) == len(places), "two tuples at one position"
        made_rows.sort(key=lambda r: r[0])
    return Ran(out, counters, kernels)


def _between(jumbo: Jumbo, start: Root, stop: Root) -> Jumbo | None:
    chosen = jumbo.positions.before(stop) & ~jumbo.positions.before(start)
    return jumbo.take(np.flatnonzero(chosen)) if chosen.any() else None


def _routed(
    operator: Operator,
    jumbo: Jumbo | None,
    number: int,
    owners: tuple[int, ...],
    routing: tuple[str, ...],
) -> Jumbo | None:
    if jumbo is None:
        return None
    if operator.state is StateKind.STATELESS:
        bucket = np.arange(len(jumbo)) % BUCKETS
    elif operator.state is StateKind.STATEFUL:
        bucket = np.zeros(len(jumbo), np.int64)
    else:
        columns = [jumbo.batch.column(n) for n in routing or operator.key]
        bucket = bucket_of(hash_columns(columns), BUCKETS)
    mine = np.array(owners)[bucket] == number
    return jumbo.take(np.flatnonzero(mine)) if mine.any() else None


def _move(kernels: list[Any], owners: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    for old, giver in enumerate(kernels):
        for new, taker in enumerate(kernels):
            moving = [b for b in range(BUCKETS) if owners[b] == old and wanted[b] == new]
            if old != new and moving:
                for mine, theirs in zip(giver.stores, taker.stores, strict=True):
                    theirs.absorb(mine.release(moving))


def _check(operator: Operator, made: Jumbo, previous: Root, kind: StreamType, depth: int) -> None:
    assert made.batch.schema.equals(kind.schema)
    made.batch.validate(full=True)
    assert made.positions.depth == operator.levels(depth)
    assert made.positions.is_sorted()
    assert not made.positions.before(previous).any()
