"""Numbers on their way to the page: short ones, and none that JSON does not know."""

from __future__ import annotations

import json
import math
from typing import Any


def short(value: float | None) -> float | None:
    """A number with five digits; None for what is not a number.

    Example:
        >>> short(1.23456789), short(123456.7), short(float("nan")), short(None)
        (1.2346, 123460.0, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def moment(at_s: float) -> float | None:
    """A time of the run, to a hundredth of a second however long it goes on.

    Example:
        >>> moment(123456.789), moment(float("nan"))
        (123456.79, None)
    """
    return round(at_s, 2) if math.isfinite(at_s) else None


def to_json(content: Any) -> bytes:
    """Compact JSON, in which no text can end the line that it stands in."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
