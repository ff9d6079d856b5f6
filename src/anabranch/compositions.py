"""The built-in steps of a stream, each a short composition over `apply`.

Engines know none of them; they run the operators they are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

import pyarrow as pa

from anabranch.columns.schemas import SchemaLike
from anabranch.errors import naming
from anabranch.graph import StreamType
from anabranch.operators.aggregates.aggregate import aggregate
from anabranch.operators.aggregates.base import Emit
from anabranch.operators.aggregates.combine import combinable, split
from anabranch.operators.aggregates.functions import Aggregate
from anabranch.operators.aggregates.windows import Window
from anabranch.operators.base import OnError, Operator
from anabranch.operators.joins.conditions import Condition
from anabranch.operators.joins.join import join
from anabranch.operators.joins.lookup import How, lookup
from anabranch.operators.joins.scale_join import DEFAULT_BUCKETS, scale_join
from anabranch.operators.keyed.deduplicate import deduplicate
from anabranch.operators.keyed.top_n import top_n
from anabranch.operators.row_wise import map_filter_expand as shapes
from anabranch.operators.row_wise.union import Union
from anabranch.operators.timed import Timed
from anabranch.operators.tuple_style.reduce import Fold, reduce
from anabranch.operators.tuple_style.zip import zip_streams

BatchFunction = Callable[[pa.RecordBatch], Any]
Key = str | Sequence[str]


class Compositions:
    """What a stream offers; whoever inherits owes `apply`, `type` and `require_free`."""

    @property
    def type(self) -> StreamType:
        """Columns, time and changelog key of the stream."""
        raise NotImplementedError

    def apply(self, name: str, operator: Operator, *others: Self) -> Self:
        """Send this stream (and others, port by port) through an operator."""
        raise NotImplementedError

    def require_free(self, name: str) -> None:
        """Raise unless a step of the flow may be called so."""
        raise NotImplementedError

    def _applied(self, name: str, make: Callable[[], Operator], *others: Self) -> Self:
        with naming(name):
            operator = make()
        return self.apply(name, operator, *others)

    def timed(
        self,
        name: str,
        column: str,
        *,
        lateness: int | timedelta = 0,
        ahead: int | timedelta | None = None,
    ) -> Self:
        """Order the stream by event time from here on.

        Tuples more than `lateness` behind the greatest time seen before them leave by `.late`. So
        do tuples more than `ahead` beyond it, where that is given: a clock that is wrong by years
        must not make all others late. A source's clock then starts with the first tuple that
        another one, as near as that, confirms, and goes on behind a gap in the data once sixteen
        in a row agree. Times outside of the years 2 to 9998 leave by `.late` in any case.
        """
        return self._applied(name, lambda: Timed(column, lateness, ahead))

    def map(
        self,
        name: str,
        function: BatchFunction,
        *,
        out: SchemaLike = None,
        keeps: Key = (),
        on_error: OnError | str = OnError.FAIL,
    ) -> Self:
        """As many rows as came in; `keeps` names columns that pass unchanged ("*": all)."""
        return self._applied(name, lambda: shapes.Map(function, out, keeps, on_error))

    def filter(
        self, name: str, function: BatchFunction, *, on_error: OnError | str = OnError.FAIL
    ) -> Self:
        """The rows for which a mask is true."""
        return self._applied(name, lambda: shapes.Filter(function, on_error))

    def flat_map(
        self,
        name: str,
        function: Callable[[dict[str, Any]], Iterable[dict[str, Any]]],
        *,
        out: SchemaLike = None,
        keeps: Key = (),
        on_error: OnError | str = OnError.FAIL,
    ) -> Self:
        """Any number of rows (dicts) for each row (a dict), in plain Python."""
        return self._applied(
            name, lambda: shapes.flat_map(function, out=out, keeps=keeps, on_error=on_error)
        )

    def union(self, name: str, *others: Self) -> Self:
        """This stream and others of the same columns, as one."""
        return self.apply(name, Union(1 + len(others)), *others)

    def aggregate(
        self,
        name: str,
        /,
        *,
        key: Key | None = None,
        emit: Emit | str | None = None,
        window: Window | None = None,
        combine: bool | None = None,
        **functions: Aggregate,
    ) -> Self:
        """Aggregate by key, running, per window or at the end.

        Where it cannot change the result, a step `<name>.combine` adds up each batch before the
        tuples travel; `combine=False` leaves it out, `combine=True` insists on it.
        """
        with naming(name):
            whole = aggregate(key, emit=emit, window=window, combine=combine, **functions)
            if combine is False or not (combine or combinable(whole, self.type)):
                return self.apply(name, whole)
            self.require_free(name)  # a refusal leaves no half of it behind
            whole.types(name, (self.type,))
            first, second = split(whole, self.type)
        return self.apply(f"{name}.combine", first).apply(name, second)

    def reduce(
        self,
        name: str,
        function: Fold,
        *,
        key: Key | None = None,
        out: SchemaLike = None,
        emit: Emit | str = Emit.EVERY,
        initial: Mapping[str, object] | None = None,
    ) -> Self:
        """Fold the tuples of each key with a function from (accumulator, row) to a dict."""
        return self._applied(
            name, lambda: reduce(function, key, out=out, emit=emit, initial=initial)
        )

    def join(
        self,
        name: str,
        other: Self,
        *,
        key: Key,
        within: int | timedelta,
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> Self:
        """Pairs of tuples with equal keys whose times are at most `within` apart."""
        return self._applied(name, lambda: join(key, within, suffixes=suffixes), other)

    def join_where(
        self,
        name: str,
        other: Self,
        *,
        within: int | timedelta,
        where: Condition | Sequence[Condition],
        buckets: int = DEFAULT_BUCKETS,
        suffixes: tuple[str, str] = ("", "_right"),
    ) -> Self:
        """Pairs of tuples on any predicate whose times are at most `within` apart.

        `where` is `ab.band(left, right, within)`, a function from (left, right) candidates to a
        mask, or several of those, which must all hold.
        """
        return self._applied(name, lambda: scale_join(within, where, buckets, suffixes), other)

    def zip(self, name: str, *others: Self, key: Key | None = None) -> Self:
        """One tuple from each stream, as soon as each has one."""
        return self._applied(name, lambda: zip_streams(1 + len(others), key), *others)

    def top_n(
        self,
        name: str,
        n: int,
        *,
        by: str,
        key: Key | None = None,
        emit: Emit | str = Emit.FINAL,
        descending: bool = True,
    ) -> Self:
        """The n rows that rank first by a column."""
        return self._applied(name, lambda: top_n(n, by, key, emit, descending))

    def deduplicate(self, name: str, *, key: Key, within: int | timedelta | None = None) -> Self:
        """The first tuple of each key; with `within`, again after that much time."""
        return self._applied(name, lambda: deduplicate(key, within))

    def lookup(
        self,
        name: str,
        table: Any,
        *,
        key: Key,
        how: How | str = How.INNER,
        columns: Key | None = None,
    ) -> Self:
        """Columns of a small table, by key: a side input.

        Every process of a run reads the table once, when its first replica starts; replicas share
        it, and a change of plan does not read it again. It stays as it was read until the run ends.
        """
        return self._applied(name, lambda: lookup(table, key, how, columns))
