"""Tuple style: an operator that sees the tuples of one key at a time (Joker §3.1).

The author declares state kind, key, ports, schedule, timers; buffering, bounding, back-pressure and
hand-over are the runtime's. Properties may be fixed in a subclass of `TupleOperator` (design time)
or given to the decorators and constructors (composition time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from anabranch.errors import BuildError, Subject, chosen, nearest
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import (
    Kernel,
    KernelContext,
    OnError,
    Operator,
    key_columns,
    on_error_of,
)
from anabranch.operators.decorator import decorator
from anabranch.operators.invocation import Invocation
from anabranch.operators.schedule import Schedule
from anabranch.operators.schemas import SchemaLike, schema
from anabranch.operators.tuple_kernel import TupleKernel

Invoke = Callable[[Invocation], None]
DEFAULT_BUFFER = 100_000


class TupleOperator(Operator):
    """An operator invoked per key; subclass it and write `invoke`, or decorate a function.

    Example:
        >>> class Count(TupleOperator):
        ...     state = StateKind.PARTITIONED
        ...     out = schema("word: string, n: int64")
        ...
        ...     def invoke(self, ctx):
        ...         for _ in ctx.tuples():
        ...             ctx.state["n"] = ctx.state.get("n", 0) + 1
        ...             ctx.emit(n=ctx.state["n"])
        >>> Count(key="word").key
        ('word',)
    """

    out: SchemaLike = None
    side_outs: Mapping[str, SchemaLike] = {}
    schedule: Schedule = Schedule.at_least(1)
    timers: bool = False
    closing: bool = False
    ttl: int | timedelta | None = None
    max_buffer: int = DEFAULT_BUFFER
    on_error: OnError | str = OnError.FAIL

    def __init__(self, **properties: Any) -> None:
        """Give or override properties when the graph is composed."""
        self.__name__ = properties.pop("name", type(self).__name__)
        about = Subject("operator", self.__name__)
        for name, value in properties.items():
            if not hasattr(type(self), name) or name.startswith("_"):
                raise BuildError(
                    about,
                    "a property of a tuple operator",
                    repr(name),
                    nearest(name, dir(type(self)), "see the attributes of TupleOperator"),
                )
            setattr(self, name, value)
        self.state = chosen(about, "state", self.state, StateKind)
        self.key = key_columns(self.key, about)
        self.policy = on_error_of(about, self.on_error)
        if not isinstance(self.schedule, Schedule):
            raise BuildError(
                about,
                "a Schedule",
                repr(self.schedule),
                "write ab.Schedule.at_least(2), for example",
            )
        if bool(self.key) != (self.state is StateKind.PARTITIONED):
            raise BuildError(
                about,
                "a key if and only if the state is partitioned",
                f"key {list(self.key)} with state {self.state.value}",
                "name the key column, or declare another state kind",
            )
        if self.state is StateKind.SHARED:
            raise BuildError(
                about,
                "stateless, partitioned or stateful",
                "shared",
                "use ab.shared for operators whose buckets see all tuples",
            )
        if self.state is StateKind.STATELESS and (self.timers or self.closing or self.ttl):
            raise BuildError(
                about,
                "state behind timers, closing and ttl",
                "stateless",
                "declare it partitioned or stateful",
            )
        if self.state is StateKind.STATELESS and self.schedule != Schedule.at_least(1):
            raise BuildError(
                about,
                "a state to buffer in behind a schedule",
                "stateless",
                "declare it partitioned or stateful, or leave the schedule out",
            )
        self.schedule.check(about, self.in_ports)
        self.out_schemas = {
            "out": schema(self.out, about),
            **{n: schema(s, about) for n, s in self.side_outs.items()},
        }
        errors = ("errors",) if self.policy is OnError.SIDE else ()
        self.out_ports = (*self.out_schemas, *errors)
        self.needs_time = self.timers or self.ttl is not None

    def invoke(self, ctx: Invocation) -> None:
        """The author's logic for one firing."""
        raise NotImplementedError

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The declared schemas; the error output carries the first port's rows."""
        time = inputs[0].time
        streams = [StreamType(s, time) for s in self.out_schemas.values()]
        if self.policy is OnError.SIDE:
            rejected = pa.schema(
                [("port", pa.int64()), ("row", pa.string()), ("error", pa.string())]
            )
            streams.append(StreamType(rejected, time))
        return tuple(streams)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """Key columns that come out under their own name: emitting another value is an error."""
        return frozenset(self.key) & frozenset(self.out_schemas["out"].names)

    def levels(self, depth: int) -> int:
        """The port where there are several, and the emission index."""
        return depth + (1 if self.in_ports > 1 else 0) + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return TupleKernel(context, self)


class FunctionOperator(TupleOperator):
    """A function as a tuple operator."""

    def __init__(self, function: Invoke, **properties: Any) -> None:
        """Wrap a function."""
        super().__init__(name=getattr(function, "__name__", "operator"), **properties)
        self.function = function
        self.__doc__ = function.__doc__

    def invoke(self, ctx: Invocation) -> None:
        """Call it."""
        self.function(ctx)


PROPERTIES = (*TupleOperator.__annotations__, "in_ports", "accepts_changes")
"""Options of the decorators, which themselves give the operator its name and state."""


@decorator('@ab.partitioned(key="column", out="name: type")', PROPERTIES)
def partitioned(
    function: Invoke, /, *, key: str | Sequence[str], **properties: Any
) -> FunctionOperator:
    """Make a function an operator with independent state per key.

    Example:
        >>> @partitioned(key="host", out="host: string, n: int64")
        ... def logins(ctx):
        ...     for login in ctx.tuples():
        ...         ctx.state["n"] = ctx.state.get("n", 0) + 1
        ...         ctx.emit(n=ctx.state["n"])
        >>> logins.state.value
        'partitioned'
    """
    return FunctionOperator(function, state=StateKind.PARTITIONED, key=key, **properties)


@decorator('@ab.stateful(out="name: type")', PROPERTIES)
def stateful(function: Invoke, /, **properties: Any) -> FunctionOperator:
    """Make a function an operator with one global state; it sees its input in total order."""
    return FunctionOperator(function, state=StateKind.STATEFUL, **properties)


@decorator('@ab.stateless(out="name: type")', PROPERTIES)
def stateless(function: Invoke, /, **properties: Any) -> FunctionOperator:
    """Make a function an operator without state, fired once per tuple."""
    return FunctionOperator(function, state=StateKind.STATELESS, **properties)
