"""Anabranch: write a streaming application once; it finds out how to run it in parallel."""

from anabranch.errors import AnabranchError
from anabranch.flow import Flow, Stream
from anabranch.graph import StateKind
from anabranch.io import (
    call,
    collect,
    console,
    csv,
    files,
    generate,
    jsonl,
    memory,
    parquet,
    redis_stream,
    stamped,
)
from anabranch.operators.aggregates import count, first, last, max, mean, min, sum
from anabranch.operators.invocation import Invocation, Reason
from anabranch.operators.keyed import keyed
from anabranch.operators.parse import parse_csv, parse_json
from anabranch.operators.parse_syslog import parse_syslog
from anabranch.operators.scale_join_bands import band
from anabranch.operators.schedule import Schedule
from anabranch.operators.schemas import schema
from anabranch.operators.screen import screen
from anabranch.operators.shapes import expand, filter, map
from anabranch.operators.shared import buckets_of, shared
from anabranch.operators.tuples import TupleOperator, partitioned, stateful, stateless
from anabranch.operators.windows import count_window, session, sliding, tumbling
from anabranch.planning.plan import Plan
from anabranch.running import plan, rollback, run, start
from anabranch.testing.check import check

SPARK_IO = ("dataframe", "each_batch")


def __getattr__(name: str) -> object:
    """What only Spark can run is imported when it is asked for: PySpark takes a second."""
    if name in SPARK_IO:
        from anabranch.io import spark

        return getattr(spark, name)
    raise AttributeError(f"module 'anabranch' has no attribute {name!r}")


__all__ = [
    "AnabranchError",
    "Flow",
    "Invocation",
    "Plan",
    "Reason",
    "Schedule",
    "StateKind",
    "Stream",
    "TupleOperator",
    "band",
    "buckets_of",
    "call",
    "check",
    "collect",
    "console",
    "count",
    "count_window",
    "csv",
    "dataframe",
    "each_batch",
    "expand",
    "files",
    "filter",
    "first",
    "generate",
    "jsonl",
    "keyed",
    "last",
    "map",
    "max",
    "mean",
    "memory",
    "min",
    "parquet",
    "parse_csv",
    "parse_json",
    "parse_syslog",
    "partitioned",
    "plan",
    "redis_stream",
    "rollback",
    "run",
    "schema",
    "screen",
    "session",
    "shared",
    "sliding",
    "stamped",
    "start",
    "stateful",
    "stateless",
    "sum",
    "tumbling",
]
