"""Busy flows: real flows whose operators cost, pass on and remember what a profile says.

A profile of a chain becomes a flow that any engine can run. Each operator multiplies numbers for
the time that its tuples are said to cost, in kernels of NumPy that let other threads run meanwhile;
it passes on a share of its tuples that a hash of each tuple decides. How many tuples reach an
operator is therefore a fact of the flow, the same under every plan and every batching. Operators
with state count the tuples they have seen and mix the count into the row, so that lost state or a
wrong order shows in what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.engines.measuring.processor import multiply, nanoseconds_a_multiplication
from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow, Order
from anabranch.graph import StateKind
from anabranch.io.generate_source import generate
from anabranch.io.sink import Guarantee, Traits
from anabranch.io.source import Chunk, Extent, Source
from anabranch.io.staged import StagedSink
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.operators.keyed.keyed import KeyedBatch, KeyedState
from anabranch.operators.row_wise.map_filter_expand import (
    BatchOperator,
    Expand,
    Filter,
    attach,
    guarded,
)
from anabranch.planning.profile import NANOSECONDS, OperatorProfile, Profile
from anabranch.state.positions import Jumbo, Root
from anabranch.state.tables.store import ObjectStore

ROW = "row"
SOURCE, SINK = "source", "sink"
DISTINCT_KEYS = 1024

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def busy_flow(
    profile: Profile,
    rows: int | None,
    *,
    unit_ns: float | None = None,
    multiplication_ns: float | None = None,
    order: Order | str = Order.TOTAL,
    buckets: int = 256,
    seed: int = 0,
) -> Flow:
    """A flow that does what the profile of a chain says, between a source and a sink that counts.

    Args:
        profile: A chain of stateless, partitioned and stateful operators.
        rows: How many tuples the source has; None for no end.
        unit_ns: Nanoseconds of one unit of cost; by default what the profile's unit says, else 1.
        multiplication_ns: Time of one multiplication; measured when left out. What is worked per
            tuple is fixed here, also for workers in other processes.
        order: What the sink promises.
        buckets: How many buckets keys are hashed into.
        seed: Another seed, other tuples pass.

    Example:
        >>> from anabranch.planning.profile import chain
        >>> from anabranch.testing import run_sequential
        >>> parse = OperatorProfile("parse", cost=2.0, selectivity=0.5)
        >>> count = OperatorProfile("count", cost=1.0, state=StateKind.PARTITIONED, key=("user",))
        >>> flow = busy_flow(chain([parse, count], unit="us"), rows=100)
        >>> flow
        Flow 'busy': source → parse → count → sink
        >>> 20 < len(run_sequential(flow).rows("sink")) < 80
        True
    """
    _require_chain(profile)
    if unit_ns is None:
        unit_ns = NANOSECONDS[profile.unit] if profile.unit else 1.0
    per_multiplication = multiplication_ns or nanoseconds_a_multiplication()
    flow = Flow("busy", buckets=buckets, order=order)
    made = _Rows(profile, seed)
    stream = flow.source(SOURCE, generate(made, made.schema, rows=rows, seed=seed))
    for number, operator in enumerate(profile.operators):
        multiplications = operator.cost * unit_ns / per_multiplication
        task = _Task(multiplications, operator.selectivity, _salt(seed, number + 1))
        stream = stream.apply(operator.name, _operator(operator, task, made.keys))
    return stream.sink(SINK, CountingSink())


class CountingSink(StagedSink):
    """A sink that counts the rows it gets and keeps none of them."""

    traits = Traits(Guarantee.AT_LEAST_ONCE)

    def __init__(self) -> None:
        """Nothing yet."""
        self.rows = 0

    def begin(self, schema: pa.Schema, version: int) -> None:
        """Count from nothing when a run begins."""
        if version < 0:
            self.rows = 0

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Count."""
        self.rows += sum(batch.num_rows for batch in rows)

    def rehearsal(self, folder: Path) -> CountingSink:
        return CountingSink()


def _require_chain(profile: Profile) -> None:
    names = [operator.name for operator in profile.operators]
    if [(s.producer, s.consumer) for s in profile.streams] != list(pairwise(names)):
        raise BuildError(
            Subject("profile"), "the profile of a chain", f"{profile.streams}", "leave edges out"
        )
    shared = [o.name for o in profile.operators if o.state is StateKind.SHARED]
    if shared:
        raise BuildError(
            Subject("operator", shared[0]),
            "stateless, partitioned or stateful",
            "shared",
            "leave it out",
        )
    for operator in profile.operators:
        if ROW in operator.key:
            raise BuildError(
                Subject("operator", operator.name),
                f"a key without {ROW!r}",
                str(list(operator.key)),
                "call it otherwise",
            )


def _operator(operator: OperatorProfile, task: _Task, keys: tuple[str, ...]) -> Operator:
    if operator.state is StateKind.PARTITIONED:
        count = _CountKeys(task)
        return KeyedBatch(count, operator.key, "seen: int64", f"{ROW}: int64", keeps=keys)
    if operator.state is StateKind.STATEFUL:
        return BusyStateful(task, keys)
    if operator.selectivity > 1:
        return Expand(_Multiply(task), f"{ROW}: int64", keeps=keys)
    return Filter(_Pass(task))


class _Rows:
    """Makes rows: their number, and a column of numbers for every key of the profile."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.keys = tuple(dict.fromkeys(n for o in profile.operators for n in o.key))
        users = {n: [o for o in profile.operators if n in o.key] for n in self.keys}
        self._distinct = [max(o.keys or DISTINCT_KEYS for o in users[n]) for n in self.keys]
        self._hottest = [max(o.hottest_key_share or 0.0 for o in users[n]) for n in self.keys]
        self._seed = seed
        self.schema = pa.schema([(n, pa.int64()) for n in (*self.keys, ROW)])

    def __call__(self, rng: Any, index: Rows) -> dict[str, Rows]:
        columns = {ROW: index}
        for number, name in enumerate(self.keys):
            drawn = _hashed(index, _salt(self._seed, -1 - number))
            key = (drawn % np.uint64(self._distinct[number])).astype(np.int64)
            if self._hottest[number]:
                # Key 0 has its even share already; the rest of its share is taken from all.
                even = 1 / self._distinct[number]
                extra = max(0.0, (self._hottest[number] - even) / max(1 - even, even))
                key[_share(drawn, _salt(self._seed, -1000 - number)) < extra] = 0
            columns[name] = key
        return columns


class _Task:
    """What an operator does with a batch, whatever its state."""

    def __init__(self, multiplications: float, selectivity: float, salt: int) -> None:
        self._multiplications, self._salt = multiplications, salt
        self._whole, self._part = divmod(selectivity, 1.0)

    def work(self, rows: int) -> None:
        multiply(rows * self._multiplications)

    def copies(self, rows: Rows) -> Rows:
        """How often each row is passed on."""
        copies = np.full(len(rows), int(self._whole), np.int64)
        if self._part:
            copies += _share(rows, self._salt) < self._part
        return copies

    def passed(self, rows: Rows) -> tuple[Rows, Rows]:
        """Rows that are passed on, and the index of the row each comes from."""
        copies = self.copies(rows)
        parents = np.repeat(np.arange(len(rows), dtype=np.int64), copies)
        chosen = rows[parents]
        if self._whole + bool(self._part) > 1:  # copies of a row are told apart
            first = np.repeat(np.cumsum(copies) - copies, copies)
            chosen = _mixed(chosen, np.arange(len(chosen), dtype=np.int64) - first)
        return chosen, parents


class _Pass:
    """The function of a filter."""

    def __init__(self, task: _Task) -> None:
        self._task = task

    def __call__(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        self._task.work(batch.num_rows)
        mask: npt.NDArray[np.bool_] = self._task.copies(_rows_of(batch)) > 0
        return mask


class _Multiply:
    """The function of an expand."""

    def __init__(self, task: _Task) -> None:
        self._task = task

    def __call__(self, batch: pa.RecordBatch) -> tuple[dict[str, Rows], Rows]:
        self._task.work(batch.num_rows)
        rows, parents = self._task.passed(_rows_of(batch))
        return {ROW: rows}, parents


class _CountKeys:
    """The function of a partitioned operator: counts the tuples of each key."""

    def __init__(self, task: _Task) -> None:
        self._task = task

    def __call__(self, batch: pa.RecordBatch, state: KeyedState) -> tuple[dict[str, Rows], Rows]:
        self._task.work(batch.num_rows)
        before = state["seen"]
        counts = np.bincount(state.codes, minlength=state.groups)
        state["seen"] = before + counts
        seen = before[state.codes] + _number_within(state.codes, counts)
        rows, parents = self._task.passed(_mixed(_rows_of(batch), seen))
        return {ROW: rows}, parents


class BusyStateful(BatchOperator[[pa.RecordBatch]]):
    """A busy operator with one state: it counts all its tuples."""

    state = StateKind.STATEFUL

    def __init__(self, task: _Task, keys: tuple[str, ...]) -> None:
        """Describe; nothing runs."""
        super().__init__(_Multiply(task), f"{ROW}: int64", keeps=keys)
        self.task = task

    def levels(self, depth: int) -> int:
        """One more: a row may cause several."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return _StatefulKernel(context, self)


class _StatefulKernel(Kernel):
    """Counts in a store, so that the count survives what a run survives."""

    def __init__(self, context: KernelContext, operator: BusyStateful) -> None:
        super().__init__(context)
        self._operator, self._store = operator, ObjectStore()
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        return guarded(self._operator, self.context, inputs[0], self._run)

    def _run(self, source: Jumbo) -> Jumbo:
        self._operator.task.work(len(source))
        held = self._store.bucket(0)
        seen = held.get(ROW, 0)
        numbers = np.arange(seen, seen + len(source), dtype=np.int64)
        rows, parents = self._operator.task.passed(_mixed(_rows_of(source.batch), numbers))
        held[ROW] = seen + len(source)
        self._store.touch(0, ROW)
        columns = pa.record_batch({ROW: rows})
        return attach(self._operator, self.context, source, columns, parents, expands=True)


def _rows_of(batch: pa.RecordBatch) -> Rows:
    rows: Rows = batch.column(ROW).to_numpy()
    return rows


def _number_within(codes: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Rows:
    """For each row, how many rows of its group stand before it."""
    order = np.argsort(codes, kind="stable")
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


def _salt(seed: int, number: int) -> int:
    return (seed * 1_000_003 + number * 7_919) % (1 << 63)


def _hashed(values: npt.NDArray[Any], salt: int) -> Hashes:
    """Numbers that look random and depend on value and salt alone (splitmix64's finalizer)."""
    mixed: Hashes = values.astype(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15) % (1 << 64))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _share(values: npt.NDArray[Any], salt: int) -> npt.NDArray[np.float64]:
    """Such numbers between 0 and 1."""
    shares: npt.NDArray[np.float64] = _hashed(values, salt) / np.float64(2**64)
    return shares


def _mixed(rows: Rows, numbers: Rows) -> Rows:
    """A new row for a row and a number."""
    return _hashed(rows ^ (numbers << 20), 1).astype(np.int64)


# A source that replays rows from memory without end, for measurements: reading costs next to
# nothing.

PART = "replayed"


class Replay(Source):
    """The rows of a batch again and again.

    Example:
        >>> source = Replay(pa.record_batch({"x": [1, 2, 3]}))
        >>> source.read("replayed", start=2, rows=10).batch.to_pylist()
        [{'x': 3}]
        >>> source.read("replayed", start=3, rows=2).batch.to_pylist()
        [{'x': 1}, {'x': 2}]
    """

    def __init__(self, batch: pa.RecordBatch, most_rows: int | None = None) -> None:
        """Hold the rows; there must be some. No more than `most_rows` are given at once."""
        if not batch.num_rows:
            raise BuildError(Subject("argument", "rows"), "rows to replay", "none", "give it some")
        self._batch, self._most_rows = batch, most_rows or batch.num_rows

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._batch.schema

    @property
    def bounded(self) -> bool:
        """It has no end."""
        return False

    @property
    def order(self) -> str:
        """By number."""
        return "index"

    def parts(self) -> tuple[str, ...]:
        """One part."""
        return (PART,)

    def read(self, part: str, start: int, rows: int) -> Chunk:
        """Rows up to the next time that they begin anew."""
        most = min(rows, self._most_rows)
        return Chunk(self._batch.slice(start % self._batch.num_rows, most))

    def extent(self, part: str) -> Extent:
        """Any row is at hand."""
        return Extent(None, exact=True, seekable=True)


def replaying(flow: Flow, rows: int, most_rows: int | None = None) -> Flow:
    """The same flow, with the first rows of its only source replayed from memory."""
    sources = flow.sources()
    if len(sources) != 1:
        raise BuildError(
            Subject("flow", flow.name), "one source", str(list(sources)), "measure another flow"
        )
    ((name, source),) = sources.items()
    part = source.parts()[0]
    batches: list[pa.RecordBatch] = []
    while (held := sum(batch.num_rows for batch in batches)) < rows:
        chunk = source.read(part, held, rows - held)
        if chunk is None or not chunk.batch.num_rows:
            break
        batches.append(chunk.batch)
    return flow.reading({name: Replay(pa.concat_batches(batches), most_rows)})
