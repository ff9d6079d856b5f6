"""Spark's costs in the file of a machine, under `spark`."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from anabranch.errors import Subject
from anabranch.planning.fields import Fields
from anabranch.planning.models.spark import SparkCosts


def read_spark_costs(text: str, name: str = "machine") -> SparkCosts | None:
    """What a machine's file says of Spark; None if nobody measured it there.

    Example:
        >>> read_spark_costs('{"cores": 2, "spark": {"batch_s": 0.2}}').batch_s
        0.2
        >>> read_spark_costs('{"cores": 2}') is None
        True
    """
    given = Fields.of(text, Subject("machine", name)).object("spark")
    if given is None:
        return None
    names = [field.name for field in fields(SparkCosts)]
    given.only(*names)
    return SparkCosts(given.number("batch_s"), *(given.number(n, 0.0) for n in names[1:]))


def with_spark_costs(text: str, costs: SparkCosts) -> str:
    """The text of a machine's file, with what was measured of Spark."""
    return json.dumps({**json.loads(text), "spark": asdict(costs)}, indent=2) + "\n"
