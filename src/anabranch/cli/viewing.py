"""The command `anabranch view`: a run that is over, on a web page."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import AnabranchError, Subject, UnknownNameError
from anabranch.events import RunEnded
from anabranch.view.journal import read_journal
from anabranch.view.plan_report import counted
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
        if page.failed:
            typer.echo(
                f"{counted(page.failed, 'event')} could not be shown: {page.error}", err=True
            )
        typer.echo("Ctrl-C ends this", err=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            typer.echo("", err=True)


def replayed(journal: Path, page: Dashboard) -> bool:
    """Let a page hear a journal; whether the run came to its end there.

    A journal whose first event cannot be shown is refused: without it there is no graph.
    """
    whole = False
    try:
        for number, event in enumerate(read_journal(journal)):
            page.hear(event)
            if number == 0:
                page.settle()
                _require_shown(journal, page)
            whole = whole or isinstance(event, RunEnded)
    except OSError as error:
        raise UnknownNameError(
            Subject("file", str(journal)),
            "a journal that can be read",
            error.strerror or str(error),
            "name a file",
        ) from error
    page.settle()
    return whole


def _require_shown(journal: Path, page: Dashboard) -> None:
    if isinstance(page.error, AnabranchError):
        raise page.error
    if page.error is not None:
        raise UnknownNameError(
            Subject("file", str(journal)),
            "a first event that can be shown",
            repr(page.error),
            "name another file",
        ) from page.error
