"""What tuple-style operators emitted, as batches in sequential order."""

from __future__ import annotations

import pyarrow as pa

from anabranch.operators.exact_values import exact_array
from anabranch.operators.invocation import Emission
from anabranch.state.positions import Jumbo, Positions


def jumbo_of(made: list[Emission], step: str, wanted: pa.Schema, width: int) -> Jumbo | None:
    """Emissions in any order as a batch; None when there are none.

    Raises:
        OperatorError: A value does not fit its column; the first one in order is named.
    """
    if not made:
        return None
    made.sort(key=lambda e: e.position)
    arrays = [
        exact_array(step, column, [e.values[index] for e in made])
        for index, column in enumerate(wanted)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    return Jumbo(batch, Positions.of_rows([e.position for e in made], width))


def merged(*parts: Jumbo | None) -> Jumbo | None:
    """Several batches of one output in one sequence; None when all are."""
    found = [jumbo for jumbo in parts if jumbo is not None]
    return Jumbo.concat(found).in_order() if found else None
