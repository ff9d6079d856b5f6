"""The command `anabranch data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.finding import AppName, Settings, find_flow
from anabranch.errors import Subject, UnknownNameError
from anabranch.graph import Role
from anabranch.io.local_paths import local_option
from anabranch.io.saving import WRITERS, save


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("data")(write_data)


def write_data(
    name: AppName,
    out: Annotated[
        Path,
        typer.Option(
            help=f"A file; its ending says the format: {', '.join(WRITERS)}.", callback=local_option
        ),
    ],
    rows: Annotated[int, typer.Option(min=0, help="How many rows of the source.")] = 100_000,
    source: Annotated[
        str | None, typer.Option(help="Which source, where the application has several.")
    ] = None,
    settings: Settings = None,
) -> None:
    """Write the data that an application generates to a file.

    The file is for `--input`, or for other programs. Your own files need the same columns,
    which `anabranch apps APP` lists.
    """
    flow = find_flow(name, settings=settings, endless=True)
    sources = flow.names(Role.SOURCE)
    if source is None and len(sources) == 1:
        source = sources[0]
    if source not in sources:
        raise UnknownNameError(
            Subject("application", name),
            f"--source with one of {list(sources)}",
            str(source),
            "name one of them",
        )
    if out.suffix not in WRITERS:
        raise UnknownNameError(
            Subject("file", str(out)),
            f"a file that ends with one of {list(WRITERS)}",
            out.name,
            "name it so",
        )
    written = save(flow.sources()[source], out, rows)
    typer.echo(f"{written:,} rows of {source!r} are in {out}")
