"""Any streaming DataFrame as a source: Kafka, Delta, rate, sockets, through Spark's connectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.errors import SourceError, Subject
from anabranch.io.source import Chunk, Source

MOST_ORDER_COLUMNS = 2


def dataframe(
    df: DataFrame, order: str | Sequence[str] | None = None, *, bounded: bool = False
) -> DataFrameSource:
    """Read a streaming DataFrame.

    Its rows are ordered by micro-batch, and within one by the order columns; Spark's checkpoint
    remembers which rows were in which micro-batch, so a restart sees the same order.

    Args:
        df: From `spark.readStream…load()`, and whatever Spark may do to it before.
        order: One or two columns (whole numbers, dates or timestamps) that tell the rows of a
            micro-batch apart and order them: `"value"` of the rate source,
            `["partition", "offset"]` of Kafka. Without one, only flows with order="key" accept it.
        bounded: Whether the source is over when Spark has nothing more of it.

    Example:
        ```python
        lines = spark.readStream.format("kafka").option("subscribe", "lines").load()
        flow.source("lines", ab.dataframe(lines, order=["partition", "offset"]))
        ```
    """
    return DataFrameSource(df, order, bounded)


class DataFrameSource(Source):
    """See `dataframe`."""

    def __init__(self, df: DataFrame, order: str | Sequence[str] | None, bounded: bool) -> None:
        """Check that it streams and has the order columns."""
        self.df: DataFrame | None = df
        self._bounded = bounded
        if not getattr(df, "isStreaming", False):
            raise self._error(
                "a streaming DataFrame, from spark.readStream",
                f"a {type(df).__name__} that does not stream",
                "read files with ab.files, or load it with spark.readStream",
            )
        # Arrow counts time from 1970 in UTC; the session's time zone only says how to show it.
        self._schema: pa.Schema = to_arrow_schema(df.schema, timezone="UTC")
        names = [order] if isinstance(order, str) else list(order or ())
        self.order_columns = tuple(names)
        if len(names) > MOST_ORDER_COLUMNS:
            raise self._error(
                f"at most {MOST_ORDER_COLUMNS} order columns", str(names), "name fewer"
            )
        for name in names:
            if name not in self._schema.names:
                raise self._error(
                    f"order columns among {self._schema.names}", repr(name), "name one of those"
                )
            kind = self._schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
                raise self._error(
                    f"order column {name!r} of whole numbers or times",
                    str(kind),
                    "name another column, or cast it",
                )

    def __repr__(self) -> str:
        """The description that errors use."""
        return "dataframe"

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the rows; the DataFrame stays with the driver."""
        return {**self.__dict__, "df": None}

    @property
    def schema(self) -> pa.Schema:
        """The DataFrame's columns."""
        return self._schema

    @property
    def bounded(self) -> bool:
        """As the user said."""
        return self._bounded

    @property
    def pushed(self) -> bool:
        """Spark's micro-batches bring the rows."""
        return True

    @property
    def order(self) -> str | None:
        """The order columns within a micro-batch."""
        return ", ".join(self.order_columns) or None

    def parts(self) -> tuple[str, ...]:
        """One part: Spark divides it."""
        return ("dataframe",)

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        """Rows come from Spark's micro-batches alone."""
        raise self._error(
            "the Spark engine, whose micro-batches bring the rows",
            "a runner that reads by itself",
            "run the flow with engine='spark', or test it with flow.reading({…: ab.memory(…)})",
        )

    def _error(self, expected: str, got: str, remedy: str) -> SourceError:
        return SourceError(Subject("source", repr(self)), expected, got, remedy)
