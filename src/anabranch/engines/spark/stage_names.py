"""Names of stages on Spark's pages: the regions that work there.

Spark calls a stage after the place in the program that made its last RDD, and all of a job's RDDs
are made in one place. So they are made here, one stage after another, each at a place with the
stage's own name. Spark keeps what was made and runs that; nothing is computed before the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.traceback_utils import SCCallSiteSync

SHUFFLE = "Exchange"


@contextmanager
def named_stages(spark: SparkSession, frame: DataFrame, names: Sequence[str]) -> Iterator[None]:
    """Jobs inside are about this frame, with such names for its stages; where anybody can look."""
    if not _has_pages(spark):
        yield
        return
    context: Any = spark.sparkContext._jsc
    place: Any = SCCallSiteSync
    with place(spark.sparkContext):  # or PySpark would name the place that it sees
        try:
            for name, shuffle in zip(names, _shuffles(frame, len(names) - 1), strict=False):
                context.setCallSite(name)
                shuffle.execute()
            context.setCallSite(names[-1])
            yield
        finally:
            context.setCallSite(None)


def _has_pages(spark: SparkSession) -> bool:
    """Whether there are pages, or a log that a history server makes pages of."""
    logged = spark.conf.get("spark.eventLog.enabled", "false") == "true"
    return logged or spark.sparkContext.uiWebUrl is not None


def _shuffles(frame: DataFrame, expected: int) -> list[Any]:
    """The shuffles of a chain, the first one first; none where it is not the chain we know."""
    node: Any = frame._jdf.queryExecution().executedPlan()
    found: list[Any] = []
    while (children := node.children()).size() == 1:
        node = children.head()
        if node.nodeName() == SHUFFLE:
            found.insert(0, node)
    return found if len(found) == expected else []
