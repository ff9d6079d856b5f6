"""The command `anabranch reproduce PAPER`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import UnknownNameError
from anabranch.reproduce import stretch, stretch_page

PAPERS = ("stretch",)


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("reproduce")(reproduce_paper)


def reproduce_paper(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"One of: {', '.join(PAPERS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less than a minute instead of five, and rougher.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the numbers as JSON and a page to read.")
    ] = None,
) -> None:
    """Show a paper's claims beside what this machine does."""
    if paper not in PAPERS:
        raise UnknownNameError(
            paper, f"a paper among {list(PAPERS)}", repr(paper), "choose one of those"
        )
    effort = stretch.QUICK if quick else stretch.FULL
    found = stretch.reproduce(effort, tell=lambda words: typer.echo(f"… {words}", err=True))
    numbers = json.dumps(found.as_object())
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{paper}.json").write_text(numbers + "\n", encoding="utf-8")
        (out / f"{paper}.md").write_text(stretch_page.page(found), encoding="utf-8")
    typer.echo(numbers if as_json else stretch_page.text(found))
