"""A checkpoint on a file system that pyarrow reaches: HDFS, S3, and others."""

from __future__ import annotations

from typing import Any

from pyarrow import fs

from anabranch.engines.checkpoint.storage import Storage, pending_name


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
