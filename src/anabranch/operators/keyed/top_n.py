"""Top n: the rows with the greatest value of a column, of each key or of the whole stream.

Of a stream of tuples only the best n of a key can ever matter, so only those are kept. Of a
changelog every current row is kept, since a row may sink again; ties are then broken by the
changelog's key, because how often a row came, and when, depends on batching.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.columns.hashing import hash_columns, order_prefix
from anabranch.columns.key_words import KeyKind, distinct_rows, kind_of, words_of
from anabranch.columns.schemas import check_key_types, columns_of
from anabranch.errors import BuildError, SchemaError, Subject, chosen, is_count
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates.base import Emit
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs, flag_of, key_columns
from anabranch.state.positions import LAST, Ints, Jumbo, Positions, Root, emission_index, is_end
from anabranch.state.tables.row_segment import key_hashes
from anabranch.state.tables.row_store import RowStore

RANK = pa.field("rank", pa.int64())
_WORTH_PRUNING = 1 << 14
TOP_N = Subject("operator", "top_n")


class TopN(Operator):
    """Rank the rows of each key, or all; null ranks last, NaN before it."""

    accepts_changes = True

    def __init__(
        self,
        n: int,
        by: str,
        key: str | Sequence[str] | None = None,
        emit: Emit | str = Emit.FINAL,
        descending: bool = True,
    ) -> None:
        """Describe; nothing runs."""
        self.__name__ = "top_n"
        if not is_count(n, least=1):
            raise BuildError(TOP_N, "n of at least 1", repr(n), "say how many rows to keep")
        if not isinstance(by, str):
            raise BuildError(TOP_N, "one column to rank by", repr(by), "write by='column'")
        self.n, self.by, self.descending = n, by, flag_of(TOP_N, "descending", descending)
        self.key = key_columns(key, TOP_N)
        self.emit = chosen(TOP_N, "emit", emit, (Emit.FINAL, Emit.CHANGES))
        self.state = StateKind.PARTITIONED if self.key else StateKind.STATEFUL

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The rank, then the columns that came in."""
        given = inputs[0]
        columns_of(step, (self.by,), given.schema)
        check_key_types(step, self.key, given.schema)
        if RANK.name in given.schema.names:
            raise SchemaError(
                step,
                "no column called 'rank', which this step adds",
                f"{given.schema.names}",
                "rename that column first",
            )
        if not _can_rank(given.schema.field(self.by).type):
            raise SchemaError(
                step,
                f"{self.by!r} of numbers, times or texts",
                str(given.schema.field(self.by).type),
                "rank by a column whose values have an order",
            )
        if given.changelog is not None:
            self._check_changelog(step, given.schema, given.changelog)
        ranked = pa.schema([RANK, *given.schema])
        if self.emit is Emit.CHANGES:
            return (StreamType(ranked, given.time, (*self.key, RANK.name)),)
        return (StreamType(ranked),)  # what leaves at the end of the stream has no time

    def _check_changelog(self, step: str, given: pa.Schema, changelog: tuple[str, ...]) -> None:
        check_key_types(step, changelog, given)
        loose = [name for name in self.key if name not in changelog]
        if loose:
            raise BuildError(
                step,
                f"a key among the columns {list(changelog)} by which rows are replaced",
                ", ".join(map(repr, loose)),
                "aggregate by that column too, or rank without a key",
            )

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The key."""
        return frozenset(self.key)

    def levels(self, depth: int) -> int:
        """One more: the rank."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return TopNKernel(context, self)


class _Ranked(NamedTuple):
    """Which rows are among the first n of their group, by (group, rank)."""

    rows: Ints
    groups: Ints
    ranks: Ints  # from 0


class TopNKernel(Kernel):
    """Keeps rows and ranks them."""

    def __init__(self, context: KernelContext, operator: TopN) -> None:
        """A running copy without state."""
        super().__init__(context)
        self._operator = operator
        given = context.inputs[0]
        self._replaced_by = given.changelog
        key = operator.key if given.changelog is None else given.changelog
        routing = (context.routing or operator.key) if operator.key else ()
        self._store = RowStore(given.schema, key, routing, context.buckets)
        self.stores = (self._store,)
        self._after_pruning = 0

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Take the rows in; give changes now, or all at the end."""
        jumbo = inputs[0]
        out: Jumbo | None = None
        if jumbo is not None and len(jumbo):
            if self._operator.emit is Emit.CHANGES:
                out = self._changes(jumbo)
            elif self._replaced_by is not None:
                self._replace(jumbo.batch)
            else:
                self._collect(jumbo.batch)
        if is_end(frontier):
            if self._operator.emit is Emit.FINAL:
                out = self._final()
            self._store.clear()
        return [out]

    # Taking rows in

    def _collect(self, batch: pa.RecordBatch) -> None:
        """Keep all rows for a while: dropping those that cannot win pays off in bulk."""
        serials = self._store.number(batch.num_rows)
        if not self._operator.key:
            chosen = self._contenders(batch)
            batch, serials = batch.take(pa.array(chosen)), serials.take(chosen)
        self._store.add(self._store.segment(batch, serials))
        if len(self._store) > 2 * self._after_pruning + _WORTH_PRUNING:
            batch, serials = self._store.all()
            self._store.clear()
            self._keep(batch, serials, self._rank(batch, serials))
            self._after_pruning = len(self._store)

    def _keep(self, batch: pa.RecordBatch, serials: Ints, ranked: _Ranked) -> None:
        rows = ranked.rows.take(np.argsort(serials.take(ranked.rows), kind="stable"))
        kept = batch.take(pa.array(rows))
        self._store.add(self._store.segment(kept, serials.take(rows)))

    def _replace(self, batch: pa.RecordBatch) -> None:
        """The last row of each changelog key takes the place of any earlier one."""
        key = self._replaced_by or ()
        if key:
            firsts, codes = _distinct(batch, key)
            last = np.zeros(len(firsts), np.int64)
            np.maximum.at(last, codes, np.arange(batch.num_rows))
        else:  # one row in all, as of an aggregate without a key
            last = np.array([batch.num_rows - 1])
        latest = batch.take(pa.array(np.sort(last)))
        segment = self._store.segment(latest, self._store.number(len(last)))
        for held, places in self._store.found(segment):
            self._store.kill(held, places)
        self._store.add(segment)
        self._store.squeeze()

    # Giving results

    def _final(self) -> Jumbo | None:
        batch, serials = self._store.all()
        if not batch.num_rows:
            return None
        ranked = self._rank(batch, serials)
        out = self._with_ranks(batch, ranked)
        prefixes = hashes = np.zeros(out.num_rows, np.int64)
        if self._operator.key:
            keys = [out.column(name) for name in self._operator.key]
            prefixes, hashes = order_prefix(keys[0]), hash_columns(keys).view(np.int64)
        constants = (LAST, self.context.closing_rank)
        root = [np.broadcast_to(np.int64(c), out.num_rows) for c in constants]
        levels = (np.broadcast_to(np.int64(0), out.num_rows),) * self.context.depth
        positions = Positions((*root, prefixes, hashes, *levels, ranked.ranks))
        return Jumbo(out, positions).in_order()

    def _changes(self, jumbo: Jumbo) -> Jumbo:
        """The ranking of each key in the batch, where that key's last tuple stands."""
        if self._replaced_by is not None:
            self._replace(jumbo.batch)
            batch, serials = self._touched(jumbo.batch)
        else:
            batch, serials = self._drawn(jumbo.batch)
        ranked = self._rank(batch, serials)
        if self._replaced_by is None:
            self._keep(batch, serials, ranked)
            self._store.squeeze()
        out = self._with_ranks(batch, ranked)
        ends = self._last_rows(jumbo.batch, out)
        chosen = np.flatnonzero(ends >= 0)
        positions = jumbo.positions.pad(self.context.depth).take(ends.take(chosen))
        placed = positions.extend(ranked.ranks.take(chosen))
        return Jumbo(out.take(pa.array(chosen)), placed).in_order()

    def _drawn(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """New rows and all rows of their keys, which are taken out of the store."""
        parts, serials = [batch], [self._store.number(batch.num_rows)]
        wanted = np.unique(key_hashes(batch, self._operator.key))
        for held, places in self._store.with_hash(wanted):
            if len(places):
                parts.append(held.take(places))
                serials.append(held.serials.take(places))
                self._store.kill(held, places)
        return pa.concat_batches(parts), np.concatenate(serials)

    def _touched(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """All rows of the keys in a batch, which stay in the store."""
        key = self._operator.key
        wanted = np.unique(key_hashes(batch, key))
        parts, serials = [], []
        for held in self._store.segments:
            places = held.places()
            if key:
                places = places[np.isin(held.hashes_of(key).take(places), wanted)]
            parts.append(held.take(places))
            serials.append(held.serials.take(places))
        return pa.concat_batches(parts), np.concatenate(serials)

    def _last_rows(self, batch: pa.RecordBatch, out: pa.RecordBatch) -> Ints:
        """For each result, the last row of the batch with its key; -1 where there is none."""
        key = self._operator.key
        if not key:
            return np.full(out.num_rows, batch.num_rows - 1, np.int64)
        both = pa.concat_batches([batch.select(list(key)), out.select(list(key))])
        firsts, codes = _distinct(both, key)
        last = np.full(len(firsts), -1, np.int64)
        np.maximum.at(last, codes[: batch.num_rows], np.arange(batch.num_rows))
        return last.take(codes[batch.num_rows :])

    def _with_ranks(self, batch: pa.RecordBatch, ranked: _Ranked) -> pa.RecordBatch:
        rows = batch.take(pa.array(ranked.rows))
        arrays = [pa.array(ranked.ranks + 1), *rows.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.context.outputs[0].schema)

    # Ranking

    def _rank(self, batch: pa.RecordBatch, serials: Ints) -> _Ranked:
        key = self._operator.key
        rows = np.arange(batch.num_rows) if key else self._contenders(batch)
        if len(rows) < batch.num_rows:
            batch, serials = batch.take(pa.array(rows)), serials.take(rows)
        codes = _distinct(batch, key)[1] if key else np.zeros(len(rows), np.int64)
        ties = [serials]
        if self._replaced_by is not None:
            ties = [_ordinals(batch.column(name)) for name in self._replaced_by]
        values = _ordinals(batch.column(self._operator.by), self._operator.descending)
        order = np.lexsort((*reversed(ties), values, codes))
        ranks = emission_index(codes.take(order))
        order = order[ranks < self._operator.n]
        return _Ranked(rows.take(order), codes.take(order), ranks[ranks < self._operator.n])

    def _contenders(self, batch: pa.RecordBatch) -> Ints:
        """Rows that can be among the first n when all rows form one group, ties included."""
        n, column = self._operator.n, batch.column(self._operator.by)
        if batch.num_rows <= 4 * n:
            return np.arange(batch.num_rows)
        way = "descending" if self._operator.descending else "ascending"
        plain = column.drop_null()
        if pa.types.is_floating(column.type):
            plain = plain.filter(pc.invert(pc.is_nan(plain)))
        if len(plain) < n:
            return np.arange(batch.num_rows)
        best = pc.select_k_unstable(plain, k=n, sort_keys=[("", way)])
        worst = plain[best[n - 1].as_py()]
        compare = pc.greater_equal if self._operator.descending else pc.less_equal
        mask = pc.fill_null(compare(column, worst), False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(mask).astype(np.int64)


def _distinct(batch: pa.RecordBatch, key: Sequence[str]) -> tuple[Ints, Ints]:
    """First row of each key, and the number of each row's key."""
    columns = [batch.column(name) for name in key]
    texts = [kind_of(column.type) is KeyKind.TEXT for column in columns]
    return distinct_rows(
        [c if text else words_of(c) for c, text in zip(columns, texts, strict=True)]
    )


def _ordinals(column: pa.Array, descending: bool = False) -> Ints:
    """Integers that order as the values do; equal values are equal, NaN and null come last."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    way = "descending" if descending else "ascending"
    ranks: Ints = pc.rank(column, sort_keys=way, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _can_rank(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_timestamp,
        pa.types.is_date,
        pa.types.is_time,
        pa.types.is_duration,
    )
    return any(check(kind) for check in checks)


def top_n(
    n: int,
    by: str,
    key: str | Sequence[str] | None = None,
    emit: Emit | str = Emit.FINAL,
    descending: bool = True,
) -> TopN:
    """Rank rows by a column and keep the first n.

    Args:
        n: How many rows to keep.
        by: The column to rank by. Of rows with the same value the earlier one ranks first; on a
            changelog, the one whose changelog key is smaller.
        key: Rank the rows of each key apart; all together when left out.
        emit: `final` at the end of the stream, or `changes`: after each batch the whole ranking of
            every key in it.
        descending: Whether the greatest value ranks first.

    Example:
        >>> top_n(10, by="count", emit="changes").state.value
        'stateful'
    """
    return TopN(n, by, key, emit, descending)
