"""Shared operators: buckets that all see every tuple (STRETCH's virtual shared-nothing).

State is split into buckets as in a partitioned operator, but no key says which one bucket a tuple
belongs to. Every replica gets all tuples and shows them to the buckets it owns: each tuple to every
bucket, or to those that the author's `filter` names, which may be several or none (STRETCH §4.2).
Outputs stand in the order (input position, bucket, emission index).

Deviation: STRETCH asks the filter tuple by tuple and of the buckets of one thread; here it is asked
once per jumbo tuple and of all buckets, so that it cannot know who owns what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns
from anabranch.columns.schemas import SchemaLike, schema, to_batch
from anabranch.errors import BuildError, OperatorError, Subject
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import (
    Kernel,
    KernelContext,
    OnError,
    Outputs,
    function_of,
    on_error_of,
    whole_of,
)
from anabranch.operators.decorator import Decorated, decorator
from anabranch.operators.row_wise.map_filter_expand import to_parents
from anabranch.state.positions import Ints, Jumbo, Positions, Root, emission_index
from anabranch.state.tables.store import ObjectStore

DEFAULT_BUCKETS = 16


@dataclass
class Bucket:
    """One bucket of a shared operator: its number, how many there are, and its own state."""

    index: int
    count: int
    state: dict[str, Any]


SharedFunction = Callable[[pa.RecordBatch, Bucket], Any]
Concerns = Callable[[pa.RecordBatch, int], Any]
"""From a batch and the number of buckets to (rows, buckets): pairs of what concerns whom."""


class Shared(Decorated[[pa.RecordBatch, Bucket], Any]):
    """A function of (batch, bucket) that returns (columns, parents) for that bucket."""

    state = StateKind.SHARED

    def __init__(
        self,
        function: SharedFunction,
        out: SchemaLike,
        buckets: int,
        filter: Concerns | None = None,
        on_error: OnError | str = OnError.FAIL,
    ) -> None:
        """Describe; nothing runs."""
        super().__init__(function)
        about = Subject("operator", self.__name__)
        self.filter = None if filter is None else function_of(about, filter)
        self.out = schema(out, about)
        self.own_buckets = whole_of(about, "buckets", buckets)
        if on_error_of(about, on_error) is not OnError.FAIL:
            raise BuildError(
                about,
                "on_error='fail'",
                repr(on_error),
                "part off bad tuples before this step: its buckets may have changed when it raises",
            )

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The declared columns."""
        return (StreamType(self.out, inputs[0].time),)

    def levels(self, depth: int) -> int:
        """Two more: the bucket, and which of its rows."""
        return depth + 2

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return SharedKernel(context, self)


class SharedKernel(Kernel):
    """Shows every batch to the buckets of this replica that it concerns."""

    def __init__(self, context: KernelContext, operator: Shared) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._operator = operator
        self._count = operator.own_buckets or 1
        self._store = ObjectStore()
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One call per bucket and jumbo tuple."""
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo) or not self.context.owned:
            return [None]
        made: list[Jumbo] = []
        for number, shown in self._shown(jumbo):
            bucket = Bucket(number, self._count, self._store.bucket(number))
            before = list(bucket.state)
            self._run(shown, bucket, made)
            # The function had the whole bucket in its hands and may have changed any value.
            for key in (*before, *bucket.state):
                self._store.touch(number, key)
        return [Jumbo.concat(made).in_order() if made else None]

    def _shown(self, jumbo: Jumbo) -> Iterator[tuple[int, Jumbo]]:
        """Each owned bucket with the tuples it gets to see, if any."""
        if self._operator.filter is None:
            yield from ((number, jumbo) for number in self.context.owned)
            return
        rows, buckets = self._concerned(jumbo.batch, self._operator.filter)
        # Each pair once and in order, as one number: a tuple may concern a bucket for two reasons.
        pairs = np.unique(buckets * len(jumbo) + rows)
        cuts = np.searchsorted(pairs, np.arange(self._count + 1) * len(jumbo)).tolist()
        for number in self.context.owned:
            start, stop = cuts[number], cuts[number + 1]
            if stop - start == len(jumbo):
                yield number, jumbo
            elif stop > start:
                yield number, jumbo.take(pairs[start:stop] - number * len(jumbo))

    def _concerned(self, batch: pa.RecordBatch, filter: Concerns) -> tuple[Ints, Ints]:
        """What the author's filter says, checked."""
        step = self.context.step
        try:
            answer = filter(batch, self._count)
        except OperatorError:
            raise
        except Exception as error:
            raise _raised(step, error, f"filtering a batch of {batch.num_rows} tuples") from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise OperatorError(
                step,
                "(rows, buckets) from filter",
                type(answer).__name__,
                "return pairs of a row and a bucket that it concerns, as two columns",
            )
        rows = _numbers(step, "rows", answer[0], batch.num_rows)
        buckets = _numbers(step, "buckets", answer[1], self._count)
        if len(rows) != len(buckets):
            raise OperatorError(
                step,
                "as many rows as buckets from filter",
                f"{len(rows)} and {len(buckets)}",
                "return one pair for each bucket that a row concerns",
            )
        return rows, buckets

    def _run(self, jumbo: Jumbo, bucket: Bucket, made: list[Jumbo]) -> None:
        step = self.context.step
        try:
            columns, parents = self._operator.function(jumbo.batch, bucket)
        except OperatorError:
            raise
        except Exception as error:
            shown = f"bucket {bucket.index}, a batch of {len(jumbo)} tuples"
            raise _raised(step, error, shown) from error
        batch = to_batch(step, columns, self._operator.out, None)
        if not batch.num_rows:
            return
        indexes = to_parents(step, parents, len(jumbo), batch)
        order = np.argsort(indexes, kind="stable")
        indexes, batch = indexes[order], batch.take(pa.array(order))
        sources = jumbo.positions.take(indexes)
        made.append(Jumbo(batch, _under_bucket(sources, bucket.index, indexes)))


def _under_bucket(sources: Positions, bucket: int, parents: Ints) -> Positions:
    level = np.broadcast_to(np.int64(bucket), len(sources))
    return sources.extend(level).extend(emission_index(parents))


def _raised(step: str, error: Exception, where: str) -> OperatorError:
    return OperatorError(
        step,
        "a result for every batch",
        f"{type(error).__name__}: {error} on {where}",
        "mend the operator or the data",
    )


def _numbers(step: str, what: str, values: Any, bound: int) -> Ints:
    """Row or bucket numbers as a filter gave them."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        values = values.to_numpy(zero_copy_only=False)
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise OperatorError(
            step,
            f"{what} from filter as a column of whole numbers",
            f"{array.dtype} in {array.ndim} dimension(s)",
            "return (rows, buckets), two columns of equal length",
        )
    if array.size and (array.min() < 0 or array.max() >= bound):
        raise OperatorError(
            step,
            f"{what} from filter in 0..{bound - 1}",
            f"{int(array.min())}..{int(array.max())}",
            "name rows of the batch, and buckets below the number that filter is given",
        )
    return array.astype(np.int64, copy=False)


def buckets_of(values: pa.Array, buckets: int) -> Ints:
    """The bucket of each value: equal values share one, in every process and for ever.

    Example:
        >>> buckets_of(pa.array(["rain", "sun", "rain"]), 16).tolist()
        [8, 12, 8]
    """
    return bucket_of(hash_columns([values]), buckets)


@decorator('@ab.shared(out="name: type")')
def shared(
    function: SharedFunction,
    /,
    *,
    out: SchemaLike,
    buckets: int = DEFAULT_BUCKETS,
    filter: Concerns | None = None,
    on_error: OnError | str = OnError.FAIL,
) -> Shared:
    """Make a function of (batch, bucket) a shared operator.

    Args:
        function: From a batch and a bucket to rows, and the parent of each.
        out: The columns that it returns, beside the parent of each row.
        buckets: How many there are, which bounds the number of replicas.
        filter: A function of (batch, number of buckets) that says which rows concern which
            buckets, as two columns of equal length: row numbers and bucket numbers. A bucket sees
            the rows that concern it, in order and each once, and is not called when there is none.
            Without a filter every bucket sees every tuple.
        on_error: Only "fail".

    Example:
        >>> import pyarrow.compute as pc
        >>> def by_tag(batch, buckets):
        ...     tags = batch["tags"]
        ...     return pc.list_parent_indices(tags), buckets_of(pc.list_flatten(tags), buckets)
        >>> @shared(out="bucket: int64, seen: int64", buckets=4, filter=by_tag)
        ... def counted(batch, bucket):
        ...     before, rows = bucket.state.get("seen", 0), range(batch.num_rows)
        ...     bucket.state["seen"] = before + len(rows)
        ...     seen = [before + row + 1 for row in rows]
        ...     return {"bucket": [bucket.index] * len(rows), "seen": seen}, rows
        >>> counted.own_buckets
        4
    """
    return Shared(function, out, buckets, filter, on_error)
