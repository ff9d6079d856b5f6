"""Where a checkpoint lives: a directory here, on HDFS or on S3, behind one small interface.

A file appears whole or not at all: it is written under a temporary name and then renamed. Whatever
goes wrong below (disk full, no permission, no network) is a StateError that names the path.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from anabranch.errors import StateError, Subject
from anabranch.io.local_paths import local_path, remote_scheme

PENDING = ".pending-"


class Storage(ABC):
    """A directory; paths are relative to it and use "/". It can be sent to another process.

    An implementer must ensure that no reader sees half a file and that `create` replaces none.
    """

    def __init__(self, location: str) -> None:
        """Remember where; `location` is for errors and holds no password."""
        self.location = location

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return all of a file; None when there is none."""

    @abstractmethod
    def write(self, path: str, data: Any, *, durable: bool = False) -> None:
        """Put a file in place, over an earlier one; `durable` outlives a power failure."""

    @abstractmethod
    def create(self, path: str, data: Any) -> bool:
        """Put a durable file in place unless there is one; says whether it did."""

    @abstractmethod
    def entries(self, folder: str) -> dict[str, int]:
        """Names in a folder and their sizes; empty when the folder does not exist."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def make(self, folder: str) -> None:
        """Make a folder, if it is not there."""

    def named(self, path: str) -> str:
        """Return the full path, for people."""
        return f"{self.location}/{path}" if path else self.location

    @contextmanager
    def naming(self, doing: str, path: str) -> Iterator[None]:
        """Let errors of the operating system say which path, and what to do."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise StateError(
                Subject("checkpoint", self.location),
                f"to be able to {doing} {self.named(path)}",
                f"{type(error).__name__}: {error}",
                "check free space, permissions and network, then start again: "
                "what was committed is kept",
            ) from error


def pending_name(path: str) -> str:
    """Return a temporary name beside a file, of which no two are alike."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{PENDING}{uuid4().hex[:12]}-{name}"


# A checkpoint on this machine, through the operating system itself: pyarrow cannot fsync.


class LocalStorage(Storage):
    """A local directory.

    A durable file is on disk before it gets its name, so a power failure loses it whole or not at
    all. What is created to be there for good (a log, a manifest) has its name on disk, too.
    """

    def read(self, path: str) -> bytes | None:
        with self.naming("read", path):
            try:
                with open(self.named(path), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, path: str, data: Any, *, durable: bool = False) -> None:
        with self.naming("write", path):
            pending = self._write_pending(path, data, durable)
            os.replace(pending, self.named(path))

    def create(self, path: str, data: Any) -> bool:
        with self.naming("write", path):
            pending = self._write_pending(path, data, durable=True)
            try:
                # A link, unlike a rename, fails when the name is taken.
                os.link(pending, self.named(path))
            except FileExistsError:
                return False
            except OSError:
                # Some file systems have no links: ask first there, and live with the small gap.
                if os.path.exists(self.named(path)):
                    return False
                os.rename(pending, self.named(path))
            finally:
                with suppress(FileNotFoundError):
                    os.remove(pending)
            self._sync_folder(os.path.dirname(self.named(path)))
            return True

    def _sync_folder(self, folder: str) -> None:
        """A name outlives a power failure once its directory is on disk."""
        if os.name == "posix":
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def entries(self, folder: str) -> dict[str, int]:
        sizes = {}
        with self.naming("list", folder), suppress(FileNotFoundError):
            for entry in os.scandir(self.named(folder)):
                with suppress(FileNotFoundError):  # gone since it was listed
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def remove(self, path: str) -> None:
        with self.naming("remove", path), suppress(FileNotFoundError):
            os.remove(self.named(path))

    def make(self, folder: str) -> None:
        with self.naming("make", folder):
            os.makedirs(self.named(folder), exist_ok=True)

    def _write_pending(self, path: str, data: Any, durable: bool) -> str:
        pending = self.named(pending_name(path))
        try:
            with open(pending, "wb", buffering=0) as file:
                rest = memoryview(data).cast("B")
                while rest:
                    rest = rest[file.write(rest) :]
                if durable:
                    os.fsync(file.fileno())
        except OSError:
            # On a full disk the beginning of a file would take what little is left.
            with suppress(OSError):
                os.remove(pending)
            raise
        return pending


# A checkpoint on a file system that pyarrow reaches: HDFS, S3, and others.


class RemoteStorage(Storage):
    """Any file system that pyarrow knows; its own guarantees are what durability means there."""

    def __init__(self, location: str, filesystem: fs.FileSystem, base: str) -> None:
        """A directory `base` of a file system."""
        super().__init__(location)
        self._filesystem = filesystem
        self._base = base.rstrip("/")

    def read(self, path: str) -> bytes | None:
        with self.naming("read", path):
            try:
                with self._filesystem.open_input_stream(self._path(path)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, path: str, data: Any, *, durable: bool = False) -> None:
        with self.naming("write", path):
            pending = self._write_pending(path, data)
            try:
                self._filesystem.move(pending, self._path(path))
            except OSError:
                # HDFS does not rename over a file that exists.
                if not self._exists(path):
                    raise
                self._filesystem.delete_file(self._path(path))
                self._filesystem.move(pending, self._path(path))

    def create(self, path: str, data: Any) -> bool:
        # Not atomic: between the question and the rename another may come. The fence narrows that
        # gap to a run that was taken over while it stood exactly here.
        with self.naming("write", path):
            if self._exists(path):
                return False
            self._filesystem.move(self._write_pending(path, data), self._path(path))
            return True

    def entries(self, folder: str) -> dict[str, int]:
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        with self.naming("list", folder):
            return {found.base_name: found.size or 0 for found in self._info(selector)}

    def remove(self, path: str) -> None:
        with self.naming("remove", path):
            if self._exists(path):
                self._filesystem.delete_file(self._path(path))

    def make(self, folder: str) -> None:
        with self.naming("make", folder):
            self._filesystem.create_dir(self._path(folder), recursive=True)

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base

    def _exists(self, path: str) -> bool:
        (found,) = self._info([self._path(path)])
        return bool(found.type != fs.FileType.NotFound)

    def _info(self, what: Any) -> list[fs.FileInfo]:
        return list(self._filesystem.get_file_info(what))

    def _write_pending(self, path: str, data: Any) -> str:
        pending = self._path(pending_name(path))
        with self._filesystem.open_output_stream(pending) as stream:
            stream.write(data)
        return pending


# From what a user writes as checkpoint location to the storage behind it.

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
    """Return the storage behind a path, or a URI such as hdfs://… or s3://….

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
