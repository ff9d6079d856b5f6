"""What pages need: the Spark session that all Spark tests of a worker share, and a Redis server."""

from tests.engines.spark.conftest import spark
from tests.io.redis_server import redis_server

__all__ = ["redis_server", "spark"]
