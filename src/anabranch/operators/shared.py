"""Shared operators: buckets that all see every tuple (STRETCH's virtual shared-nothing).

State is split into buckets as in a partitioned operator, but no key says which bucket a tuple
belongs to: each bucket is shown all tuples and decides by itself. A replica owns some buckets and
every replica gets all tuples. Outputs stand in the order (input position, bucket).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import BuildError, OperatorError
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs, failure
from anabranch.operators.schemas import SchemaLike, schema, to_batch
from anabranch.operators.shapes import to_parents
from anabranch.state.positions import Ints, Jumbo, Positions, Root, emission_index
from anabranch.state.store import ObjectStore

DEFAULT_BUCKETS = 16


@dataclass
class Bucket:
    """One bucket of a shared operator: its number, how many there are, and its own state."""

    index: int
    count: int
    state: dict[str, Any]


SharedFunction = Callable[[pa.RecordBatch, Bucket], Any]


class Shared(Operator):
    """A function of (batch, bucket) that returns (columns, parents) for that bucket."""

    state = StateKind.SHARED

    def __init__(self, function: SharedFunction, out: SchemaLike, buckets: int) -> None:
        """Describe; nothing runs."""
        self.function = function
        self.__name__ = getattr(function, "__name__", "shared")
        self.__doc__ = function.__doc__
        self.out = schema(out, self.__name__)
        if buckets < 1:
            raise BuildError(self.__name__, "at least one bucket", str(buckets), "give buckets ≥ 1")
        self.own_buckets = buckets

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
    """Shows every batch to every bucket this replica owns."""

    def __init__(self, context: KernelContext, operator: Shared) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._operator = operator
        self._store = ObjectStore()
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One call per bucket and jumbo tuple."""
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo):
            return [None]
        made: list[Jumbo] = []
        for number in self.context.owned:
            count = self._operator.own_buckets or 1
            bucket = Bucket(number, count, self._store.bucket(number))
            before = list(bucket.state)
            self._run(jumbo, bucket, made)
            # The function had the whole bucket in its hands and may have changed any value.
            for key in (*before, *bucket.state):
                self._store.touch(number, key)
        return [Jumbo.concat(made).in_order() if made else None]

    def _run(self, jumbo: Jumbo, bucket: Bucket, made: list[Jumbo]) -> None:
        step = self.context.step
        try:
            columns, parents = self._operator.function(jumbo.batch, bucket)
        except OperatorError:
            raise
        except Exception as error:
            shown = f"bucket {bucket.index}, a batch of {len(jumbo)} tuples"
            raise failure(step, error, shown) from error
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


def shared(
    *, out: SchemaLike, buckets: int = DEFAULT_BUCKETS
) -> Callable[[SharedFunction], Shared]:
    """Make a function of (batch, bucket) a shared operator.

    Example:
        >>> @shared(out="bucket: int64", buckets=4)
        ... def every_fourth(batch, bucket):
        ...     first = bucket.state.get("seen", 0)
        ...     bucket.state["seen"] = first + batch.num_rows
        ...     rows = [
        ...         i for i in range(batch.num_rows) if (first + i) % bucket.count == bucket.index
        ...     ]
        ...     return {"bucket": [bucket.index] * len(rows)}, rows
        >>> every_fourth.own_buckets
        4
    """
    return lambda function: Shared(function, out, buckets)
