"""The command `anabranch view`: a run that is over, on a web page."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import UnknownNameError
from anabranch.events import RunEnded
from anabranch.view.journal import read_journal
from anabranch.view.web import DEFAULT_PORT, Dashboard, serve


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("view")(view)


def view(
    journal: Annotated[
        Path, typer.Argument(help="What `anabranch run APP --journal FILE` has written.")
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where the page is; 0 for any that is free.")
    ] = DEFAULT_PORT,
    address: Annotated[
        str, typer.Option(help="Who can reach it; beyond this machine only with a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="The token; a random one where it is needed and left out.")
    ] = None,
) -> None:
    """Show a finished run on a web page, until Ctrl-C."""
    with serve(None, port, address, token, journal=journal.name) as page:
        whole = replayed(journal, page)
        typer.echo(f"{journal} is at {page.url}" + ("" if whole else " (it ends before the run)"))
        typer.echo("Ctrl-C ends this", err=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            typer.echo("", err=True)


def replayed(journal: Path, page: Dashboard) -> bool:
    """Let a page hear a journal; whether the run came to its end there."""
    whole = False
    try:
        for event in read_journal(journal):
            page.hear(event)
            whole = whole or isinstance(event, RunEnded)
    except OSError as error:
        raise UnknownNameError(
            str(journal), "a journal that can be read", error.strerror or str(error), "name a file"
        ) from error
    page.settle()
    return whole
