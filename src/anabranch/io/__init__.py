"""Sources and sinks, one per file; see `Source` and `Sink` for what each owes."""

from __future__ import annotations

from anabranch.io.call import call
from anabranch.io.collect import collect
from anabranch.io.console import console
from anabranch.io.csv import csv
from anabranch.io.files import files
from anabranch.io.generate import generate
from anabranch.io.jsonl import jsonl
from anabranch.io.memory import memory
from anabranch.io.parquet import parquet
from anabranch.io.read_back import read_back
from anabranch.io.redis_stream import redis_stream
from anabranch.io.sink import Sink
from anabranch.io.source import Chunk, Source
from anabranch.io.stamped import stamped

__all__ = [
    "Chunk",
    "Sink",
    "Source",
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
