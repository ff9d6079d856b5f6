"""Plans run by Apache Spark."""
