"""Built-in operators for random flows, brought back to the columns (k, s, v)."""

from __future__ import annotations

from typing import Any

ONE_PORT_BUILTINS: dict[str, Any] = {}
TIMED_BUILTINS: dict[str, Any] = {}
TIMED_PAIR_BUILTINS: dict[str, Any] = {}
