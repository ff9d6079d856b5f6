"""One sensor after another, over its last readings, in decimal numbers."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

from tests.apps.cases import Case, Rows

WINDOW = 12
THRESHOLD = Decimal("0.03")
LAB = Decimal("0.0001")


def expected(rows: Rows) -> Rows:
    readings: dict[int, list[Decimal]] = defaultdict(list)
    compared = []
    for row in rows["readings"]:
        value = Decimal(row["value"])
        readings[row["device"]].append(value.quantize(LAB))
        last = readings[row["device"]][-WINDOW:]
        average = sum(last) / len(last)
        spike = abs(value - average) > THRESHOLD * abs(average)
        compared.append({**row, "average": float(average), "spike": spike})
    return {"out": compared}


CASES = [
    Case(
        "spike-detection",
        {"rows": 90, "devices": 3, "spikes": 0.1, "window": WINDOW},
        {"rows": 3000, "devices": 40, "spikes": 0.02, "window": WINDOW},
        expected,
        huge={"rows": 150_000, "devices": 70_000},  # more than two bytes can tell apart
    )
]
