"""Generated rows: a source whose every row depends on the seed and its index alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.columns.schemas import SchemaLike
from anabranch.columns.schemas import schema as as_schema
from anabranch.errors import SourceError, Subject
from anabranch.io.source import Chunk, Extent, Source

BLOCK_ROWS = 1024
PART = "generated"

Make = Callable[[np.random.Generator, np.ndarray[Any, np.dtype[np.int64]]], Mapping[str, Any]]


def generate(
    make: Make,
    schema: SchemaLike,
    rows: int | None = None,
    rate_per_s: float | None = None,
    seed: int = 0,
) -> GenerateSource:
    """Make rows from random numbers, the same ones every time.

    Args:
        make: Gets a random generator and the indices of 1024 consecutive rows, and returns one
            array per column. It is called once per such block with that block's own generator, so
            no row depends on how the source is read.
        schema: The columns, as an Arrow schema or as text.
        rows: How many rows there are; None for no end.
        rate_per_s: How many rows become due in a second; None for as fast as possible.
        seed: Another seed, other rows.

    Example:
        >>> def rolls(rng, index):
        ...     return {"roll": index, "eyes": rng.integers(1, 7, len(index))}
        >>> dice = generate(rolls, "roll: int64, eyes: int8")
        >>> whole = dice.read("generated", start=0, rows=2000).batch
        >>> dice.read("generated", start=1990, rows=10).batch == whole.slice(1990)
        True
    """
    return GenerateSource(make, schema, rows, rate_per_s, seed)


class GenerateSource(Source):
    """See `generate`."""

    def __init__(
        self, make: Make, schema: SchemaLike, rows: int | None, rate_per_s: float | None, seed: int
    ) -> None:
        """Remember what to make."""
        self._make = make
        self._schema = as_schema(schema, Subject("source", "generate"))
        self._rows = rows
        self._rate_per_s = rate_per_s
        self._seed = seed
        self._latest: tuple[int, pa.RecordBatch] | None = None
        if rows is not None and rows < 0:
            raise self._error("rows of 0 or more", str(rows), "pass None for no end")
        if rate_per_s is not None and rate_per_s <= 0:
            raise self._error("rate_per_s above 0", str(rate_per_s), "pass None for no pacing")
        if seed < 0:
            raise self._error("a seed of 0 or more", str(seed), "pass another one")

    def __repr__(self) -> str:
        """The description that errors use."""
        return f"generate {getattr(self._make, '__name__', type(self._make).__name__)!r}"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the block made last."""
        return {**self.__dict__, "_latest": None}

    @property
    def schema(self) -> pa.Schema:
        """The columns given."""
        return self._schema

    @property
    def bounded(self) -> bool:
        """Whether a number of rows was given."""
        return self._rows is not None

    @property
    def order(self) -> str:
        """Rows are ordered by their index."""
        return "index"

    def parts(self) -> tuple[str, ...]:
        """One part."""
        return (PART,)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """At most `rows` rows from row `start` on; None at the end."""
        end = start + rows if self._rows is None else min(start + rows, self._rows)
        if start >= end:
            return None
        batches = []
        while start < end:
            block, offset = divmod(start, BLOCK_ROWS)
            batches.append(self._block(block).slice(offset, end - start))
            start += batches[-1].num_rows
        return Chunk(pa.concat_batches(batches) if len(batches) > 1 else batches[0])

    def due_rows(self, elapsed_s: float) -> int | None:
        """As many as the rate makes due, and never more than there are."""
        if self._rate_per_s is None:
            return None
        due = int(self._rate_per_s * elapsed_s)
        return due if self._rows is None else min(due, self._rows)

    def extent(self, part: str) -> Extent:
        """Any row can be made at once."""
        return Extent(self._rows, exact=True, seekable=True)

    def _block(self, block: int) -> pa.RecordBatch:
        latest = self._latest
        if latest is not None and latest[0] == block:
            return latest[1]
        batch = self._make_block(block)
        self._latest = (block, batch)
        return batch

    def _make_block(self, block: int) -> pa.RecordBatch:
        rng = np.random.default_rng(np.random.SeedSequence((self._seed, block)))
        index = np.arange(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS, dtype=np.int64)
        try:
            columns = self._make(rng, index)
        except Exception as error:
            raise self._error(
                f"columns for rows {index[0]} to {index[-1]}",
                f"{type(error).__name__}: {error}",
                "repair the function given as make",
            ) from error
        if set(columns) != set(self._schema.names):
            raise self._error(
                f"columns {self._schema.names}", f"{list(columns)}", "return these from make"
            )
        arrays = [self._array(field, columns[field.name]) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, values: Any) -> pa.Array:
        expected = f"{BLOCK_ROWS} values of {field.type} in column {field.name!r}"
        try:
            array = pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._error(expected, str(error), "return such values from make") from error
        if len(array) != BLOCK_ROWS:
            raise self._error(
                expected, f"{len(array)} values", "return one value per index from make"
            )
        return array

    def _error(self, expected: str, got: str, remedy: str) -> SourceError:
        return SourceError(Subject("source", repr(self)), expected, got, remedy)
