"""From what a user writes as checkpoint location to the storage behind it."""

from __future__ import annotations

import os

import pyarrow as pa
from pyarrow import fs

from anabranch.engines.checkpoint.local_storage import LocalStorage
from anabranch.engines.checkpoint.remote_storage import RemoteStorage
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError, Subject

SPARK_SPELLINGS = {"s3a": "s3", "s3n": "s3"}


def storage_at(location: str | os.PathLike[str]) -> Storage:
    """The storage behind a path, or a URI such as hdfs://… or s3://….

    Example:
        >>> storage_at("file:///tmp/somewhere").location
        '/tmp/somewhere'
    """
    text = os.fspath(location)
    if "://" not in text and not text.startswith("file:"):
        return LocalStorage(os.path.abspath(text))
    scheme, _, rest = text.partition(":")
    scheme = SPARK_SPELLINGS.get(scheme, scheme)
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
    if isinstance(filesystem, fs.LocalFileSystem):
        return LocalStorage(path)
    return RemoteStorage(f"{scheme}://{path}", filesystem, path)
