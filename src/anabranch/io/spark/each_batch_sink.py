"""A user's function over (DataFrame, batch id) as a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.errors import SinkError, Subject
from anabranch.io.sink import Form, Guarantee, Receipt, Stage, Traits
from anabranch.io.staged import StagedSink


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


@runtime_checkable
class DataFrameStage(Stage, Protocol):
    """A stage that can show what it keeps as a DataFrame: that of the Spark engine."""

    def dataframe(self, receipts: Sequence[Receipt]) -> DataFrame:
        """Return the rows of some receipts."""


class EachBatchSink(StagedSink):
    """See `each_batch`."""

    traits = Traits(Guarantee.AT_LEAST_ONCE, dataframes=True)
    form: ClassVar[Form] = Form.PARQUET  # which Spark reads

    def __init__(self, fn: Callable[[DataFrame, int], object]) -> None:
        """Remember whom to call."""
        self.fn = fn
        # A worker has no function, but errors.
        self._description = f"each_batch {getattr(fn, '__name__', type(fn).__name__)!r}"

    def __repr__(self) -> str:
        """The description that errors use."""
        return self._description

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver calls: a function that uses the session need not travel."""
        return {**self.__dict__, "fn": None}

    def begin(self, schema: pa.Schema, version: int) -> None:
        """What was called cannot be taken back."""

    def commit(self, version: int, receipts: Sequence[Receipt], stage: Stage) -> None:
        """Call the function; what it raises names the sink."""
        if not receipts or not isinstance(stage, DataFrameStage):
            super().commit(version, receipts, stage)
            return
        rows = stage.dataframe(receipts)
        try:
            self.fn(rows, version)
        except Exception as error:
            raise SinkError(
                Subject("sink", repr(self)),
                f"the function to take batch {version}",
                f"{type(error).__name__}: {error}",
                "repair the function and start again: the batch is delivered again",
            ) from error

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Only the Spark engine has DataFrames."""
        raise SinkError(
            Subject("sink", repr(self)),
            "the Spark engine, which delivers DataFrames",
            "another runner",
            "run the flow with engine='spark', or use ab.call",
        )
