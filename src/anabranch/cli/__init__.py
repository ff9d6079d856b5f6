"""The command line: one module per group of commands, imported when one of them is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from anabranch.cli.exits import STOPS, WRONG_INPUT, code_of, terminable
from anabranch.cli.ports import with_ports
from anabranch.errors import AnabranchError

COMMANDS = {
    "anabranch.cli.listing": {
        "apps": "List the applications, or say what one reads and finds.",
    },
    "anabranch.cli.running": {
        "run": "Run an application, show how it goes, and say what came of it.",
        "rollback": "Go back to an earlier version of a checkpoint.",
    },
    "anabranch.cli.viewing": {
        "view": "Show a finished run on a web page, until Ctrl-C.",
    },
    "anabranch.cli.tuning": {
        "tune": "Let a policy tune an application, and report every round.",
    },
    "anabranch.cli.replaying": {
        "replay": "Replay files into a Redis stream, evenly at a set rate.",
    },
    "anabranch.cli.writing": {
        "data": "Write the data that an application generates to a file.",
    },
    "anabranch.cli.checking": {
        "check": "Find out whether it matters how an application is run.",
    },
    "anabranch.cli.measuring": {
        "profile": "Measure what each step of an application costs.",
        "calibrate": "Measure this machine, and what parallelism costs on an engine here.",
    },
    "anabranch.cli.planning": {
        "plan": "Show how an application would run, or find the best way to run it.",
        "compare": "Ask every planner, and show their answers side by side.",
    },
    "anabranch.cli.sizing": {
        "size": "Find how many cores an application needs for a rate and a latency.",
    },
    "anabranch.cli.simulating": {
        "simulate": "Run a plan in virtual time, on a machine that need not be there.",
    },
    "anabranch.cli.reproducing": {
        "reproduce": "Show a paper's claims beside what this machine does.",
    },
}
"""The commands that each module registers, and their lines in `anabranch --help`."""

cli = typer.Typer(
    help="Write a streaming application once; Anabranch finds out how to run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def command_of(module: str, name: str) -> TyperCommand | TyperGroup:
    """Import a module of commands and return one of them."""
    group = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    group.callback()(lambda: None)  # a group even where it has one command
    import_module(module).register(group)
    found: TyperCommand = typer.main.get_command(group).commands[name]  # type: ignore[attr-defined]
    return found


def _add(module: str, name: str, line: str) -> None:
    class Command(TyperCommand):
        """Stands in `--help` for a command whose module is imported when it is called."""

        def make_context(self, *arguments: Any, **options: Any) -> Any:
            return command_of(module, name).make_context(*arguments, **options)

    cli.command(name, cls=Command, help=line)(lambda: None)


for _module, _commands in COMMANDS.items():
    for _name, _line in _commands.items():
        _add(_module, _name, _line)


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
