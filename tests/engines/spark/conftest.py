"""One Spark session for all tests of a worker: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anabranch.engines.spark.session import session
from tests.engines.spark import short_lived


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Embedded Spark on two cores."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in short_lived.VARIABLE.items():
            patched.setenv(name, value)
        started = session("local[2,4]", app="tests")
    yield started
    started.stop()
