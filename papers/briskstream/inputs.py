"""BriskStream's applications and servers, read from the files beside this one."""

from __future__ import annotations

from pathlib import Path

from anabranch.errors import unknown
from anabranch.planning.machine import Machine, read_machine
from anabranch.planning.profile import Profile, read_profile

APPLICATIONS = ("wc", "fd", "sd", "lr")
SERVERS = ("server-a", "server-b")


def application(name: str) -> Profile:
    """One of the four applications: wc, fd, sd, lr.

    Example:
        >>> application("wc").by_name["splitter"].cost
        1588.5
    """
    return read_profile(_text(name, APPLICATIONS), name)


def server(name: str) -> Machine:
    """One of the two servers: server-a, server-b.

    Example:
        >>> server("server-a").cores, server("server-b").cores
        (144, 64)
    """
    return read_machine(_text(name, SERVERS), name)


def _text(name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise unknown("file", name, known)
    return (Path(__file__).parent / "data" / f"{name}.json").read_text(encoding="utf-8")
