"""What comes to a tuple-style operator: the rows of its ports, by key and in order.

A value that Python does not have, such as a time in the year 20000, cannot be shown to the author's
code. Its row is treated as one on which that code raised: the step's `on_error` says what becomes
of it. Whether a row is one follows from that row alone. Such rows are looked for only where the
conversion of a whole batch has failed, so others pay nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from anabranch.columns.hashing import bucket_of, hash_columns, order_prefix
from anabranch.columns.rows import (
    UNREADABLE,
    is_nan,
    row_class,
    row_reader,
    shown_values,
    unreadable_rows,
)
from anabranch.errors import OperatorError
from anabranch.operators.base import KernelContext, OnError, describe_row
from anabranch.operators.tuple_style.invocation import Emission
from anabranch.state.positions import Jumbo

if TYPE_CHECKING:
    from anabranch.operators.tuple_style.tuples import TupleOperator


Arrival = tuple[tuple[int, ...], int, Any]
"""Position, port and row."""

ByKey = dict[tuple[int, Any], tuple[tuple[int, int], list[Arrival]]]
"""By bucket and key: what orders the key, and its arrivals."""


class ArrivalReader:
    """Reads batches for one kernel.

    Args:
        context: Where the kernel stands.
        operator: What it runs.
        places: Where keys are remembered.
    """

    def __init__(
        self, context: KernelContext, operator: TupleOperator, places: KeyLocations
    ) -> None:
        """Nothing has come yet."""
        self._context, self._policy, self._places = context, operator.policy, places
        self._many_ports = operator.in_ports > 1
        self._readers = [row_reader(given.schema) for given in context.inputs]

    def by_key(self, inputs: Sequence[Jumbo | None], out: list[list[Emission]]) -> ByKey:
        """Arrivals of all ports, by key, each in the order of positions.

        Args:
            inputs: Per port, what has come.
            out: Where errors are added if the step has an output for them, which is its last.
        """
        grouped: ByKey = {}
        for port, jumbo in enumerate(inputs):
            if jumbo is None or not len(jumbo):
                continue
            positions = jumbo.positions.pad(self._context.depth)
            if self._many_ports:
                positions = positions.under_port(port, self._context.depth)
            jumbo, rows = self._read(port, Jumbo(jumbo.batch, positions), out)
            places = zip(*self._places.of(jumbo.batch), strict=True)
            orders = self._places.orders(jumbo.batch)
            for position, row, place, order in zip(
                jumbo.positions.rows(), rows, places, orders, strict=True
            ):
                grouped.setdefault(place, (order, []))[1].append((position, port, row))
        for _, arrivals in grouped.values():
            arrivals.sort(key=lambda a: a[0])
        return grouped

    def _read(
        self, port: int, jumbo: Jumbo, out: list[list[Emission]]
    ) -> tuple[Jumbo, Iterable[Any]]:
        """The rows that can be read, and as what; the others follow the policy."""
        try:
            return jumbo, self._readers[port](jumbo.batch)
        except UNREADABLE:
            if self._policy is OnError.FAIL:
                refuse_unreadable(self._context.step, jumbo.batch)
            bad = unreadable_rows(jumbo.batch)
            self._context.counters.skip(jumbo, list(bad.items()))
            if self._policy is OnError.SIDE:
                out[-1].extend(_errors(port, jumbo, bad))
            good = np.ones(len(jumbo), np.bool_)
            good[list(bad)] = False
            jumbo = jumbo.where(good)
            return jumbo, self._readers[port](jumbo.batch)


def refuse_unreadable(step: str, batch: pa.RecordBatch) -> None:
    """Raise for the first row with a value that Python does not have, if there is one."""
    for row, why in unreadable_rows(batch).items():
        raise OperatorError(
            step,
            "values that Python has, in every tuple that is shown to its code",
            f"{why}, on {describe_row(batch, row)}",
            "mend the data, leave out the column before this step, or declare on_error='skip' or "
            "'side'",
        )


def _errors(port: int, jumbo: Jumbo, bad: dict[int, str]) -> Iterable[Emission]:
    chosen = jumbo.take(np.array(list(bad), np.int64))
    columns = map(shown_values, chosen.batch.columns)
    rows = map(row_class(tuple(chosen.batch.schema.names)), zip(*columns, strict=True))
    for position, row, why in zip(chosen.positions.rows(), rows, bad.values(), strict=True):
        yield Emission((*position, 0), (port, repr(row), why))


# Where the keys of a batch are remembered: their buckets, their order, and their identity.

GLOBAL_KEY: tuple[()] = ()


class KeyLocations:
    """Places of keys.

    Args:
        key: Names of the key columns; without any, there is one key for all rows.
        routing: Columns whose values decide the bucket; empty for the key itself.
        buckets: How many buckets there are.
        given: Schema of the batches.

    Example:
        >>> schema = pa.schema([("x", pa.float64())])
        >>> places = KeyLocations(("x",), (), 1, schema)
        >>> buckets, keys = places.of(pa.record_batch([[1.5, None]], schema=schema))
        >>> buckets, keys
        ([0, 0], [1.5, None])
    """

    def __init__(
        self, key: tuple[str, ...], routing: tuple[str, ...], buckets: int, given: pa.Schema
    ) -> None:
        """Places of the keys of one step."""
        self._key, self._routing, self._buckets = key, routing or key, buckets
        self.careful = may_hold_nan([given.field(name).type for name in key])

    def of(self, batch: pa.RecordBatch) -> tuple[list[int], list[Any]]:
        """Per row: its bucket, and its key as it is remembered."""
        if not self._key:
            return [0] * batch.num_rows, [GLOBAL_KEY] * batch.num_rows
        hashes = hash_columns([batch.column(name) for name in self._routing])
        values = [batch.column(name).to_pylist() for name in self._key]
        keys = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        if self.careful:
            keys = [remembered(key) for key in keys]
        return bucket_of(hashes, self._buckets).tolist(), keys

    def orders(self, batch: pa.RecordBatch) -> list[tuple[int, int]]:
        """Per row: two numbers that order the keys."""
        if not self._key:
            return [(0, 0)] * batch.num_rows
        columns = [batch.column(name) for name in self._key]
        mixed = hash_columns(columns).view(np.int64).tolist()
        return list(zip(order_prefix(columns[0]).tolist(), mixed, strict=True))

    def shown(self, key: Any) -> Any:
        """A remembered key as its author knows it."""
        return shown(key) if self.careful else key


# Keys as dictionary keys: NaN, which does not equal itself, is one key like any other.


class _NotANumber:
    """Stands for NaN wherever keys are remembered; there is one, also after unpickling."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NOT_A_NUMBER"


NOT_A_NUMBER = _NotANumber()


def may_hold_nan(columns: list[pa.DataType]) -> bool:
    """Whether keys of these types need to be told apart with care."""
    return any(pa.types.is_floating(c) for c in columns)


def remembered(key: Any) -> Any:
    """A key as it is remembered.

    Example:
        >>> remembered(float("nan")) is remembered(float("nan"))
        True
        >>> shown(remembered((1.5, float("nan"))))
        (1.5, nan)
    """
    if isinstance(key, tuple):
        return tuple(remembered(part) for part in key)
    return NOT_A_NUMBER if is_nan(key) else key


def shown(key: Any) -> Any:
    """A remembered key as its author knows it."""
    if isinstance(key, tuple):
        return tuple(shown(part) for part in key)
    return float("nan") if key is NOT_A_NUMBER else key
