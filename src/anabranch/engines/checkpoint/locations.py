"""From what a user writes as checkpoint location to the storage behind it."""

from __future__ import annotations

import os

import pyarrow as pa
from pyarrow import fs

from anabranch.engines.checkpoint.local_storage import LocalStorage
from anabranch.engines.checkpoint.remote_storage import RemoteStorage
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError, Subject
from anabranch.io.local_paths import local_path, remote_scheme

SPARK_SPELLINGS = {"s3a": "s3", "s3n": "s3"}


def absolute(location: str | os.PathLike[str]) -> str:
    """Return an address as it is, and any other place as an absolute path.

    Example:
        >>> absolute("s3://bucket/checkpoint"), absolute("file:///tmp/checkpoint")
        ('s3://bucket/checkpoint', '/tmp/checkpoint')
    """
    if remote_scheme(location) is not None:
        return os.fspath(location)
    return local_path(location, StateError)


def with_scheme(location: str) -> str:
    """Return an absolute location as an address that depends on no default file system.

    Hadoop takes a path without a scheme for one of `fs.defaultFS`. It decodes nothing in an
    address, so nothing is encoded.

    Example:
        >>> with_scheme("s3://bucket/checkpoint"), with_scheme("/tmp/my checkpoint")
        ('s3://bucket/checkpoint', 'file:/tmp/my checkpoint')
    """
    return location if remote_scheme(location) is not None else f"file:{location}"


def storage_at(location: str | os.PathLike[str]) -> Storage:
    """The storage behind a path, or a URI such as hdfs://… or s3://….

    Example:
        >>> storage_at("file:///tmp/somewhere").location
        '/tmp/somewhere'
    """
    text = absolute(location)
    scheme = remote_scheme(text)
    if scheme is None:
        return LocalStorage(text)
    scheme = SPARK_SPELLINGS.get(scheme, scheme)
    _, _, rest = text.partition(":")
    try:
        filesystem, path = fs.FileSystem.from_uri(f"{scheme}:{rest}")
    except (OSError, pa.ArrowException, ImportError) as error:
        # The text itself stays out of the message: it may hold a password.
        raise StateError(
            Subject("checkpoint"),
            "a path, or a URI that can be reached (file, hdfs, s3, gs)",
            f"one of {scheme!r}: {(str(error).splitlines() or [type(error).__name__])[0]}",
            "check the address and what it needs (network, credentials, a Hadoop client)",
        ) from error
    return RemoteStorage(f"{scheme}://{path}", filesystem, path)
