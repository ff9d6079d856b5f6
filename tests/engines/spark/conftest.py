"""One Spark session for all tests of a worker: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anabranch.engines.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Embedded Spark on two cores."""
    started = session("local[2,4]", app="tests")
    yield started
    started.stop()
