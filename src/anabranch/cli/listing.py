"""The command `anabranch apps`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from anabranch.apps import APPS, App, app
from anabranch.apps.parts.described import Written, settings_of, what_comes_out
from anabranch.apps.parts.wanted import Wanted, input_options, what_goes_in

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


def _input(wanted: Wanted) -> str:
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
