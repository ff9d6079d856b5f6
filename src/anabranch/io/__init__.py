"""Sources and sinks, one per file; see `Source` and `Sink` for what each owes.

A name is imported when it is first used: `flow` needs the protocols alone, and few processes need
every format. No module has the name of a public function, which would hide it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.io.call_sink import call
    from anabranch.io.collect_sink import collect
    from anabranch.io.console_sink import console
    from anabranch.io.csv_sink import csv
    from anabranch.io.files_source import files
    from anabranch.io.generate_source import generate
    from anabranch.io.jsonl_sink import jsonl
    from anabranch.io.memory_source import memory
    from anabranch.io.parquet_sink import parquet
    from anabranch.io.reading_back import read_back
    from anabranch.io.redis_source import redis_stream
    from anabranch.io.sink import Guarantee, Receipt, Sink, SinkWriter, Stage, Traits
    from anabranch.io.source import Chunk, Extent, Source, WrappedSource
    from anabranch.io.staged import StagedSink
    from anabranch.io.stamped_source import stamped

_MODULE_OF = {
    "Chunk": "source",
    "Extent": "source",
    "Guarantee": "sink",
    "Receipt": "sink",
    "Sink": "sink",
    "SinkWriter": "sink",
    "Source": "source",
    "Stage": "sink",
    "StagedSink": "staged",
    "Traits": "sink",
    "WrappedSource": "source",
    "call": "call_sink",
    "collect": "collect_sink",
    "console": "console_sink",
    "csv": "csv_sink",
    "files": "files_source",
    "generate": "generate_source",
    "jsonl": "jsonl_sink",
    "memory": "memory_source",
    "parquet": "parquet_sink",
    "read_back": "reading_back",
    "redis_stream": "redis_source",
    "stamped": "stamped_source",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'anabranch.io' has no attribute {name!r}")
    value = getattr(import_module(f"anabranch.io.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})


__all__ = [
    "Chunk",
    "Extent",
    "Guarantee",
    "Receipt",
    "Sink",
    "SinkWriter",
    "Source",
    "Stage",
    "StagedSink",
    "Traits",
    "WrappedSource",
    "call",
    "collect",
    "console",
    "csv",
    "files",
    "generate",
    "jsonl",
    "memory",
    "parquet",
    "read_back",
    "redis_stream",
    "stamped",
]
