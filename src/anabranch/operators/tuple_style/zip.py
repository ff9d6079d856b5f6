"""Zip: one tuple of each of several streams makes one tuple (Joker's *exactly 1*)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pyarrow as pa

from anabranch.columns.schemas import check_key_types
from anabranch.errors import BuildError, SchemaError, Subject, is_count
from anabranch.graph import StateKind, StreamType
from anabranch.operators.base import Kernel, KernelContext, key_columns
from anabranch.operators.tuple_style.invocation import Invocation
from anabranch.operators.tuple_style.kernel import TupleKernel
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.operators.tuple_style.tuples import TupleOperator

ZIP = Subject("operator", "zip")


class Zip(TupleOperator):
    """Wait for one tuple on every port; the first of each port go together, and so on."""

    schedule = Schedule.exactly(1)

    def __init__(self, ports: int, key: str | Sequence[str] | None = None) -> None:
        """Describe; nothing runs."""
        if not is_count(ports, least=2):
            raise BuildError(
                ZIP, "at least 2 ports", repr(ports), "say how many streams to wait for"
            )
        names = key_columns(key, ZIP)
        state = StateKind.PARTITIONED if names else StateKind.STATEFUL
        super().__init__(name="zip", in_ports=ports, key=names, state=state)

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """The key once, then every port's other columns; a taken name gets _2, _3 and so on."""
        for given in inputs:
            check_key_types(step, self.key, given.schema)
            for name in self.key:
                if given.schema.field(name).type != inputs[0].schema.field(name).type:
                    raise SchemaError(
                        step,
                        f"key {name!r} of type {inputs[0].schema.field(name).type}",
                        str(given.schema.field(name).type),
                        "cast it before the zip",
                    )
        fields: dict[str, pa.Field] = {n: inputs[0].schema.field(n) for n in self.key}
        for port, given in enumerate(inputs):
            for column in given.schema:
                if column.name in self.key:
                    continue
                name = column.name if column.name not in fields else f"{column.name}_{port + 1}"
                if name in fields:
                    raise SchemaError(
                        step,
                        "each output column named once",
                        f"{name!r} twice",
                        f"rename {column.name!r} of port {port}",
                    )
                fields[name] = column.with_name(name)
        return (StreamType(pa.schema(list(fields.values())), inputs[0].time),)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """The key."""
        return frozenset(self.key)

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy, which knows what comes out."""
        typed = copy.copy(self)
        typed.out_schemas = {"out": context.outputs[0].schema}
        return TupleKernel(context, typed)

    def invoke(self, ctx: Invocation) -> None:
        """One tuple of each port, as one."""
        values = [
            value
            for port in range(self.in_ports)
            for row in ctx.tuples(port)
            for name, value in zip(row._fields, row, strict=True)
            if name not in self.key
        ]
        names = self.out_schemas["out"].names[len(self.key) :]
        ctx.emit(**dict(zip(names, values, strict=True)))


def zip_streams(ports: int, key: str | Sequence[str] | None = None) -> Zip:
    """Put one tuple of each of several streams together.

    Args:
        ports: How many streams.
        key: Match the tuples of each key apart; all in one sequence when left out.

    Example:
        >>> zip_streams(2, key="order").state.value
        'partitioned'
    """
    return Zip(ports, key)
