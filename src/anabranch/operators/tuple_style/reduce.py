"""Reduce: fold the tuples of each key with a function of the author's, one after another.

A composition of the tuple style: the accumulator is the key's state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.columns.schemas import SchemaLike
from anabranch.errors import BuildError, OperatorError, Subject, chosen
from anabranch.graph import StateKind, StreamType
from anabranch.operators.aggregates.base import Emit
from anabranch.operators.aggregates.combine import group_rows
from anabranch.operators.base import Kernel, KernelContext, Outputs, function_of, key_columns
from anabranch.operators.tuple_style.invocation import Invocation, Reason
from anabranch.operators.tuple_style.kernel import TupleKernel
from anabranch.operators.tuple_style.tuples import TupleOperator
from anabranch.state.positions import Jumbo, Root

Fold = Callable[[dict[str, Any] | None, Any], dict[str, Any]]
ACCUMULATOR = "accumulator"
REDUCE = Subject("operator", "reduce")
REMEDY = "declare them, as in out='name: type'"


class Reduce(TupleOperator):
    """Fold the tuples of each key; the accumulator's columns named in `out` leave."""

    def __init__(
        self,
        function: Fold,
        key: str | Sequence[str] | None,
        out: SchemaLike,
        emit: Emit,
        initial: Mapping[str, object] | None = None,
    ) -> None:
        """Describe; nothing runs."""
        name = getattr(function, "__name__", "reduce")
        function_of(REDUCE, function)
        keys = key_columns(key, REDUCE)
        if not isinstance(initial, Mapping | None):
            raise BuildError(
                REDUCE, "a mapping in initial=", repr(initial), "write initial={'column': value}"
            )
        super().__init__(
            name=name,
            key=keys,
            out=out,
            closing=emit is Emit.FINAL,
            state=StateKind.PARTITIONED if keys else StateKind.STATEFUL,
        )
        self.function, self.emit, self.initial = function, emit, initial
        self.__doc__ = function.__doc__
        names = self.out_schemas["out"].names
        if not names:
            raise BuildError(REDUCE, "the accumulator's columns in out=", "none", REMEDY)
        missing = [k for k in keys if k not in names]
        if missing and emit is Emit.CHANGES:
            raise BuildError(
                REDUCE,
                f"the key {list(keys)} in out= with emit='changes'",
                f"{names}",
                "declare the key columns, they are filled in",
            )

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The declared columns; what leaves at the end of the stream has no time."""
        (given,) = super().outputs(step, inputs)
        time = None if self.emit is Emit.FINAL else given.time
        changelog = self.key if self.emit is Emit.CHANGES else None
        return (StreamType(given.schema, time, changelog),)

    def invoke(self, ctx: Invocation) -> None:
        """Fold one tuple after another."""
        for row in ctx.tuples():
            held = ctx.state.get(ACCUMULATOR)
            if held is None and self.initial is not None:
                held = copy.deepcopy(dict(self.initial))
            folded = self.function(held, row)
            if not isinstance(folded, dict):
                raise OperatorError(
                    ctx.step,
                    "a dict from the function",
                    repr(folded),
                    "return the accumulator",
                )
            ctx.state[ACCUMULATOR] = folded
            if self.emit is not Emit.FINAL:
                self._emit(ctx)
        if ctx.reason is Reason.CLOSED and ACCUMULATOR in ctx.state:
            self._emit(ctx)
            del ctx.state[ACCUMULATOR]

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return (
            LatestKernel(context, self) if self.emit is Emit.CHANGES else TupleKernel(context, self)
        )

    def _emit(self, ctx: Invocation) -> None:
        """What `out` names of the accumulator; anything else in it is private."""
        names = self.out_schemas["out"].names
        values = ctx.state[ACCUMULATOR]
        ctx.emit(**{n: values[n] for n in names if n in values})


class LatestKernel(TupleKernel):
    """Of each batch, only the last change of each key leaves."""

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Run, then drop what was replaced within the batch."""
        (made,) = super().step(inputs, frontier)
        if made is None:
            return [None]
        keys: list[pa.Array] = [made.batch.column(n) for n in self._operator.key]
        codes, groups = group_rows(keys, len(made))
        last = np.empty(groups, np.int64)
        last[codes] = np.arange(len(made))
        return [made.take(np.sort(last))]


def reduce(
    function: Fold,
    key: str | Sequence[str] | None = None,
    *,
    out: SchemaLike = None,
    emit: Emit | str = Emit.EVERY,
    initial: Mapping[str, object] | None = None,
) -> Reduce:
    """Fold the tuples of each key, without a key those of the whole stream.

    Args:
        function: From (accumulator, row) to the next accumulator, a dict; the accumulator of the
            first tuple is a copy of `initial`, or None.
        key: Key columns; those named in `out` are filled in.
        out: What leaves of the accumulator.
        emit: `every` tuple, `changes` (the last one of each key and batch), or `final`.
        initial: Where the fold starts.

    Example:
        >>> def longest(best, row):
        ...     return {"line": max((best or {"line": ""})["line"], row.line, key=len)}
        >>> reduce(longest, "author", out="author: string, line: string", emit="final").key
        ('author',)
    """
    return Reduce(function, key, out, chosen(REDUCE, "emit", emit, Emit), initial)
