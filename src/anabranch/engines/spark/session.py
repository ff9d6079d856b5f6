"""The Spark session a flow runs in: the one that is there, or one started with our settings."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.engines.process_memory import arrow_pool
from anabranch.engines.spark.java import ensure_java
from anabranch.errors import EngineError, Subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 1)  # the first with DataFrame.repartitionById
DEFAULT_MASTER = "local[*,4]"  # plain local[*] gives up on a job when one task fails once
GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit when it runs a Python program
JVM_OPTIONS = "spark.driver.extraJavaOptions"
# Options of the user go behind, so theirs count; a reader of Spark's log sets `spark.log.level`.
QUIET_LOG = (
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').resolve().as_uri()}"
)
INSTALL_SPARK = "run pip install 'pyspark>=4.1'"

# Settings of the jobs; `tune` gives them to a session that somebody else started.
SQL_SETTINGS = {
    # The plan says where each row goes; adaptive execution would merge and split partitions.
    "spark.sql.adaptive.enabled": "false",
    # A row may be a jumbo tuple of tens of MB: bytes bound a batch, not rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "128m",
    # Our jobs say their own numbers; for what users aggregate beside them, 200 tasks are many.
    "spark.sql.shuffle.partitions": "8",
    # Only the last batches can be replayed: state keeps no more versions either.
    "spark.sql.streaming.minBatchesToRetain": "10",
}

# Settings of the process, which hold from its start.
PROCESS_SETTINGS = {
    "spark.api.mode": "classic",
    "spark.driver.memory": "2g",
    # Worker processes keep state between micro-batches.
    "spark.python.worker.reuse": "true",
    # Those keep freed memory, in Arrow's own code, too: see process_memory.py.
    **{f"spark.executorEnv.{name}": value for name, value in arrow_pool().items()},
    # Nothing on the screen and no open port that nobody asked for.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# On one machine in addition.
LOCAL_SETTINGS = {
    # Works without a network, and where the machine's name does not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A shuffle is a local file here, read once: compression costs more than it saves.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    # Over TCP every Python stage waits 40 ms for an acknowledgement that the kernel delays; over
    # Unix sockets it does not (two stages: 130 → 33 ms).
    "spark.python.unix.domain.socket.enabled": "true",
    # On local disks Spark's own choice starts `readlink` as a process, several times for each file
    # of its log; this one renames just as atomically (an empty micro-batch: 72 → 26 ms).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


def session(
    master: str | None = None, *, app: str, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Take the session that is active, as under spark-submit or in a notebook, or start one.

    Args:
        master: Where Spark runs; None takes what the launcher says, else `local[*,4]`.
        app: The name of the application, if a session is started.
        conf: Settings of the user, which win over ours.
    """
    given = dict(conf or {})
    refuse_connect(os.environ, given)
    running = active()
    if running is None:
        running = start(master, app, given)
    else:
        for key, value in given.items():
            agree(running, key, value)
    if master is not None:
        agree(running, "spark.master", master)
    return use(running)


def use(session: object) -> SparkSession:
    """Check a session that the user passes in: a classic one, of Spark 4.1 or newer."""
    kinds = type(session).__mro__
    if any(kind.__module__.startswith("pyspark.sql.connect") for kind in kinds):
        raise connect_error("a session of Spark Connect")
    if not isinstance(session, session_class()):
        raise EngineError(
            Subject("engine", "spark"),
            "a pyspark.sql.SparkSession",
            f"{type(session).__module__}.{type(session).__qualname__}",
            "pass SparkSession.builder.getOrCreate(), or None to have one started",
        )
    check_version(session.version)
    return session


def tune(session: SparkSession) -> None:
    """Give the settings of our jobs to a session, such as that of a streaming query's batches."""
    for key, value in SQL_SETTINGS.items():
        session.conf.set(key, value)


def check_version(version: str) -> None:
    """Refuse a Spark that lacks what the engine is built on.

    Example:
        >>> check_version("4.1.0-SNAPSHOT")
        >>> check_version("4.0.1")
        Traceback (most recent call last):
        ...
        anabranch.errors.EngineError: engine 'spark': expected Spark 4.1 or newer, got 4.0.1; run
        pip install 'pyspark>=4.1'
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_SPARK:
        raise EngineError(
            Subject("engine", "spark"), "Spark 4.1 or newer", version or "no version", INSTALL_SPARK
        )


def refuse_connect(environment: Mapping[str, str], conf: Mapping[str, str]) -> None:
    """Refuse Spark Connect wherever it can be asked for, before anything is started."""
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        if name in environment:
            raise connect_error(f"{name}={environment[name]}")
    if "spark.remote" in conf:
        raise connect_error(f"spark.remote={conf['spark.remote']}")
    mode = conf.get("spark.api.mode", environment.get("SPARK_API_MODE", "classic"))
    if mode.lower() == "connect":
        raise connect_error("the API mode 'connect'")


def connect_error(got: str) -> EngineError:
    """Say that Spark Connect is not supported, and how to do without."""
    return EngineError(
        Subject("engine", "spark"),
        "a classic Spark session",
        got,
        "Spark Connect is not supported: unset SPARK_REMOTE, SPARK_CONNECT_MODE_ENABLED and "
        "SPARK_API_MODE, and give a master instead of a remote",
    )


def session_class() -> type[SparkSession]:
    """Import pyspark only where it is needed, so that its absence is an error of ours."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EngineError(
            Subject("engine", "spark"), "the package pyspark", str(error), INSTALL_SPARK
        ) from error
    return SparkSession


def active() -> SparkSession | None:
    """The active session of this thread, or the default one."""
    spark = session_class()
    from pyspark.errors import PySparkRuntimeError

    try:
        return spark.active()
    except PySparkRuntimeError:
        return None


def agree(running: SparkSession, key: str, value: str) -> None:
    """Bring a running session to a setting, or say that it was started with another."""
    if running.conf.isModifiable(key):
        running.conf.set(key, value)
        return
    actual = running.sparkContext.getConf().get(key)
    if actual != value:
        raise EngineError(
            Subject("engine", "spark"),
            f"{key}={value}",
            f"a running session with {key}={actual}",
            "leave the setting out to use that session, or stop it first",
        )


def start(master: str | None, app: str, given: Mapping[str, str]) -> SparkSession:
    """Start a session; what the launcher or the user says wins over our settings."""
    import pyspark

    check_version(pyspark.__version__)
    launched = launcher_settings(os.environ)
    master = master or given.get("spark.master") or launched.get("spark.master", DEFAULT_MASTER)
    settings = our_settings(master)
    if is_local(master):
        # Workers need this Python's packages; and the JVM must not look for the machine's name.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if GATEWAY not in os.environ:
        ensure_java()
        settings |= {JVM_OPTIONS: f"{QUIET_LOG} {given.get(JVM_OPTIONS, '')}".strip()}
    settings = settings | launched | {key: given[key] for key in given if key != JVM_OPTIONS}
    settings |= {"spark.master": master, "spark.app.name": app}
    on_interrupt = signal.getsignal(signal.SIGINT)
    started = session_class().builder.config(map={**settings}).getOrCreate()
    if threading.current_thread() is threading.main_thread() and on_interrupt is not None:
        # PySpark's own handler cancels the jobs under way; a run stops behind its batch instead.
        signal.signal(signal.SIGINT, on_interrupt)
    return started


def is_local(master: str) -> bool:
    """Whether a master runs its workers on this machine."""
    return master.startswith("local")


def our_settings(master: str) -> dict[str, str]:
    """What a session that we start gets, if nobody says otherwise."""
    local = LOCAL_SETTINGS if is_local(master) else {}
    return PROCESS_SETTINGS | SQL_SETTINGS | local


def launcher_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What spark-submit was told, which started this Python or will start the JVM for it.

    Example:
        >>> launcher_settings({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"})
        {'spark.master': 'yarn'}
    """
    if GATEWAY in environment:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # joins the JVM, which knows
        return dict(SparkConf().getAll())
    # Notebooks set this variable for the spark-submit that pyspark runs on its own.
    named = re.search(r"--master[ =](\S+)", environment.get("PYSPARK_SUBMIT_ARGS", ""))
    return {} if named is None else {"spark.master": named[1]}
