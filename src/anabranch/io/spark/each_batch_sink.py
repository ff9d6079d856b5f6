"""A user's function over (DataFrame, batch id) as a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.errors import SinkError, Subject
from anabranch.io.sink import Sink


def each_batch(fn: Callable[[DataFrame, int], object]) -> EachBatchSink:
    """Call `fn(df, batch_id)` with the rows of each micro-batch, as Spark's `foreachBatch` does.

    The DataFrame is read from files that the tasks wrote, so nothing passes through the driver.
    It is called at least once per micro-batch with rows, after that batch is safe in the
    checkpoint; a function whose effect must happen once remembers the ids it has seen.

    Example:
        ```python
        def to_table(df, batch_id):
            df.write.format("delta").mode("append").save("s3://lake/words")


        stream.sink("table", ab.each_batch(to_table))
        ```
    """
    return EachBatchSink(fn)


class EachBatchSink(Sink):
    """See `each_batch`."""

    takes_dataframes = True

    def __init__(self, fn: Callable[[DataFrame, int], object]) -> None:
        """Remember whom to call."""
        self.fn = fn

    def __repr__(self) -> str:
        """The description that errors use."""
        return f"each_batch {getattr(self.fn, '__name__', type(self.fn).__name__)!r}"

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver calls: a function that uses the session need not travel."""
        return {**self.__dict__, "fn": None}

    def deliver(self, df: DataFrame, version: int) -> None:
        """Call the function; what it raises names the sink."""
        try:
            self.fn(df, version)
        except Exception as error:
            raise SinkError(
                Subject("sink", repr(self)),
                f"the function to take batch {version}",
                f"{type(error).__name__}: {error}",
                "repair the function and start again: the batch is delivered again",
            ) from error

    def open(self, schema: pa.Schema, version: int) -> None:
        """Nothing to prepare."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Only the Spark engine has DataFrames."""
        raise SinkError(
            Subject("sink", repr(self)),
            "the Spark engine, which delivers DataFrames",
            "another runner",
            "run the flow with engine='spark', or use ab.call",
        )

    def commit(self, version: int) -> None:
        """Nothing is held here."""

    def close(self) -> None:
        """Nothing is held here."""
