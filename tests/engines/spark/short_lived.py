"""The environment of a Spark that lives for minutes.

Its JVM is better off without its second compiler: half the work to start. The compiler that is left
out pays after many minutes, and has two cores to share with everybody. `spark-submit` is told where
Spark is, since PySpark's own search for it fails below a folder with a space in its name.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
VARIABLE = {"JDK_JAVA_OPTIONS": OPTIONS, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
"""For whoever starts a JVM, however they do; it says so on standard error."""


def environment() -> dict[str, str]:
    """Ours, for such a program."""
    return dict(os.environ) | VARIABLE
