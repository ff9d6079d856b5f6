"""Spark's costs in the file of a machine, under `spark`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from anabranch.errors import Subject
from anabranch.planning.documents import as_document, parsed
from anabranch.planning.models.spark import SparkCosts


def read_spark_costs(text: str, name: str = "machine") -> SparkCosts | None:
    """What a machine's file says of Spark; None if nobody measured it there.

    Example:
        >>> read_spark_costs('{"cores": 2, "spark": {"batch_s": 0.2}}').batch_s
        0.2
        >>> read_spark_costs('{"cores": 2}') is None
        True
    """
    file = Subject("machine", name)
    return spark_costs(parsed(text, file), file)


def spark_costs(content: Mapping[str, object], file: Subject) -> SparkCosts | None:
    """Return Spark's costs in the content of a machine's file."""
    return as_document(content["spark"], file, SparkCosts, ".spark") if "spark" in content else None


def with_spark_costs(text: str, costs: SparkCosts) -> str:
    """The text of a machine's file, with what was measured of Spark."""
    return json.dumps({**json.loads(text), "spark": asdict(costs)}, indent=2) + "\n"
