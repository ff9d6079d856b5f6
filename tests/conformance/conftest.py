"""The Spark session that all Spark tests of a worker share."""

from tests.engines.spark.conftest import spark

__all__ = ["spark"]
