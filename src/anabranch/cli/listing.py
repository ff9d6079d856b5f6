"""The command `anabranch apps`."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, NamedTuple

import typer

from anabranch.apps import APPS, App, app
from anabranch.apps.kit.columns import (
    Column,
    SourceColumns,
    columns_of,
    input_options,
    what_goes_in,
)
from anabranch.flow import Flow
from anabranch.graph import Output, Role

WIDTH = 100


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("apps")(list_apps)


def list_apps(
    name: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="Which one to tell of; all by default.")
    ] = None,
) -> None:
    """List the applications, or say what one reads and finds.

    These are the applications that come with the library. The description of one has what it reads
    of your own files, what comes out, and its settings.
    """
    if name is None:
        width = max(map(len, APPS))
        for each, known in sorted(APPS.items()):
            typer.echo(f"{each:{width}}  {known.about}")
    else:
        typer.echo("\n\n".join(described(app(name))))


def described(known: App) -> Iterator[str]:
    """Describe an application, paragraph by paragraph."""
    yield known.description
    if known.given:
        yield inspect.getdoc(known.module) or ""
    flow = known.build()
    wanted = what_goes_in(flow)
    yield f"anabranch run {known.name} {input_options(wanted)}"
    yield from map(_input, wanted)
    yield "What comes out, by sink:"
    yield from map(_output, what_comes_out(flow))
    yield "Settings with their defaults, for --set NAME=VALUE:"
    settings = [each for each in settings_of(known) if each.name != "input"]
    yield _aligned((f"{each.name}={each.default}", each.about) for each in settings)


def _input(wanted: SourceColumns) -> str:
    said = f"{wanted.source}: {wanted.form}" + (", with the columns" if wanted.columns else "")
    rows = [
        (
            column.name,
            column.kind
            + (f", {column.about}" if column.about else "")
            + ("" if column.required else ", may be empty or missing"),
        )
        for column in wanted.columns
    ]
    return "\n".join([said, *([_aligned(rows)] if rows else [])])


def _output(written: Written) -> str:
    said = f"{written.sink}: {written.note}" if written.note else f"{written.sink}:"
    return f"{said}\n{_aligned((column.name, column.kind) for column in written.columns)}"


def _aligned(rows: Iterable[tuple[str, str]]) -> str:
    """Two columns, the second of which is wrapped."""
    rows = list(rows)
    width = max((len(first) for first, _ in rows), default=0)
    return "\n".join(
        textwrap.fill(
            f"  {first:{width}}  {second}".rstrip(),
            WIDTH,
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )
        for first, second in rows
    )


# Describes an application from its code: what its sinks get, and how it can be set.

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
