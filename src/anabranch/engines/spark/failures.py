"""What goes wrong in Spark, in words that help: one sentence instead of pages of Java."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.errors import EngineError, Subject

OF_SPARK = (PySparkException, Py4JError)
"""What PySpark raises: errors that it could make Python's own, and those that are still Java's."""

DIED = "Python worker exited unexpectedly"
MOST_LINES, MOST_CHARACTERS = 6, 800
_FAILED_STAGE = re.compile(r"in stage (\d+)\.\d+ ")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_CALLED = re.compile(r"An error occurred while calling \S+$")


def job_failure(
    error: Exception, spark: SparkSession, version: int, stages: Sequence[str]
) -> EngineError:
    """Why a micro-batch failed; `stages` names the regions that work in each of its stages."""
    told = str(error)
    batch = Subject("batch", str(version))
    if DIED in told:
        stage = failed_stage(spark, told, len(stages))
        regions = stages[stage] if stage is not None else ", ".join(stages)
        return EngineError(
            batch,
            "the Python workers of Spark to live as long as their tasks",
            f"one that ended without a word, each time it was tried, at work on {regions}",
            "the likeliest reason is memory: the system kills who takes too much. Read fewer rows "
            "a batch (batch_rows of the plan's sources), or give a cluster's workers more "
            "(spark.executor.pyspark.memory). Code that crashes or leaves the process ends a "
            "worker, too. What was committed is kept: start again to go on from the checkpoint",
        )
    lacking = _NO_MODULE.search(told)
    if lacking is not None:
        return EngineError(
            batch,
            "workers of Spark that can import what the flow needs",
            f"none with a module {lacking[1]!r}",
            "set PYSPARK_PYTHON to the Python in which it is installed before the session starts, "
            "or send it along (spark-submit --py-files)",
        )
    return EngineError(
        batch,
        "all tasks to succeed",
        essence(told),
        "see the log of the executors; what was committed is kept, start again to go on",
    )


def of_java(error: BaseException, flow: str) -> BaseException:
    """An error of Spark's in one line, caused by what it was; any other as it is."""
    if not isinstance(error, OF_SPARK):
        return error
    told = EngineError(
        Subject("flow", flow),
        "Spark to do what it is asked for",
        first_line(str(error)) or type(error).__name__,
        "see the log of the driver; start again to go on from the checkpoint",
    )
    told.__cause__ = error
    return told


def failed_stage(spark: SparkSession, message: str, stages: int) -> int | None:
    """Which stage of a job its message blames, by number from 0; None if nobody can say."""
    named = _FAILED_STAGE.search(message)
    if named is None:
        return None
    with suppress(Exception):  # of Java, when the session is gone
        tracker = spark.sparkContext.statusTracker()
        group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            found = [] if info is None else sorted(int(each) for each in info.stageIds)
            if int(named[1]) in found and len(found) == stages:
                return found.index(int(named[1]))
    return None


def first_line(message: str) -> str:
    r"""The first line that says something: not which of its own calls Py4J has made.

    Example:
        >>> first_line("An error occurred while calling o42.load.\n: java.io.IOException: full")
        'java.io.IOException: full'
    """
    lines = (line.removeprefix(": ").strip() for line in message.splitlines())
    return next((line for line in lines if line and not _CALLED.match(line)), "")


def essence(message: str) -> str:
    """The lines that say what went wrong, not where: those that no stack trace has indented."""
    where = ("at ", "Traceback", "During handling", "The above exception", "Driver stacktrace")
    lines = [line for line in message.splitlines() if line.strip() and not line[0].isspace()]
    telling = [line for line in lines if not line.startswith(where) and not _CALLED.match(line)]
    return " | ".join(telling[:MOST_LINES])[:MOST_CHARACTERS]
