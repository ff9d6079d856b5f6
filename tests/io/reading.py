"""Rows to be read, and reading them as engines do, in whatever chunks."""

from itertools import cycle

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.io import Source

ROWS = 1000
NUMBERS = pa.table({"x": list(range(ROWS)), "word": [f"wörd {i % 7}" for i in range(ROWS)]})
LINES = [f"line {i} " + "x" * (i % 50) for i in range(ROWS)]

chunk_sizes = st.lists(st.integers(1, 400), min_size=1, max_size=6)


def chunks_of(source: Source, part: str, sizes: list[int], start: int = 0):
    """All chunks of a part, asked for in the given sizes over and over."""
    for size in cycle(sizes):
        chunk = source.read(part, start, size)
        if chunk is None:
            return
        assert 0 < chunk.batch.num_rows <= size
        assert chunk.batch.schema == source.schema
        yield chunk
        start += chunk.batch.num_rows


def table_of(source: Source, sizes: list[int], start: int = 0) -> pa.Table:
    """All rows of all parts, each part read from row `start` on."""
    batches = [
        chunk.batch for part in source.parts() for chunk in chunks_of(source, part, sizes, start)
    ]
    return pa.Table.from_batches(batches, schema=source.schema)
