"""Sources and sinks that only Spark can run."""

from anabranch.io.spark.dataframe_source import DataFrameSource, dataframe
from anabranch.io.spark.each_batch_sink import EachBatchSink, each_batch

__all__ = ["DataFrameSource", "EachBatchSink", "dataframe", "each_batch"]
