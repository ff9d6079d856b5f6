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

from anabranch.columns.schemas import SchemaLike, schema
from anabranch.columns.times import duration
from anabranch.errors import BuildError, Subject, chosen, nearest
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import (
    Kernel,
    KernelContext,
    OnError,
    Operator,
    flag_of,
    key_columns,
    on_error_of,
    whole_of,
)
from anabranch.operators.decorator import Decorated, decorator
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.kernel import TupleKernel
from anabranch.operators.tuple_style.schedule import Schedule

Invoke = Callable[[Invocation], None]
DEFAULT_BUFFER = 100_000
EACH_TUPLE = Schedule.at_least(1)
NO_PORTS: Mapping[str, SchemaLike] = {}


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
    side_outs: Mapping[str, SchemaLike] = NO_PORTS
    schedule: Schedule = EACH_TUPLE
    timers: bool = False
    closing: bool = False
    ttl: int | timedelta | None = None
    max_buffer: int = DEFAULT_BUFFER
    on_error: OnError | str = OnError.FAIL

    def __init__(self, *, name: str | None = None, **properties: object) -> None:
        """Give or override properties, which are the attributes of the class, when composing."""
        self.__name__ = name or type(self).__name__
        about = Subject("operator", self.__name__)
        for argument, value in properties.items():
            if not hasattr(type(self), argument) or argument.startswith("_"):
                raise BuildError(
                    about,
                    "a property of a tuple operator",
                    repr(argument),
                    nearest(argument, dir(type(self)), "see the attributes of TupleOperator"),
                )
            setattr(self, argument, value)
        self.state = chosen(about, "state", self.state, StateKind)
        self.key = key_columns(self.key, about)
        self.policy = on_error_of(about, self.on_error)
        flag_of(about, "timers", self.timers)
        flag_of(about, "closing", self.closing)
        flag_of(about, "accepts_changes", self.accepts_changes)
        whole_of(about, "max_buffer", self.max_buffer)
        whole_of(about, "in_ports", self.in_ports)
        if not isinstance(self.schedule, Schedule):
            raise BuildError(
                about,
                "a Schedule in schedule=",
                repr(self.schedule),
                "write schedule=ab.Schedule.at_least(2), for example",
            )
        if not isinstance(self.side_outs, Mapping):
            raise BuildError(
                about,
                "the columns of each output in side_outs=",
                repr(self.side_outs),
                "write side_outs={'output': 'name: type'}",
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
        if self.state is StateKind.STATELESS and self.schedule != EACH_TUPLE:
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
        duration("ttl", self.ttl, time, step)
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


class FunctionOperator(TupleOperator, Decorated[[Invocation], Any]):
    """A function as a tuple operator."""

    def __init__(self, function: Invoke, **properties: object) -> None:
        """Wrap a function."""
        Decorated.__init__(self, function)
        TupleOperator.__init__(self, name=self.__name__, **properties)

    def invoke(self, ctx: Invocation) -> None:
        """Call it."""
        self.function(ctx)


@decorator('@ab.partitioned(key="column", out="name: type")')
def partitioned(
    function: Invoke,
    /,
    *,
    key: str | Sequence[str],
    out: SchemaLike = None,
    side_outs: Mapping[str, SchemaLike] = NO_PORTS,
    schedule: Schedule = EACH_TUPLE,
    timers: bool = False,
    closing: bool = False,
    ttl: int | timedelta | None = None,
    max_buffer: int = DEFAULT_BUFFER,
    on_error: OnError | str = OnError.FAIL,
    in_ports: int = 1,
    accepts_changes: bool = False,
) -> FunctionOperator:
    """Make a function an operator with independent state per key.

    Args:
        function: From an `Invocation` to nothing; it emits what comes out.
        key: The columns whose values decide which state a tuple belongs to.
        out: The columns that it emits; key columns among them are filled in.
        side_outs: The columns of further outputs, by name.
        schedule: When it fires; with each tuple when left out.
        timers: Whether it sets timers, which takes a stream in the order of event time.
        closing: Whether it fires once more for each key when the stream ends.
        ttl: The time without a tuple after which the state of a key is forgotten.
        max_buffer: The most tuples of a key that may wait for the schedule.
        on_error: What happens to a tuple on which it raises: `fail`, `skip` or `side`.
        in_ports: How many streams flow in.
        accepts_changes: Whether it can take a stream of changes.

    Example:
        >>> @partitioned(key="host", out="host: string, n: int64")
        ... def logins(ctx):
        ...     for login in ctx.tuples():
        ...         ctx.state["n"] = ctx.state.get("n", 0) + 1
        ...         ctx.emit(n=ctx.state["n"])
        >>> logins.state.value
        'partitioned'
    """
    return FunctionOperator(
        function,
        state=StateKind.PARTITIONED,
        key=key,
        out=out,
        side_outs=side_outs,
        schedule=schedule,
        timers=timers,
        closing=closing,
        ttl=ttl,
        max_buffer=max_buffer,
        on_error=on_error,
        in_ports=in_ports,
        accepts_changes=accepts_changes,
    )


@decorator('@ab.stateful(out="name: type")')
def stateful(
    function: Invoke,
    /,
    *,
    out: SchemaLike = None,
    side_outs: Mapping[str, SchemaLike] = NO_PORTS,
    schedule: Schedule = EACH_TUPLE,
    timers: bool = False,
    closing: bool = False,
    ttl: int | timedelta | None = None,
    max_buffer: int = DEFAULT_BUFFER,
    on_error: OnError | str = OnError.FAIL,
    in_ports: int = 1,
    accepts_changes: bool = False,
) -> FunctionOperator:
    """Make a function an operator with one global state; it sees its input in total order.

    The options are those of `partitioned`, without a key.

    Example:
        >>> @stateful(out="n: int64")
        ... def number(ctx):
        ...     for _ in ctx.tuples():
        ...         ctx.state["n"] = ctx.state.get("n", 0) + 1
        ...         ctx.emit(n=ctx.state["n"])
        >>> number.key
        ()
    """
    return FunctionOperator(
        function,
        state=StateKind.STATEFUL,
        out=out,
        side_outs=side_outs,
        schedule=schedule,
        timers=timers,
        closing=closing,
        ttl=ttl,
        max_buffer=max_buffer,
        on_error=on_error,
        in_ports=in_ports,
        accepts_changes=accepts_changes,
    )


@decorator('@ab.stateless(out="name: type")')
def stateless(
    function: Invoke,
    /,
    *,
    out: SchemaLike = None,
    side_outs: Mapping[str, SchemaLike] = NO_PORTS,
    on_error: OnError | str = OnError.FAIL,
    in_ports: int = 1,
    accepts_changes: bool = False,
) -> FunctionOperator:
    """Make a function an operator without state, fired once per tuple.

    The options are those of `partitioned` that need no state.

    Example:
        >>> @stateless(out="word: string")
        ... def words(ctx):
        ...     for row in ctx.tuples():
        ...         for word in row.line.split():
        ...             ctx.emit(word=word)
        >>> words.state.value
        'stateless'
    """
    return FunctionOperator(
        function,
        state=StateKind.STATELESS,
        out=out,
        side_outs=side_outs,
        on_error=on_error,
        in_ports=in_ports,
        accepts_changes=accepts_changes,
    )
