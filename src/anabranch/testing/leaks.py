"""Finds steps that put things into lists and the like outside of them, for `check`.

Other processes, as Spark has them, get copies of what a function refers to, so what a step puts
there does not reach the caller. Results belong into a sink.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

from anabranch.flow import Flow
from anabranch.graph import Role

CONTAINERS = (list, dict, set, deque, bytearray)
DEPTH = 3

Held = dict[tuple[str, str], tuple[Any, int]]
"""Maps a step and the name of a variable to the container, and to how much that held."""


def held_outside(flow: Flow) -> Held:
    """Return the containers that functions of steps refer to, and how much each holds now."""
    found: Held = {}
    for name in flow.names(Role.OPERATOR):
        for function in _functions(flow.graph.steps[name].body, DEPTH):
            for variable, value in _referred(function):
                if isinstance(value, CONTAINERS):
                    found[name, variable] = (value, len(value))
    return found


def grown(before: Held) -> tuple[tuple[str, str], ...]:
    """Return those that hold more or less than they did, as step and variable."""
    return tuple(key for key, (value, count) in before.items() if len(value) != count)


def _functions(value: Any, depth: int) -> Iterator[Callable[..., Any]]:
    """Yield the functions that a description of an operator holds."""
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, FunctionType):
        yield value
    if not depth:
        return
    inner: list[Any] = []
    if isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or () if _full(cell)]
        inner = [each for each in inner if isinstance(each, FunctionType)]
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif isinstance(value, dict):
        inner = list(value.values())
    elif hasattr(value, "__dict__") and not inspect.ismodule(value):
        inner = list(vars(value).values())
    for each in inner:
        yield from _functions(each, depth - 1)


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not assigned yet
        return False


def _referred(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Variables outside of a function that it refers to."""
    try:
        outside = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return
    yield from outside.nonlocals.items()
    yield from outside.globals.items()
