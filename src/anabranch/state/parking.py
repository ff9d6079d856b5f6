"""A host's parking lot for state between batches: any process of the host may pick it up.

State is pickled, and the buffers of its arrays lie beside the pickle in files that are mapped, so
what parking costs follows the memory that is new since the state was claimed, not all there is.

An entry is a directory: `index` (the pickle, and where each of its buffers lies) and segments,
numbered files. Whoever claims it renames the directory to a private one, which only one can do, and
changes the segments in place. A process that dies takes what it has claimed with it: state has to
be kept durably elsewhere, and an entry that is not there, or cannot be read, costs only time.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import pickle
import re
import struct
import weakref
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.errors import Subject
from anabranch.state.parking_place import (
    ParkingFull,
    discard,
    discard_file,
    is_abandoned,
    lot_directory,
    private_path,
)
from anabranch.state.parking_segments import (
    Place,
    SegmentMapping,
    SegmentWriter,
    map_claimed,
    map_copy,
)

__all__ = ["Parked", "ParkingFull", "ParkingLot", "lot_directory"]

_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}")
_INDEX = "index"
_HEADER = struct.Struct("<8sQQ")  # magic, checksum of what follows, number of buffers
_MAGIC = b"parked 1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parked:
    """What parking took.

    Attributes:
        bytes_total: Bytes of the state's buffers and pickle.
        bytes_written: How many of them were written; the others were there already.
    """

    bytes_total: int
    bytes_written: int


class ParkingLot:
    """State by name, shared by the processes of a host.

    State that is parked belongs to the lot: its arrays may be the memory that the next claimer
    writes to, so whoever parks drops every reference afterwards and reads nothing more from it.

    Names consist of letters, digits and `._=-`, and do not begin with a dot.

    Args:
        directory: An existing directory that only this user can write to, see `lot_directory`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     lot = ParkingLot(Path(directory))
        ...     _ = lot.park("counts-1", {"n": np.arange(3)})
        ...     counts = lot.claim("counts-1")
        ...     counts["n"] += 1
        ...     _ = lot.park("counts-2", counts)
        ...     lot.claim("counts-1"), lot.claim("counts-2")
        (None, {'n': array([1, 2, 3])})
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> set[str]:
        """The names of what is parked."""
        return {name for name in self._listing() if not name.startswith(".")}

    def park(self, name: str, state: Any) -> Parked:
        """Park state under a name; what was parked under it before is replaced.

        Raises:
            ParkingFull: There is no room, or the files cannot be written. The lot is as it was,
                and the state is still the caller's.
        """
        entry = self._entry(name)
        pickled: list[pickle.PickleBuffer] = []
        stream = pickle.dumps(state, protocol=5, buffer_callback=pickled.append)
        making = private_path(self._directory, "making")
        writer = SegmentWriter(making)
        try:
            making.mkdir()
            places = writer.place([buffer.raw() for buffer in pickled])
            index_bytes = _write_index(making / _INDEX, places, stream)
            self._publish(making, entry)
        except BaseException as error:
            writer.take_back()
            discard(making)
            if isinstance(error, OSError):
                raise ParkingFull(
                    Subject("state", name),
                    f"to park {writer.bytes_total} bytes in {self._directory}",
                    str(error),
                    "go on without, or give it more room",
                ) from error
            raise
        writer.give_away()
        return Parked(writer.bytes_total + index_bytes, writer.bytes_written + index_bytes)

    def claim(self, name: str) -> Any | None:
        """Take state out of the lot, for this process alone; None if there is none.

        Arrays are views of the memory they were parked in, and as writable as they were.
        """
        entry = self._entry(name)
        taken = private_path(self._directory, "claimed")
        try:
            os.rename(entry, taken)
            opened = _Directory(taken)
            if opened.lock(fcntl.LOCK_EX):
                state = opened.load(lambda number: _claimed(taken / str(number)))
                # Before the lock goes, so that whoever opened the directory earlier finds nothing.
                # Segments go one by one, when their mappings do.
                discard_file(taken / _INDEX)
            else:
                # Somebody reads a copy, which would see what is changed in place.
                state = opened.load(opened.copied)
                discard(taken)
        except Exception as error:
            _tell(name, error)
            discard(taken)
            return None
        return state

    def copy(self, name: str) -> Any | None:
        """State as it is now, for this process alone, while the entry stays; None if there is none.

        Memory is shared until it is written to. Parking a copy writes all of it.
        """
        entry = self._entry(name)
        try:
            opened = _Directory(entry)
            # While the copy lives, its lock keeps claimers from changing the files in place.
            return opened.load(opened.copied) if opened.lock(fcntl.LOCK_SH) else None
        except Exception as error:
            _tell(name, error)
            return None

    def sweep(self, keep: Collection[str]) -> None:
        """Remove what is parked under other names, and what processes that died have left."""
        for name in self._listing():
            if is_abandoned(name):
                discard(self._directory / name)
            elif not name.startswith(".") and name not in keep:
                self._remove(self._directory / name)

    def _entry(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"expected letters, digits and '._=-' without a dot in front, got {name!r}"
            )
        return self._directory / name

    def _listing(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except OSError:
            return []

    def _publish(self, making: Path, entry: Path) -> None:
        while True:
            try:
                os.rename(making, entry)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            self._remove(entry)

    def _remove(self, entry: Path) -> None:
        """Take an entry out before its files go, so that nobody finds half of it."""
        removed = private_path(self._directory, "removed")
        with suppress(OSError):
            os.rename(entry, removed)
        discard(removed)


class _Directory:
    """An entry's open directory: follows renames, and is locked until it is closed.

    It is closed when nothing refers to it any more, neither a caller nor a mapping it has made.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, self._descriptor)

    def lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def copied(self, number: int) -> SegmentMapping:
        with open(str(number), "rb", opener=self._open) as file:
            return map_copy(file.fileno(), self)

    def load(self, mapped: Callable[[int], SegmentMapping]) -> Any:
        with open(_INDEX, "rb", opener=self._open) as file:
            places, stream = _read_index(memoryview(file.read()))
        mappings = {number: mapped(number) for number in {place[0] for place in places} - {-1}}
        buffers = [_buffer(mappings, place) for place in places]
        return pickle.loads(stream, buffers=buffers)

    @property
    def _open(self) -> Callable[[str, int], int]:
        return partial(os.open, dir_fd=self._descriptor)


def _claimed(path: Path) -> SegmentMapping:
    with path.open("r+b") as file:
        return map_claimed(file.fileno(), path)


def _buffer(mappings: dict[int, SegmentMapping], place: Place) -> memoryview:
    number, offset, length = place
    if number < 0:
        return memoryview(bytearray())
    buffer = memoryview(mappings[number])[offset : offset + length]
    if len(buffer) < length:
        raise ValueError(f"segment {number} ends before {offset + length}")
    return buffer


def _write_index(path: Path, places: list[Place], stream: bytes) -> int:
    table = np.array(places, np.int64).tobytes()
    checksum = zlib.crc32(stream, zlib.crc32(table))
    with path.open("xb") as file:
        file.write(_HEADER.pack(_MAGIC, checksum, len(places)))
        file.write(table)
        file.write(stream)
    return _HEADER.size + len(table) + len(stream)


def _read_index(data: memoryview) -> tuple[list[Place], memoryview]:
    magic, checksum, count = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC or zlib.crc32(body) != checksum:
        raise ValueError("the index is damaged")
    table = np.frombuffer(body, np.int64, 3 * count).reshape(count, 3)
    return [(number, offset, size) for number, offset, size in table.tolist()], body[table.nbytes :]


def _tell(name: str, error: Exception) -> None:
    # An entry that is gone is every day's business; one that cannot be read is somebody's mistake.
    if not isinstance(error, FileNotFoundError):
        _log.warning("parked state %r cannot be read and counts as absent: %r", name, error)
