"""Deduplicate: the first tuple of each key passes, and again when enough time has gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

from anabranch.columns.key_words import Mask
from anabranch.columns.schemas import check_key_types
from anabranch.columns.times import duration
from anabranch.errors import Subject
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs, required_key
from anabranch.state.positions import FIRST, LAST, Ints, Jumbo, Root
from anabranch.state.tables.table_store import TableStore


class Deduplicate(Operator):
    """Let one tuple of each key through; null is a key like others."""

    state = StateKind.PARTITIONED

    def __init__(self, key: str | Sequence[str], within: int | timedelta | None = None) -> None:
        """Describe; nothing runs."""
        self.__name__ = "deduplicate"
        self.key = required_key(Subject("operator", "deduplicate"), key)
        self.within = within
        self.needs_time = within is not None

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The same columns."""
        given = inputs[0]
        check_key_types(step, self.key, given.schema)
        duration("within", self.within, given.time, step)
        return (StreamType(given.schema, given.time),)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """Everything."""
        return frozenset(given.names)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return DeduplicateKernel(context, self)


class DeduplicateKernel(Kernel):
    """Remembers, by key, when a tuple last passed."""

    def __init__(self, context: KernelContext, operator: Deduplicate) -> None:
        """A running copy without state."""
        super().__init__(context)
        given = context.inputs[0]
        self._key = operator.key
        within = duration("within", operator.within, given.time, context.step)
        self._within = None if within is None else min(within, LAST)
        self._swept = FIRST
        self._store = TableStore(
            pa.schema([given.schema.field(name) for name in operator.key]),
            pa.schema([]),
            context.buckets,
            context.routing or operator.key,
        )
        self.stores = (self._store,)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """A mask over the batch; then forget the keys that may pass again anyway."""
        jumbo = inputs[0]
        if self._within == 0:  # no time need go: every tuple passes, so none is remembered
            return [None if jumbo is None else Jumbo(jumbo.batch, jumbo.positions)]
        out: Jumbo | None = None
        if jumbo is not None and len(jumbo):
            passing = self._passing(jumbo)
            if passing.any():
                out = jumbo.where(passing)
        self._sweep(frontier)
        return [out]

    def _passing(self, jumbo: Jumbo) -> Mask:
        table = self._store.table
        groups = table.groups([jumbo.batch.column(name) for name in self._key])
        passing = np.zeros(len(jumbo), np.bool_)
        order = np.argsort(groups.codes, kind="stable").astype(np.int64)
        codes = groups.codes.take(order)
        firsts = np.searchsorted(codes, np.arange(len(groups.slots))).astype(np.int64)
        if self._within is None:
            passing[order.take(firsts[groups.fresh])] = True
            return passing
        times = jumbo.positions.columns[0].take(order)
        last = table.time(groups.slots)
        chosen = pick_apart(codes, times, firsts, last, groups.fresh, self._within)
        passing[order[chosen]] = True
        latest = np.full(len(groups.slots), FIRST, np.int64)
        np.maximum.at(latest, codes[chosen], times[chosen])
        moved = np.unique(codes[chosen])
        table.stamp(groups.slots.take(moved), latest.take(moved))
        return passing

    def _sweep(self, frontier: Root) -> None:
        """Every tuple to come is at the frontier's time or later, so these keys would pass."""
        if not self._within or frontier.time >= LAST:
            return
        bound = max(frontier.time - self._within, FIRST)
        # A sweep looks at every key: often enough to bound memory, not at every step.
        if bound - self._swept > self._within // 4:
            self._swept = bound
            table = self._store.table
            table.remove(table.expired(bound + 1))


def pick_apart(
    codes: Ints, times: Ints, firsts: Ints, last: Ints, fresh: Mask, within: int
) -> Mask:
    """Which rows pass when, in each group, a passing row holds off those less than `within` later.

    Args:
        codes: Group of each row, sorted; groups are 0, 1, 2…
        times: Time of each row, ascending within a group.
        firsts: First row of each group.
        last: By group, when a row last passed.
        fresh: Groups in which none has passed yet.
        within: How long a passing row holds off others, 1 or more.

    Example:
        >>> codes, times = np.zeros(5, np.int64), np.array([0, 1, 4, 5, 9])
        >>> pick_apart(codes, times, np.array([0]), np.array([-9]), np.array([True]), 4).tolist()
        [True, False, True, False, True]
    """
    rows = len(codes)
    moments, ranks = np.unique(times, return_inverse=True)
    width = len(moments) + 1
    places = codes * width + ranks
    stops = np.append(firsts[1:], rows)

    def next_after(groups: Ints, passed: Ints) -> Ints:
        """The first row of a group that is `within` later; `rows` where there is none."""
        never = passed > LAST - within  # the sum would leave int64
        rank = np.searchsorted(moments, np.where(never, LAST, passed) + np.where(never, 0, within))
        found = np.searchsorted(places, groups * width + np.where(never, len(moments), rank))
        return np.where(found < stops.take(groups), found, rows).astype(np.int64)

    # Each row links to the next that may pass after it. What can be reached is found by doubling:
    # links of 1, 2, 4… steps, then all rows reached, from the longest links to the shortest.
    links = [np.append(next_after(codes, times), rows)]
    while (links[-1] < rows).any():
        links.append(links[-1].take(links[-1]))
    chosen = np.zeros(rows + 1, np.bool_)
    chosen[np.where(fresh, firsts, next_after(np.arange(len(firsts)), last))] = True
    for link in reversed(links):
        chosen[link[chosen]] = True
    return chosen[:rows]


def deduplicate(key: str | Sequence[str], within: int | timedelta | None = None) -> Deduplicate:
    """Let the first tuple of each key pass.

    Args:
        key: Columns by which tuples are the same.
        within: When given, a key may pass again once this much event time has gone since its last
            tuple that passed; keys are forgotten then, so memory is bounded.

    Example:
        >>> deduplicate("order_id", within=3600).needs_time
        True
    """
    return Deduplicate(key, within)
