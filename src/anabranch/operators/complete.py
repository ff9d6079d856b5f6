"""Complete: rows that lack a value they need fail, are skipped, or leave by the port `errors`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import OperatorError
from anabranch.graph import StreamType
from anabranch.operators.base import Kernel, KernelContext, OnError, Outputs, describe_row
from anabranch.operators.schemas import columns_of
from anabranch.operators.shapes import BatchKernel, Map, rejected
from anabranch.state.positions import Jumbo, Root


class Complete(Map):
    """Rows as they are, of which those without a value in a needed column are bad.

    Example:
        >>> Complete(["name"], on_error="side").out_ports
        ('out', 'errors')
    """

    def __init__(self, required: Sequence[str], on_error: OnError | str = OnError.FAIL) -> None:
        """Name the columns that need a value."""
        super().__init__(self._unused, None, "*", on_error)
        self.required = tuple(required)
        self.__name__, self.__doc__ = "complete", type(self).__doc__

    @staticmethod
    def _unused(batch: pa.RecordBatch) -> None:
        """The kernel looks; there is no author's function."""

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The columns must be there."""
        columns_of(step, self.required, inputs[0].schema)
        return super().outputs(step, inputs)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return CompleteKernel(context, self)


class CompleteKernel(BatchKernel):
    """Parts batches by what is null."""

    def __init__(self, context: KernelContext, operator: Complete) -> None:
        """A running copy."""
        super().__init__(context, operator)
        self._complete = operator

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Complete rows pass; the others follow `on_error`."""
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo):
            return super().step(inputs, frontier)
        operator, context = self._complete, self.context
        bad = sorted(rows_lacking(jumbo.batch, operator.required).items())
        if bad and operator.on_error is OnError.FAIL:
            raise OperatorError(
                context.step,
                f"a value in each of {list(operator.required)}",
                f"{bad[0][1]} on {describe_row(jumbo.batch, bad[0][0])}",
                "mend the data, or declare on_error='skip' or 'side'",
            )
        context.counters.skipped += len(bad)
        passing = np.ones(len(jumbo), np.bool_)
        passing[[row for row, _ in bad]] = False
        bare = Jumbo(jumbo.batch, jumbo.positions)
        outputs: Outputs = [bare.where(passing) if passing.any() else None]
        if operator.on_error is OnError.SIDE:
            outputs.append(rejected(operator, context, bare, bad))
        return outputs


def rows_lacking(rows: pa.RecordBatch | pa.Table, required: Sequence[str]) -> dict[int, str]:
    """Rows that lack a value they need, each with what is said of the first that it lacks.

    Example:
        >>> rows_lacking(pa.table({"a": [1, None], "b": [None, None]}), ["a", "b"])
        {0: "no value for 'b'", 1: "no value for 'a'"}
    """
    lacking: dict[int, str] = {}
    for name in reversed(required):
        if rows[name].null_count:
            missing = pc.is_null(rows[name]).to_numpy(zero_copy_only=False)
            lacking |= dict.fromkeys(np.flatnonzero(missing).tolist(), f"no value for {name!r}")
    return lacking
