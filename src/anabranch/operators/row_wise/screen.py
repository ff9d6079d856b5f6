"""Screen: rows that make no sense leave before anything is done with them, counted and with a why.

A step that raises on a bad row is run again and again until that row stands alone. That is no way
to treat data of which every tenth row is bad, least of all behind state. A screen looks at whole
columns once, and has no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import OperatorError
from anabranch.operators.base import Kernel, KernelContext, OnError, Outputs
from anabranch.operators.decorator import decorator
from anabranch.operators.row_wise.map_filter_expand import (
    BatchFunction,
    BatchKernel,
    Filter,
    rejected,
)
from anabranch.state.positions import Jumbo, Root


@decorator("@ab.screen")
def screen(why: BatchFunction, /) -> Screen:
    """A step that passes good rows on; the others leave by the port `errors`.

    Args:
        why: For each row of a batch, what is wrong with it; null for a good one. It must follow
            from the row alone.

    Example:
        >>> import pyarrow.compute as pc
        >>> @screen
        ... def negative(batch):
        ...     return pc.if_else(pc.less(batch["n"], 0), "below zero", None)
        >>> from anabranch.flow import Flow
        >>> from anabranch.io import memory
        >>> numbers = Flow("example").source("numbers", memory(pa.table({"n": [1, -2]})))
        >>> numbers.apply("positive", negative).errors.schema.names
        ['n', 'error']
    """
    return Screen(why)


class Screen(Filter):
    """See `screen`."""

    def __init__(self, why: BatchFunction) -> None:
        """Describe; nothing runs."""
        super().__init__(why, OnError.SIDE)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return _ScreenKernel(context, self)


class _ScreenKernel(BatchKernel):
    """One call of the author's function per jumbo tuple."""

    def __init__(self, context: KernelContext, operator: Screen) -> None:
        super().__init__(context, operator)
        self._screen = operator

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        jumbo = inputs[0]
        if jumbo is None or not len(jumbo):
            return [None, None]
        jumbo = Jumbo(jumbo.batch, jumbo.positions)  # marks go their own way
        why = self._reasons(jumbo.batch)
        if why.null_count == len(why):
            return [jumbo, None]
        good = why.is_null().to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(~good)
        reasons = list(zip(bad.tolist(), why.drop_null().to_pylist(), strict=True))
        self.context.counters.skip(jumbo, reasons)
        passed = jumbo.take(np.flatnonzero(good)) if len(bad) < len(good) else None
        return [passed, rejected(self._screen, self.context, jumbo, reasons)]

    def _reasons(self, batch: pa.RecordBatch) -> pa.Array:
        """What the author's function says; when it raises, it is at fault and no row is."""
        try:
            said: Any = self._screen.function(batch)
        except Exception as error:
            raise self._wrong(batch, f"{type(error).__name__}: {error}") from error
        if isinstance(said, pa.ChunkedArray):
            said = said.combine_chunks()
        if not isinstance(said, pa.Array):
            raise self._wrong(batch, type(said).__name__)
        if not (pa.types.is_string(said.type) or pa.types.is_null(said.type)):
            raise self._wrong(batch, f"values of type {said.type}")
        if len(said) != batch.num_rows:
            raise self._wrong(batch, f"{len(said)} values")
        return said

    def _wrong(self, batch: pa.RecordBatch, got: str) -> OperatorError:
        return OperatorError(
            self.context.step,
            f"for each of {batch.num_rows} rows a text that says what is wrong with it, or null",
            got,
            'return an Arrow array, e.g. pc.if_else(bad, "why", None)',
        )
