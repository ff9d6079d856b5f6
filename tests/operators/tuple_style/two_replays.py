"""One tuple-style operator through the quick replay and through the general one, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import OperatorError
from anabranch.graph import StreamType
from anabranch.operators.base import Kernel, KernelContext
from anabranch.operators.tuple_style.kernel import TupleKernel
from anabranch.operators.tuple_style.tuples import TupleOperator
from anabranch.state.positions import Jumbo, Positions, Root

GIVEN = pa.schema(
    [
        ("k", pa.string()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("v", pa.int64()),
        ("t", pa.bool_()),
    ]
)
BUCKETS = 8


def stream(rows: list[tuple[Any, ...]], roots: list[int], depth: int) -> Jumbo:
    """Tuples whose root repeats where `roots` does not grow; time is half of it."""
    steps = np.array(roots[: len(rows)], np.int64)
    seq = np.cumsum(steps) if depth else np.arange(len(rows))
    positions = Positions.of_source(0, seq).at_time(seq // 2)
    if depth:
        positions = positions.extend(np.arange(len(rows)))
    columns = [
        pa.array([row[place] for row in rows], field.type) for place, field in enumerate(GIVEN)
    ]
    return Jumbo(pa.RecordBatch.from_arrays(columns, schema=GIVEN), positions)


def kernel(operator: TupleOperator, depth: int, quick: bool, given: pa.Schema = GIVEN) -> Kernel:
    stream_type = StreamType(given, "t")
    types = operator.types("step", (stream_type,))
    made = operator.kernel(KernelContext("step", 3, (stream_type,), types, depth, BUCKETS))
    assert isinstance(made, TupleKernel)
    assert made._quick is not None, "the quick replay applies"
    if not quick:
        made._quick = None
    for store in made.stores:
        store.track()
    return made


def told(kernel: Kernel, jumbo: Jumbo | None, frontier: Root) -> str:
    """What a step gives, and what is remembered and changed behind it."""
    try:
        made = kernel.run([jumbo], frontier)
    except OperatorError as error:
        return str(error)
    shown = [
        None
        if j is None
        else (j.positions.rows(), j.batch.schema, [c.to_pylist() for c in j.batch.columns])
        for j in made
    ]
    for jumbo in made:
        if jumbo is not None:
            jumbo.batch.validate(full=True)
    (store,) = kernel.stores
    state = sorted((b, repr(k), repr(v)) for b, k, v in store.items())
    return repr((shown, state, store.changes(), kernel.next_timer(), kernel.context.counters))
