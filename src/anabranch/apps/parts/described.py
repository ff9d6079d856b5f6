"""Describes an application from its code: what its sinks get, and how it can be set."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from anabranch.apps import App
from anabranch.apps.parts.wanted import Column, columns_of
from anabranch.flow import Flow
from anabranch.graph import Output, Role

INDENT = "    "


class Written(NamedTuple):
    """What a sink gets.

    Attributes:
        sink: Its name.
        columns: The columns of its rows.
        key: The key of a changelog; empty where every row counts.
    """

    sink: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def note(self) -> str:
        """Say which rows count, where not all do.

        Example:
            >>> print(Written("out", (), ("auction", "day")).note)
            a changelog: the last row of each (auction, day) counts
        """
        key = self.key[0] if len(self.key) == 1 else f"({', '.join(self.key)})"
        return f"a changelog: the last row of each {key} counts" if self.key else ""


class Setting(NamedTuple):
    """An argument of `build`, its default as `--set` takes it, and what it means."""

    name: str
    default: str
    about: str


def what_comes_out(flow: Flow) -> list[Written]:
    """Describe what each sink of a flow gets.

    Example:
        >>> from anabranch.apps import app
        >>> [out] = what_comes_out(app("word-count").build(rows=1))
        >>> [f"{column.name}: {column.kind}" for column in out.columns], out.key
        (['word: string', 'n: int64'], ('word',))
    """
    types = flow.resolve().types
    found = [(sink, types[Output(sink)]) for sink in flow.names(Role.SINK)]
    return [Written(sink, columns_of(of.schema), of.changelog or ()) for sink, of in found]


def settings_of(app: App) -> list[Setting]:
    """List the arguments of an application, with the defaults of its variant."""
    said = said_of_arguments(app.module.build)
    return [
        Setting(name, as_text(each.default), _with_unit(said.get(name, ""), each.default))
        for name, each in app.parameters.items()
    ]


def as_text(value: Any) -> str:
    """Write a value as `--set` takes it; lengths of time are in seconds.

    Example:
        >>> [as_text(value) for value in (None, "q5", timedelta(seconds=0.5), False, ("a", "b"))]
        ['none', 'q5', '0.5', 'false', '["a", "b"]']
    """
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".")
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def said_of_arguments(function: Callable[..., Any]) -> Mapping[str, str]:
    """Read from a function's docstring what it says of each argument.

    Example:
        >>> from anabranch.apps import app
        >>> said_of_arguments(app("word-count").module.build)["seed"]
        'Decides the generated words.'
    """
    _, _, below = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    section, _, _ = below.partition("\n\n")
    lines = section.replace(f"\n{INDENT}{INDENT}", " ").splitlines()
    return dict(line.strip().split(": ", 1) for line in lines)


def _with_unit(about: str, default: Any) -> str:
    return f"{about} In seconds." if isinstance(default, timedelta) else about
