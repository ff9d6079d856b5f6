"""Options of the command line whose port may be left out."""

from __future__ import annotations

from collections.abc import Sequence

PORTS = {"--dashboard": 8642, "--metrics": 9464}
"""The port of each option where none is given."""


def with_ports(arguments: Sequence[str]) -> list[str]:
    """Arguments in which every option that may go without its port has one.

    Example:
        >>> with_ports(["run", "word-count", "--dashboard", "--rows", "9"])
        ['run', 'word-count', '--dashboard', '8642', '--rows', '9']
        >>> with_ports(["run", "word-count", "--dashboard", "9000"])
        ['run', 'word-count', '--dashboard', '9000']
    """
    filled: list[str] = []
    for place, argument in enumerate(arguments):
        filled.append(argument)
        given = arguments[place + 1] if place + 1 < len(arguments) else ""
        if argument in PORTS and not given.isdigit():
            filled.append(str(PORTS[argument]))
    return filled
