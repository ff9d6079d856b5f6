"""The command `anabranch reproduce`, which works in a checkout of the repository."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import typer

import anabranch
from anabranch.errors import EngineError, Subject

REPOSITORY = Path(anabranch.__file__).resolve().parents[2]
"""The checkout, if the package is imported from its `src`."""


def register(cli: typer.Typer) -> None:
    """Add the command of the checkout's package `papers` to a command line.

    Raises:
        EngineError: The library was installed without the repository.
    """
    if not (REPOSITORY / "papers" / "command.py").is_file():
        raise EngineError(
            Subject("package", "papers"),
            "a checkout of Anabranch's repository, which holds the reproductions of papers",
            "the library alone",
            "clone the repository, and run there: make reproduce PAPER=joker",
        )
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    import_module("papers.command").register(cli)
