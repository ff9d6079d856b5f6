"""Anabranch: write a streaming application once; it finds out how to run it in parallel.

A public name is imported when it is first used. Every worker process imports this package, and
few of them need planners, pictures, the test kit or PySpark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.columns.schemas import schema
    from anabranch.engines.handle import Result, Run
    from anabranch.errors import (
        AnabranchError,
        BufferLimitError,
        BuildError,
        DeterminismError,
        EngineError,
        OperatorError,
        PlanError,
        SchemaError,
        SinkError,
        SourceError,
        StateError,
        UnknownNameError,
    )
    from anabranch.events import Observation
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
    from anabranch.io.spark import dataframe, each_batch
    from anabranch.operators.aggregates.functions import count, first, last, mean
    from anabranch.operators.aggregates.functions import max as max
    from anabranch.operators.aggregates.functions import min as min
    from anabranch.operators.aggregates.functions import sum as sum
    from anabranch.operators.aggregates.windows import count_window, session, sliding, tumbling
    from anabranch.operators.base import Operator
    from anabranch.operators.joins.conditions import band
    from anabranch.operators.keyed.keyed import KeyedState, keyed
    from anabranch.operators.keyed.shared import Bucket, buckets_of, shared
    from anabranch.operators.parsing.parse import parse_csv, parse_json
    from anabranch.operators.parsing.syslog import parse_syslog
    from anabranch.operators.row_wise.map_filter_expand import expand
    from anabranch.operators.row_wise.map_filter_expand import filter as filter
    from anabranch.operators.row_wise.map_filter_expand import map as map
    from anabranch.operators.row_wise.screen import screen
    from anabranch.operators.tuple_style.invocation import Invocation, Reason
    from anabranch.operators.tuple_style.schedule import Schedule
    from anabranch.operators.tuple_style.tuples import (
        TupleOperator,
        partitioned,
        stateful,
        stateless,
    )
    from anabranch.planned import plan
    from anabranch.planning.machine import Machine
    from anabranch.planning.plan import Plan
    from anabranch.planning.profile import Profile
    from anabranch.running import rollback, run, start
    from anabranch.testing.checking import check

_NAMES_BY_MODULE = {
    "engines.handle": "Result Run",
    "planned": "plan",
    "errors": (
        "AnabranchError BufferLimitError BuildError DeterminismError EngineError OperatorError "
        "PlanError SchemaError SinkError SourceError StateError UnknownNameError"
    ),
    "events": "Observation",
    "flow": "Flow Stream",
    "graph": "StateKind",
    "io": "call collect console csv files generate jsonl memory parquet redis_stream stamped",
    "io.spark": "dataframe each_batch",
    "operators.aggregates.functions": "count first last max mean min sum",
    "operators.base": "Operator",
    "operators.tuple_style.invocation": "Invocation Reason",
    "operators.keyed.keyed": "KeyedState keyed",
    "operators.parsing.parse": "parse_csv parse_json",
    "operators.parsing.syslog": "parse_syslog",
    "operators.joins.conditions": "band",
    "operators.tuple_style.schedule": "Schedule",
    "columns.schemas": "schema",
    "operators.row_wise.screen": "screen",
    "operators.row_wise.map_filter_expand": "expand filter map",
    "operators.keyed.shared": "Bucket buckets_of shared",
    "operators.tuple_style.tuples": "TupleOperator partitioned stateful stateless",
    "operators.aggregates.windows": "count_window session sliding tumbling",
    "planning.machine": "Machine",
    "planning.plan": "Plan",
    "planning.profile": "Profile",
    "running": "rollback run start",
    "testing.checking": "check",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    value = getattr(import_module(f"anabranch.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


# Without filter, map, max, min and sum: `from anabranch import *` hides no builtin.
__all__ = [
    "AnabranchError",
    "Bucket",
    "BufferLimitError",
    "BuildError",
    "DeterminismError",
    "EngineError",
    "Flow",
    "Invocation",
    "KeyedState",
    "Machine",
    "Observation",
    "Operator",
    "OperatorError",
    "Plan",
    "PlanError",
    "Profile",
    "Reason",
    "Result",
    "Run",
    "Schedule",
    "SchemaError",
    "SinkError",
    "SourceError",
    "StateError",
    "StateKind",
    "Stream",
    "TupleOperator",
    "UnknownNameError",
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
    "first",
    "generate",
    "jsonl",
    "keyed",
    "last",
    "mean",
    "memory",
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
    "tumbling",
]
