"""Screen: rows that make no sense leave before anything is done with them, counted and with a why.

A step that raises on a bad row is run again and again until that row stands alone. That is no way
to treat data of which every tenth row is bad, least of all behind state. A screen looks at whole
columns once, and has no state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from anabranch.operators.base import Kernel, KernelContext, OnError, Outputs
from anabranch.operators.shapes import BatchKernel, Filter, rejected
from anabranch.state.positions import Jumbo, Root


def screen(why: Callable[[pa.RecordBatch], pa.Array]) -> Screen:
    """A step that passes good rows on; the others leave by the port `errors`.

    Args:
        why: For each row of a batch, what is wrong with it; null for a good one. It must follow
            from the row alone.

    Example:
        >>> from anabranch.flow import Flow
        >>> from anabranch.io import memory
        >>> def negative(batch):
        ...     return pc.if_else(pc.less(batch["n"], 0), "below zero", None)
        >>> flow = Flow("example")
        >>> good = flow.source("numbers", memory(pa.table({"n": [1, -2]}))).apply(
        ...     "screen", screen(negative)
        ... )
        >>> good.errors.schema.names
        ['n', 'error']
    """
    return Screen(why)


class Screen(Filter):
    """See `screen`."""

    def __init__(self, why: Callable[[pa.RecordBatch], pa.Array]) -> None:
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
        why = self._screen.function(jumbo.batch)
        if why.null_count == len(why):
            return [jumbo, None]
        good = why.is_null().to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(~good)
        self.context.counters.skipped += len(bad)
        reasons = zip(bad.tolist(), why.drop_null().to_pylist(), strict=True)
        passed = jumbo.take(np.flatnonzero(good)) if len(bad) < len(good) else None
        return [passed, rejected(self._screen, self.context, jumbo, list(reasons))]
