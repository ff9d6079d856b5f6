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

from anabranch.errors import OperatorError
from anabranch.operators.base import KernelContext, OnError, describe_row
from anabranch.operators.invocation import Emission
from anabranch.operators.key_places import KeyPlaces
from anabranch.operators.rows import (
    UNREADABLE,
    row_class,
    row_reader,
    shown_values,
    unreadable_rows,
)
from anabranch.state.positions import Jumbo

if TYPE_CHECKING:
    from anabranch.operators.tuples import TupleOperator

Arrival = tuple[tuple[int, ...], int, Any]
"""Position, port and row."""

ByKey = dict[tuple[int, Any], tuple[tuple[int, int], list[Arrival]]]
"""By bucket and key: what orders the key, and its arrivals."""


class Arrivals:
    """Reads batches for one kernel.

    Args:
        context: Where the kernel stands.
        operator: What it runs.
        places: Where keys are remembered.
    """

    def __init__(self, context: KernelContext, operator: TupleOperator, places: KeyPlaces) -> None:
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
