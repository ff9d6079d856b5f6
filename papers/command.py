"""The command `anabranch reproduce PAPER`, which the library finds in a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.io.local_paths import local_option
from anabranch.pictures import plots
from papers.paper import Paper

PAPERS: Mapping[str, str] = {
    "stretch": "papers.stretch.paper",
    "pipelined-fission": "papers.pipelined_fission.paper",
    "briskstream": "papers.briskstream.paper",
    "joker": "papers.joker.paper",
    "stepwise": "papers.stepwise.paper",
}
"""Modules with a `PAPER`, imported when one is asked for: they bring engines and solvers along."""


def load(name: str) -> Paper[Any, Any]:
    """Return a paper by its name.

    Example:
        >>> load("stretch").title
        'STRETCH'
    """
    if name not in PAPERS:
        raise UnknownNameError(
            Subject("argument", "paper"),
            f"a paper among {list(PAPERS)}",
            repr(name),
            nearest(name, PAPERS),
        )
    paper: Paper[Any, Any] = import_module(PAPERS[name]).PAPER
    return paper


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("reproduce")(reproduce_paper)


def reproduce_paper(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"One of: {', '.join(PAPERS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute instead of several, and rougher.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the numbers as JSON, a page to read and its pictures.",
            callback=local_option,
        ),
    ] = None,
) -> None:
    """Show a paper's claims beside what this machine does."""
    chosen = load(paper)
    if out is not None and chosen.draws:
        plots.require()  # before minutes of measuring
    effort = chosen.quick if quick else chosen.full
    found = chosen.reproduce(effort, lambda line: typer.echo(f"… {line}", err=True))
    if out is not None:
        chosen.write(found, out)
    typer.echo(chosen.to_json(found) if as_json else chosen.text(found))
