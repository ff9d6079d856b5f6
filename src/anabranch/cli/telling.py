"""Errors as the command line tells them: what to do about it is an option, not an argument."""

from __future__ import annotations

import typer

from anabranch.errors import AnabranchError

IN_OPTIONS = {
    "pass overwrite=True to replace earlier output": "give --overwrite to replace earlier output",
    ", or leave bad files out with on_bad_file='skip'": ", or leave it out of what --input names",
    ", or pass schema= with columns that fit them all": "",
}
"""What the library advises to those who write Python, and what that is on the command line."""


def tell(error: AnabranchError) -> None:
    """A line on stderr."""
    typer.echo(f"error: {in_options(str(error))}", err=True)


def in_options(text: str) -> str:
    """A text with the options of the command line in place of arguments of the library.

    Example:
        >>> in_options("repair it, or leave bad files out with on_bad_file='skip'")
        'repair it, or leave it out of what --input names'
    """
    for argument, option in IN_OPTIONS.items():
        text = text.replace(argument, option)
    return text
