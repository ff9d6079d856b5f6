"""An operator's declared settings as text, found without knowing the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa

from anabranch.operators.base import Operator

DESCRIBED_ELSEWHERE = {"state", "key", "own_buckets", "in_ports", "out_ports", "out", "side_outs"}
FOLLOWS_FROM_OTHERS = {"needs_time", "accepts_changes", "batch_dependent", "before_shuffle"}
FREE_TO_CHANGE = {"on_error", "policy", "max_buffer"}
"""No state depends on these, and errors advise to change them and go on."""

NOT_SETTINGS = DESCRIBED_ELSEWHERE | FOLLOWS_FROM_OTHERS | FREE_TO_CHANGE
LEFT_OUT = "…"


def settings_of(operator: Operator) -> dict[str, str]:
    """Settings by name: attributes of the operator and of its classes, without functions.

    Example:
        >>> from anabranch.operators.deduplicate import deduplicate
        >>> settings_of(deduplicate("user", timedelta(minutes=5)))["within"]
        '0:05:00'
    """
    declared: dict[str, Any] = {}
    for kind in reversed(type(operator).__mro__):
        if issubclass(kind, Operator):
            declared |= vars(kind)
    declared |= vars(operator)
    shown = {
        name: text_of(value)
        for name, value in sorted(declared.items())
        if not name.startswith("_") and name not in NOT_SETTINGS
    }
    return {name: text for name, text in shown.items() if text != LEFT_OUT}


def text_of(value: Any) -> str:
    """A value as text that is the same in every process; what has no such text is left out.

    Example:
        >>> from anabranch.operators.windows import tumbling
        >>> text_of((1, tumbling(60), len))
        '(1, TimeWindow(size=60, slide=60, offset=0), …)'
    """
    match value:
        case Enum():
            return text_of(value.value)
        case None | bool() | int() | float() | str() | bytes():
            return str(value)
        case timedelta() | datetime() | date() | time() | Decimal() | pa.DataType() | pa.Field():
            return str(value)
        case pa.Schema():
            return f"({', '.join(f'{field.name}: {field.type}' for field in value)})"
        case tuple() | list():
            return f"({', '.join(map(text_of, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(text_of, value)))}}}"
        case Mapping():
            items = sorted((text_of(k), text_of(v)) for k, v in value.items())
            return f"{{{', '.join(f'{k}: {v}' for k, v in items)}}}"
    if is_dataclass(value) and not isinstance(value, type) and not callable(value):
        parts = (f"{field.name}={text_of(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    return LEFT_OUT
