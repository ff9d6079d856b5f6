"""The rows with the greatest value of their window, all that tie: what q7 asks for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.base import Operator
from anabranch.operators.invocation import Invocation, Reason
from anabranch.operators.shapes import Filter
from anabranch.operators.tuples import partitioned

WINDOW = "window_end"
NEXT = timedelta(microseconds=1)


class Contenders(Filter):
    """Rows that no other row of their batch and window beats: others need not travel.

    Which rows that are depends on the batch, but never whether the greatest of a window is among
    them; so `greatest` makes it good.
    """

    batch_dependent = True
    before_shuffle = True

    def __init__(self, by: str) -> None:
        """Name the column whose value counts."""
        super().__init__(self._unbeaten)
        self.by = by

    def _unbeaten(self, batch: pa.RecordBatch) -> Any:
        ends = batch[WINDOW].cast(pa.int64()).to_numpy()
        values = batch[self.by].to_numpy()
        # Rows come in the order of time, so a window's rows stand together. Where they should not,
        # there are more contenders than need be.
        starts = np.flatnonzero(np.concatenate([[True], ends[1:] != ends[:-1]]))
        lengths = np.diff(np.append(starts, len(ends)))
        return values == np.repeat(np.maximum.reduceat(values, starts), lengths)


def greatest(by: str, rows: pa.Schema) -> Operator:
    """The step: of each window the rows with the greatest value, once it is over."""

    @partitioned(key=WINDOW, timers=True, out=rows)
    def greatest(ctx: Invocation) -> None:
        if ctx.reason is Reason.TIMER:
            for row in ctx.state.pop("best"):
                ctx.emit(**row.asdict())
            return
        for row in ctx.tuples():
            best = ctx.state.get("best")
            if best is None:
                ctx.set_timer(row[WINDOW] + NEXT)  # behind all rows that leave with the window
            if best is None or row[by] > best[0][by]:
                ctx.state["best"] = [row]
            elif row[by] == best[0][by]:
                best.append(row)

    return greatest
