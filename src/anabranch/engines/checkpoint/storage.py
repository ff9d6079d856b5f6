"""Where a checkpoint lives: a directory here, on HDFS or on S3, behind one small interface.

A file appears whole or not at all: it is written under a temporary name and then renamed. Whatever
goes wrong below (disk full, no permission, no network) is a StateError that names the path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa

from anabranch.errors import StateError, Subject

PENDING = ".pending-"


class Storage(ABC):
    """A directory; paths are relative to it and use "/". It can be sent to another process.

    An implementer owes: a reader never sees half a file; `create` never replaces one.
    """

    def __init__(self, location: str) -> None:
        """Remember where; `location` is for errors and holds no password."""
        self.location = location

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """All of a file; None when there is none."""

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
        """The full path, for people."""
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
    """A temporary name beside a file, of which no two are alike."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{PENDING}{uuid4().hex[:12]}-{name}"
