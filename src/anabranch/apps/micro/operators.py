"""What the micro-benchmarks are made of: operators that multiply, parse or wait, and pass on.

Every tuple carries a number, `value`, and operators change it. What a stateless operator makes of a
tuple follows from that tuple alone; one that counts adds to the number how many tuples came before,
so lost state or a wrong order shows in what comes out. Whether a tuple is passed on is decided by a
hash of its number: the papers draw a random number instead, which no second run would repeat.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.apps.kit.seeded_random import draws
from anabranch.columns.grouped_rows import Runs
from anabranch.columns.schemas import SchemaLike, schema
from anabranch.graph import StateKind
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.operators.keyed.keyed import KeyedState, keyed
from anabranch.operators.parsing.parse import parse_json
from anabranch.operators.row_wise.map_filter_expand import (
    BatchOperator,
    attach,
    expand,
    guarded,
    map,
)
from anabranch.state.positions import Jumbo, Root
from anabranch.state.tables.store import ObjectStore

LANE = 8192
"""Numbers that are multiplied together: so many stay in the nearest caches."""

VALUE = pa.schema([("value", pa.int64())])

Numbers = npt.NDArray[np.int64]
Passed = tuple[dict[str, Numbers], Numbers]


def multiplied(numbers: Numbers, times: int) -> Numbers:
    """Each number with an odd one that takes so many multiplications to find.

    Few calls do all of them, and let other threads run meanwhile. The odd number is a power of
    this one, or of the next if it is even; they wrap around at 64 bits.

    Example:
        >>> multiplied(np.array([3, 4]), times=2).tolist()  # 3 xor 3·3·3, 4 xor 5·5·5
        [24, 121]
        >>> multiplied(np.array([3, 4]), times=0).tolist()
        [3, 4]
    """
    if not times:
        return numbers
    power: Numbers = numbers | 1
    for start in range(0, len(power), LANE):
        lane = power[start : start + LANE]
        factors = np.broadcast_to(lane.copy(), (times + 1, len(lane)))
        np.multiply.reduce(factors, axis=0, out=lane)
    return numbers ^ power


def passed_on(numbers: Numbers, selectivity: float, salt: int) -> tuple[Numbers, Numbers]:
    """Numbers that are passed on, and for each the row it comes from.

    A selectivity of 2.25 passes every tuple on twice and one in four a third time. Copies are told
    apart: the second is the number after it, and so on.

    Example:
        >>> passed_on(np.array([10, 20]), selectivity=2.0, salt=0)[0].tolist()
        [10, 11, 20, 21]
    """
    whole, part = divmod(selectivity, 1.0)
    copies = np.full(len(numbers), int(whole), np.int64)
    if part:
        copies += draws(salt, numbers) < part
    parents = np.repeat(np.arange(len(numbers)), copies)
    firsts = np.cumsum(copies) - copies
    return numbers[parents] + np.arange(len(parents)) - firsts[parents], parents


def multiply(times: int, selectivity: float = 1.0, salt: int = 0) -> Operator:
    """A stateless operator: multiplies, and passes on."""
    if selectivity == 1.0:

        @map(out=VALUE, keeps="*")
        def one_for_one(batch: pa.RecordBatch) -> dict[str, Numbers]:
            return {"value": multiplied(_numbers(batch), times)}

        return one_for_one

    @expand(out=VALUE, keeps="*")
    def some(batch: pa.RecordBatch) -> Passed:
        values, parents = passed_on(multiplied(_numbers(batch), times), selectivity, salt)
        return {"value": values}, parents

    return some


def count_and_multiply(key: str, times: int, selectivity: float = 1.0, salt: int = 0) -> Operator:
    """A partitioned operator: the number of tuples of this key so far is added first."""

    @keyed(key=key, state="seen: int64", out=VALUE, keeps="*")
    def count(batch: pa.RecordBatch, state: KeyedState) -> Passed:
        runs, before = Runs(state.codes, state.groups), state["seen"]
        state["seen"] = before + runs.counts
        counted = _numbers(batch) + before[state.codes] + runs.ranks()
        values, parents = passed_on(multiplied(counted, times), selectivity, salt)
        return {"value": values}, parents

    return count


class CountAll(BatchOperator[[pa.RecordBatch]]):
    """A stateful operator: the number of all tuples so far is added first."""

    state = StateKind.STATEFUL

    def __init__(self, times: int, selectivity: float = 1.0, salt: int = 0) -> None:
        """Describe; nothing runs."""
        super().__init__(self.counted, VALUE, keeps="*")
        self.times, self.selectivity, self.salt = times, selectivity, salt

    def counted(self, batch: pa.RecordBatch, seen: int = 0) -> tuple[Numbers, Numbers]:
        """What comes out when so many came before."""
        numbers = _numbers(batch) + np.arange(seen, seen + batch.num_rows)
        return passed_on(multiplied(numbers, self.times), self.selectivity, self.salt)

    def levels(self, depth: int) -> int:
        """One more: a row may cause several."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return _CountAllKernel(context, self)


class _CountAllKernel(Kernel):
    """Its only state is a count."""

    def __init__(self, context: KernelContext, operator: CountAll) -> None:
        super().__init__(context)
        self._operator, self._store = operator, ObjectStore()
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        return guarded(self._operator, self.context, inputs[0], self._run)

    def _run(self, given: Jumbo) -> Jumbo:
        held = self._store.bucket(0)
        seen = held.get("seen", 0)
        values, parents = self._operator.counted(given.batch, seen)
        held["seen"] = seen + len(given)
        self._store.touch(0, "seen")
        columns = pa.record_batch({"value": values})
        return attach(self._operator, self.context, given, columns, parents, expands=True)


def parse() -> Operator:
    """An operator that reads the number out of the tuple's payload, a JSON object.

    What is no such object is skipped, and counted.
    """
    required = pa.schema([VALUE.field("value").with_nullable(False)])
    return parse_json("payload", required, on_error="skip", keeps="payload")


def wait(ms: float, out: SchemaLike = None) -> Operator:
    """An operator that keeps each tuple for so long, as one that asks a service does.

    A batch waits as long as its tuples would one after the other; other threads run meanwhile.

    Args:
        ms: How long, in milliseconds.
        out: Columns that are handed on with these types, where others stand beside this operator.
    """

    @map(out=out, keeps="*")
    def waiting(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        time.sleep(batch.num_rows * ms / 1000)
        return {name: batch[name] for name in schema(out).names}

    return waiting


def _numbers(batch: pa.RecordBatch) -> Numbers:
    numbers: Numbers = batch["value"].to_numpy()
    return numbers
