"""The Python workers of Spark: which interpreter runs them, what they can import, how they end."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from pyspark import SparkContext

from anabranch.engines.spark.failures import OF_SPARK, essence
from anabranch.engines.spark.session import is_local
from anabranch.errors import EngineError, Subject

_BUILDING = threading.Lock()


@contextmanager
def this_python(context: SparkContext) -> Iterator[None]:
    """Run the Python functions that become part of a job inside with this interpreter.

    PySpark takes the interpreter of the workers from PYSPARK_PYTHON when a session starts, else
    `python3` from PATH, and writes it into each function that a DataFrame is given. Only a local
    master has the files of this interpreter for certain. The user's own jobs keep theirs, unless
    another thread builds one at the same time.
    """
    if not is_local(context.master or ""):
        yield
        return
    with _BUILDING:  # or one run could put back what another has not used yet
        before, context.pythonExec = context.pythonExec, sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def require_workers(context: SparkContext) -> None:
    """Refuse a cluster whose workers cannot import the library, before a flow runs there.

    One short task for each core asks. It waits for the first executor, as any job does.
    """
    if is_local(context.master or ""):
        return

    def look(_: Iterable[int]) -> Iterator[str]:  # nested, so that it travels as code, not by name
        import importlib
        import platform
        import sys

        try:
            importlib.import_module("anabranch.engines.spark.task")
        except ImportError as error:
            yield f"Python {platform.python_version()} at {sys.executable}: {error}"

    tasks = context.defaultParallelism
    try:
        lacking = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
    except OF_SPARK as error:
        raise _unable(f"{context.pythonExec}: {essence(str(error))}") from error
    if lacking:
        raise _unable("; ".join(sorted(set(lacking))))


def _unable(got: str) -> EngineError:
    return EngineError(
        Subject("engine", "spark"),
        "workers that can import anabranch",
        got,
        "set PYSPARK_PYTHON to a Python of the workers that has anabranch before the session "
        "starts, or ship an environment with spark-submit --archives",
    )


@cache
def end_quietly() -> None:
    """Let this worker process end without a traceback when Spark closes its connection.

    Between two tasks PySpark's worker waits for the next one. If the connection is closed instead,
    when the session stops or the worker was idle for a minute, PySpark reports that on the same
    connection, and prints the BrokenPipeError. `pyspark.daemon` is the main module of a worker, and
    calls `worker` once for each task.
    """
    daemon: Any = sys.modules["__main__"]
    of_spark = getattr(daemon, "worker", None)
    if of_spark is None:  # a worker that PySpark started without its daemon
        return

    def worker(connection: socket.socket, authenticated: bool) -> int:
        try:
            is_open = bool(connection.recv(1, socket.MSG_PEEK))
        except OSError:  # Spark has reset it
            is_open = False
        if not is_open:
            os._exit(0)
        code: int = of_spark(connection, authenticated)
        return code

    daemon.worker = worker
