"""Decides which of the places that users name are paths of this machine.

Files are read and written through the operating system, which takes `s3://bucket/out` for a folder
named `s3:`. Everything that takes a path asks here first.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.request import url2pathname

from anabranch.errors import AnabranchError, Subject, UnknownNameError

# Two letters at least: `C:/data` has a drive. One slash is enough: `Path("s3://b")` is `s3:/b`.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):(/.*)", re.DOTALL | re.IGNORECASE)
_HOST = re.compile(r"//([^/]*)(.*)", re.DOTALL)
_THIS_HOST = ("", "localhost")


def remote_scheme(place: str | os.PathLike[str]) -> str | None:
    """Return the scheme of an address; None for a path, and for an address of a local file.

    Example:
        >>> remote_scheme("s3://bucket/out"), remote_scheme("out"), remote_scheme("file:///out")
        ('s3', None, None)
    """
    found = _ADDRESS.fullmatch(os.fspath(place))
    scheme = found[1].lower() if found else "file"
    return None if scheme == "file" else scheme


def local_path(
    place: str | os.PathLike[str], error: type[AnabranchError] = UnknownNameError
) -> str:
    """Return the absolute path of a place on this machine.

    Args:
        place: A path, or an address such as `file:///data/books`.
        error: What to raise for any other address.

    Example:
        >>> local_path("file:///tmp/my%20books/*.txt")
        '/tmp/my books/*.txt'
        >>> local_path("s3://bucket/out")
        Traceback (most recent call last):
            ...
        anabranch.errors.UnknownNameError: address 's3://bucket/out': expected a local path, or a \
file: address of this machine, got the scheme 's3'; mount or copy the data to a path that every \
worker sees, and give that path (./s3:/… if a folder has that name)
    """
    text = os.fspath(place)
    address = _ADDRESS.fullmatch(text)
    if address is None:
        return os.path.abspath(text)
    scheme, rest = address[1].lower(), address[2]
    at_host = _HOST.fullmatch(rest)
    host, path = (at_host[1], at_host[2]) if at_host else ("", rest)
    if scheme == "file" and host in _THIS_HOST:
        return os.path.abspath(url2pathname(path))
    # `Path` makes one slash of two. A user name and password stay out of the message.
    whole = rest if at_host else f"/{rest}"
    shown = f"{address[1]}:" + re.sub(r"(?<=//)[^/]*@", "…@", whole)
    raise error(
        Subject("address", shown),
        "a local path, or a file: address of this machine",
        f"the scheme {scheme!r}" if scheme != "file" else f"the host {host!r}",
        "mount or copy the data to a path that every worker sees, and give that path "
        f"(./{scheme}:/… if a folder has that name)",
    )


def local_option(path: Path | None) -> Path | None:
    """Return what an option of the command line names, as it was typed: a callback of options.

    A command that measures for minutes must refuse an address before it begins.
    """
    if path is None or _ADDRESS.fullmatch(str(path)) is None:
        return path
    return Path(local_path(path))
