"""The command line: one module per group of commands, each of which registers its own."""

from __future__ import annotations

import sys

import typer

from anabranch.cli import (
    checking,
    listing,
    measuring,
    planning,
    replaying,
    running,
    simulating,
    sizing,
    tuning,
    viewing,
    writing,
)
from anabranch.cli.outcomes import WRONG_INPUT
from anabranch.cli.stopping import STOPS, code_of, terminable
from anabranch.cli.watching import with_ports
from anabranch.errors import AnabranchError
from anabranch.reproduce import command as reproducing

cli = typer.Typer(
    help="Write a streaming application once; Anabranch finds out how to run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


for group in (
    listing,
    running,
    viewing,
    tuning,
    replaying,
    writing,
    checking,
    measuring,
    planning,
    sizing,
    simulating,
    reproducing,
):
    group.register(cli)


def main() -> None:
    """Run the command line; what the user can mend is a line on stderr, not a traceback."""
    try:
        with terminable():
            cli(args=with_ports(sys.argv[1:]))
    except AnabranchError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(WRONG_INPUT)
    except STOPS as stop:
        sys.exit(code_of(stop))
