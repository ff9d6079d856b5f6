"""A checkpoint on this machine, through the operating system itself: pyarrow cannot fsync."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from anabranch.engines.checkpoint.storage import Storage, pending_name


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
