"""Union: several streams of one schema as one, in sequential order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.graph import StreamType
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs
from anabranch.state.positions import Jumbo, Root


class Union(Operator):
    """Merge `ports` streams; tuples of one event stand in the order of the ports."""

    def __init__(self, ports: int) -> None:
        """Say how many streams."""
        self.in_ports = ports

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """All inputs must have the columns of the first."""
        first = inputs[0]
        for port, other in enumerate(inputs):
            if not other.schema.equals(first.schema):
                raise SchemaError(
                    step,
                    f"the columns {_show(first.schema)} on every port",
                    f"{_show(other.schema)} on port {port}",
                    "map the streams to one schema first",
                )
        return (StreamType(first.schema, first.time),)

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """Everything."""
        return frozenset(given.names)

    def levels(self, depth: int) -> int:
        """One more: the port."""
        return depth + 1

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy."""
        return UnionKernel(context)


class UnionKernel(Kernel):
    """Concatenates and sorts."""

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """One batch of all ports."""
        parts = [
            Jumbo(j.batch, j.positions.under_port(port, self.context.depth))
            for port, j in enumerate(inputs)
            if j is not None and len(j)
        ]
        return [Jumbo.concat(parts).in_order() if parts else None]


def _show(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name}: {f.type}" for f in schema)
