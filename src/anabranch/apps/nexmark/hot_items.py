"""Hot items: an operator of its own, for windows that overlap.

A sliding window of ten seconds is five panes of two seconds in a row. Bids are counted by pane,
which a built-in step does, so each bid is counted once and not five times; a window adds its panes
up when it is over, all auctions at once. There are few panes and auctions beside the bids, so one
replica is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregation import in_sequence, stand_apart
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.operators.times import from_times
from anabranch.operators.windows import sliding
from anabranch.state.positions import FIRST, Ints, Jumbo, Root
from anabranch.state.store import ObjectStore

TOLD = "told"


class Hottest(Operator):
    """Of counts by auction and pane, the auctions with the highest count of each window.

    All that tie are told, by their id, as soon as the window is over.
    """

    state = StateKind.STATEFUL
    needs_time = True

    def __init__(self, size: timedelta, slide: timedelta) -> None:
        """Windows of a size, which is a multiple of the slide; the slide is the length of a pane.

        The input is what `aggregate` with a window of that length gives: its column `num` counts.
        """
        self.__name__ = "hottest"
        self.size, self.slide = size, slide

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The same columns: of a window instead of a pane."""
        return (StreamType(inputs[0].schema, inputs[0].time),)

    def levels(self, depth: int) -> int:
        """One more, as for all results that stem from no single tuple."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return HottestKernel(context, self)


class HottestKernel(Kernel):
    """One running copy; it remembers panes by their end, and the end of the last window told."""

    def __init__(self, context: KernelContext, operator: Hottest) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._time = context.inputs[0].time
        self._spans = sliding(operator.size, operator.slide).spans(context.step, self._time)
        self._store = ObjectStore()
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Keep the counts, then tell the windows that are over."""
        if inputs[0] is not None and len(inputs[0]):
            self._keep(inputs[0])
        over = [end for end in self._ends() if end < frontier.time]
        told = [self._hottest(end) for end in over]
        if over:
            self._forget(over[-1])
        return [in_sequence(told)]

    def next_timer(self) -> int | None:
        """Right behind the end of the next window."""
        return min((end + 1 for end in self._ends()), default=None)

    @property
    def _memory(self) -> dict[Any, Any]:
        return self._store.bucket(0)

    def _panes(self) -> list[int]:
        return [end for end in self._memory if end != TOLD]

    def _put(self, key: Any, value: Any) -> None:
        self._memory[key] = value
        self._store.touch(0, key)

    def _keep(self, counts: Jumbo) -> None:
        """Rows of a pane stand at its end, in as many batches as it pleases."""
        ends, auctions = counts.positions.columns[0], counts.batch["auction"].to_numpy()
        nums = counts.batch["num"].to_numpy()
        starts = np.flatnonzero(np.append(True, ends[1:] != ends[:-1]))
        for start, stop in zip(starts, np.append(starts[1:], len(ends)), strict=True):
            end = int(ends[start])
            held = self._memory.get(end, (auctions[:0], nums[:0]))
            new = (auctions[start:stop], nums[start:stop])
            self._put(end, tuple(np.concatenate(both) for both in zip(held, new, strict=True)))

    def _ends(self) -> list[int]:
        """Of the windows that have a pane and were not told."""
        size, slide = self._spans.size, self._spans.slide
        told = self._memory.get(TOLD, FIRST)
        ends = {pane + ahead for pane in self._panes() for ahead in range(0, size, slide)}
        return sorted(end for end in ends if end > told)

    def _hottest(self, end: int) -> Jumbo:
        size, slide = self._spans.size, self._spans.slide
        within = (self._memory.get(pane) for pane in range(end - size + slide, end + 1, slide))
        auctions, nums = (np.concatenate(c) for c in zip(*filter(None, within), strict=True))
        known, codes = np.unique(auctions, return_inverse=True)
        totals = np.zeros(len(known), np.int64)
        np.add.at(totals, codes, nums)
        best = totals == totals.max()
        return self._rows(known[best], end, totals[best])

    def _rows(self, auctions: Ints, end: int, nums: Ints) -> Jumbo:
        ids, ends = pa.array(auctions), np.full(len(auctions), end)
        borders = [from_times(times, self._time) for times in (ends - self._spans.size, ends)]
        columns = [ids, *borders, pa.array(nums)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.context.outputs[0].schema)
        # Right behind the counts of its last pane, which stand at the end itself.
        positions = stand_apart(ends + 1, -self.context.rank, [ids], self.context.depth)
        return Jumbo(batch, positions)

    def _forget(self, told: int) -> None:
        """Panes that no window to come has."""
        self._put(TOLD, told)
        for pane in self._panes():
            if pane + self._spans.size - self._spans.slide <= told:
                del self._memory[pane]
                self._store.touch(0, pane)
