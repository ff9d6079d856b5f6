"""The command `anabranch apps`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from anabranch.apps import APPS, App, app
from anabranch.apps.parts.wanted import input_options, what_goes_in


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("apps")(list_apps)


def list_apps(
    name: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="Which one to tell of; all by default.")
    ] = None,
) -> None:
    """List the applications that come with the library; or say what one reads of your own files."""
    if name is None:
        width = max(map(len, APPS))
        for each, known in sorted(APPS.items()):
            typer.echo(f"{each:{width}}  {known.about}")
    else:
        for line in told(app(name)):
            typer.echo(line)


def told(known: App) -> Iterator[str]:
    """What an application does, and what goes in."""
    yield known.about
    wanted = what_goes_in(known.build())
    yield ""
    yield f"anabranch run {known.name} {input_options(wanted)}"
    for each in wanted:
        yield ""
        yield f"{each.source}: {each.form}" + (", with the columns" if each.columns else "")
        width = max((len(column.name) for column in each.columns), default=0)
        for column in each.columns:
            needed = "" if column.required else ", may be empty or missing"
            noted = f", {column.about}" if column.about else ""
            yield f"  {column.name:{width}}  {column.kind}{noted}{needed}"
