"""A host's cache of state between batches: any process of the host may pick it up.

State is pickled, and the buffers of its arrays lie beside the pickle in files that are mapped, so
what caching costs follows the memory that is new since the state was claimed, not all there is.

An entry is a directory: `index` (the pickle, and where each of its buffers lies) and segments,
numbered files. Whoever claims it renames the directory to a private one, which only one can do, and
changes the segments in place. A process that dies takes what it has claimed with it: state has to
be kept durably elsewhere, and an entry that is not there, or cannot be read, costs only time.
"""

from __future__ import annotations

import bisect
import errno
import fcntl
import hashlib
import itertools
import logging
import mmap
import os
import pickle
import re
import shutil
import stat
import struct
import tempfile
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StateError, Subject

_NAME = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}")
_INDEX = "index"
_HEADER = struct.Struct("<8sQQ")  # magic, checksum of what follows, number of buffers
_MAGIC = b"cached 1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CachedState:
    """What caching took.

    Attributes:
        bytes_total: Bytes of the state's buffers and pickle.
        bytes_written: How many of them were written; the others were there already.
    """

    bytes_total: int
    bytes_written: int


class StateCache:
    """State by name, shared by the processes of a host.

    State that is cached belongs to the cache: its arrays may be the memory that the next claimer
    writes to, so whoever stores drops every reference afterwards and reads nothing more from it.

    Names consist of letters, digits and `._=-`, and do not begin with a dot.

    Args:
        directory: An existing directory that only this user can write to, see `cache_directory`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cache = StateCache(Path(directory))
        ...     _ = cache.put("counts-1", {"n": np.arange(3)})
        ...     counts = cache.claim("counts-1")
        ...     counts["n"] += 1
        ...     _ = cache.put("counts-2", counts)
        ...     cache.claim("counts-1"), cache.claim("counts-2")
        (None, {'n': array([1, 2, 3])})
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> set[str]:
        """The names of what is cached."""
        return {name for name in self._listing() if not name.startswith(".")}

    def put(self, name: str, state: Any) -> CachedState:
        """Store state under a name; what was cached under it before is replaced.

        Raises:
            StateCacheFull: No space is left, or files cannot be written. The cache is as it was,
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
                raise StateCacheFull(
                    Subject("state", name),
                    f"to cache {writer.bytes_total} bytes in {self._directory}",
                    str(error),
                    "go on without, or give it more room",
                ) from error
            raise
        writer.give_away()
        return CachedState(writer.bytes_total + index_bytes, writer.bytes_written + index_bytes)

    def claim(self, name: str) -> Any | None:
        """Take state out of the cache, for this process alone; None if there is none.

        Arrays are views of the memory they were cached in, and as writable as they were.
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

        Memory is shared until it is written to. Caching a copy writes all of it.
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
        """Remove what is cached under other names, and what processes that died have left."""
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
        _log.warning("cached state %r cannot be read and counts as absent: %r", name, error)


# Buffers in files that processes map: which of them are mapped here, and how new ones are written.
#
# A *segment* is a file with the bytes of one large buffer, or of many small ones. A segment that
# this process has claimed and still has mapped can become part of a new entry by a hard link,
# whatever its size. Nothing here keeps a mapping alive: the arrays that lie in it do.

LARGE_BYTES = 1 << 16
# A mapping costs a file descriptor, and a process may have few more than a thousand.
MOST_SEGMENTS = 256
_ALIGNMENT = 64
_NOWHERE = (-1, 0, 0)

Span = tuple[int, int]
"""Address and length of a buffer in this process."""
Place = tuple[int, int, int]
"""Segment, offset and length of a buffer in an entry."""


class SegmentMapping(mmap.mmap):
    """A mapped segment; what `held` refers to lives as long as any array that lies in it."""

    held: object = None


@dataclass(frozen=True, eq=False)
class _Segment:
    """A segment that this process has claimed and mapped, and may link."""

    path: Path
    start: int
    size: int
    mapping: weakref.ref[SegmentMapping]

    @property
    def cache(self) -> Path:
        return self.path.parent.parent


_live: set[_Segment] = set()
# Both sides of a fork have the mappings; only the one that claimed them may link them.
os.register_at_fork(after_in_child=_live.clear)


def map_copy(file: int, held: object) -> SegmentMapping:
    """Map a segment so that changes stay in this process."""
    mapping = SegmentMapping(file, 0, access=mmap.ACCESS_COPY)
    mapping.held = held
    return mapping


def map_claimed(file: int, path: Path) -> SegmentMapping:
    """Map a segment in place; the file is removed when it is neither mapped nor linked any more."""
    mapping = SegmentMapping(file, 0, access=mmap.ACCESS_WRITE)
    start = pa.py_buffer(mapping).address
    segment = _Segment(path, start, len(mapping), weakref.ref(mapping))
    _live.add(segment)
    weakref.finalize(mapping, _let_go, segment)
    return mapping


def _let_go(segment: _Segment) -> None:
    if segment in _live:
        _live.discard(segment)
        discard_file(segment.path)


class SegmentWriter:
    """Brings buffers into the directory of an entry that is being made, by link or by writing.

    Exactly one of `give_away` and `take_back` follows.

    Args:
        directory: The entry's directory, a private one of the cache.
    """

    def __init__(self, directory: Path) -> None:
        self.bytes_total = 0
        self.bytes_written = 0
        self._directory = directory
        self._numbers = itertools.count()
        self._linked: list[_Segment] = []

    def place(self, buffers: Sequence[memoryview]) -> list[Place]:
        """Bring buffers in; returns where each is. What is the same memory stays the same."""
        spans = [(_address(buffer), buffer.nbytes) for buffer in buffers]
        distinct = dict(zip(spans, buffers, strict=True))
        self.bytes_total = sum(size for _, size in distinct)
        large = max(LARGE_BYTES, self.bytes_total // MOST_SEGMENTS)
        places = {span: _NOWHERE for span in distinct if span[1] == 0}
        places |= self._link([span for span in distinct if span[1]], large)
        small: dict[Span, memoryview] = {}
        for span, buffer in distinct.items():
            if span in places:
                continue
            if span[1] < large:
                small[span] = buffer
            else:
                places |= self._write({span: buffer})
        if small:
            places |= self._write(small)
        return [places[span] for span in spans]

    def give_away(self) -> None:
        """The entry is published: what was linked is its own now."""
        for segment in self._linked:
            discard_file(segment.path)

    def take_back(self) -> None:
        """There will be no entry: what was linked may be linked again."""
        _live.update(self._linked)

    def _link(self, spans: Sequence[Span], large: int) -> dict[Span, Place]:
        """Link the segments that spans lie in, if most of a segment is used.

        Small segments are written anew, together, or every batch would add one; so are those of
        which less than half is used, or they would hold the memory of what was let go.
        """
        places: dict[Span, Place] = {}
        for segment, within in self._segments_of(spans).items():
            used = sum(size + -size % _ALIGNMENT for _, size in within)
            if segment.size < large or 2 * used < segment.size:
                continue
            number = self._link_one(segment)
            if number is not None:
                for span in within:
                    places[span] = (number, span[0] - segment.start, span[1])
        return places

    def _segments_of(self, spans: Sequence[Span]) -> dict[_Segment, list[Span]]:
        cache = self._directory.parent
        mapped = [one for one in list(_live) if one.cache == cache and one.mapping() is not None]
        mapped.sort(key=lambda segment: segment.start)
        starts = [segment.start for segment in mapped]
        found: dict[_Segment, list[Span]] = defaultdict(list)
        for span in spans:
            at = bisect.bisect_right(starts, span[0]) - 1
            if at >= 0 and sum(span) <= mapped[at].start + mapped[at].size:
                found[mapped[at]].append(span)
        return found

    def _link_one(self, segment: _Segment) -> int | None:
        """Its number in the new entry; None if it cannot be linked, so that it must be written."""
        try:
            _live.remove(segment)  # a segment belongs to one entry: whoever removes it links it
        except KeyError:
            return None
        number = next(self._numbers)
        try:
            os.link(segment.path, self._directory / str(number))
        except OSError:
            _live.add(segment)
            return None
        self._linked.append(segment)
        return number

    def _write(self, buffers: dict[Span, memoryview]) -> dict[Span, Place]:
        # Written, not mapped and filled: with memory short, that is an error and not a signal.
        number = next(self._numbers)
        places: dict[Span, Place] = {}
        offset = 0
        with (self._directory / str(number)).open("xb") as file:
            for span, buffer in buffers.items():
                padding = -offset % _ALIGNMENT
                file.write(bytes(padding))
                file.write(buffer)
                places[span] = (number, offset + padding, span[1])
                offset += padding + span[1]
        self.bytes_written += offset
        return places


def _address(buffer: memoryview) -> int:
    return int(pa.py_buffer(buffer).address) if buffer.nbytes else 0


# Where a host stores state, and whose the unfinished pieces of it are.
#
# What is not a whole entry has a hidden name that tells which process works on it, so that whoever
# finds it can tell whether that process still lives.

SHARED_MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 1 << 30

_PRIVATE = re.compile(r"\.[a-z]+-(\d+)-(\d+)-\d+")
_serial = itertools.count()
_in_use: set[str] = set()


class StateCacheFull(StateError):
    """State cannot be cached here: no room, or no safe place. Work can go on without caching."""


def cache_directory(checkpoint_id: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Make and return the directory of a checkpoint's cache on this host; nobody else can enter it.

    It lies in shared memory if there is enough of it, else in the temporary directory. Once made
    it stays the one, however much room is left.

    Raises:
        StateCacheFull: There is no place that only this user can write to.
    """
    cache = hashlib.sha256(checkpoint_id.encode()).hexdigest()[:16]
    refusals = []
    for place in _places(environment):
        home = place / f"anabranch-{os.geteuid()}"
        try:
            if place == SHARED_MEMORY and not (home / cache).is_dir():
                _expect_room(place)
            _expect_nobody_swaps(place)
            _make_ours(home)
            _make_ours(home / cache)
        except OSError as error:
            refusals.append(str(error))
        else:
            return home / cache
    raise StateCacheFull(
        Subject("state"),
        f"a place that only user {os.geteuid()} can write to",
        "; ".join(refusals),
        "remove what is there, or set TMPDIR to a directory of your own",
    )


def all_caches(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The caches of this user on this host."""
    homes = [place / f"anabranch-{os.geteuid()}" for place in _places(environment)]
    return [cache for home in homes if home.is_dir() for cache in home.iterdir()]


def _places(environment: Mapping[str, str]) -> tuple[Path, Path]:
    return SHARED_MEMORY, Path(environment.get("TMPDIR") or tempfile.gettempdir())


def private_path(cache: Path, kind: str) -> Path:
    """A path in the cache for something that only this process works on; free it by `discard`."""
    pid = os.getpid()
    name = f".{kind}-{pid}-{_started(pid)}-{next(_serial)}"
    _in_use.add(name)
    return cache / name


def discard(path: Path) -> None:
    """Remove a private directory with all that is in it."""
    shutil.rmtree(path, ignore_errors=True)
    _in_use.discard(path.name)


def discard_file(path: Path) -> None:
    """Remove a file of a private directory, and the directory if it was the last one."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()
        _in_use.discard(path.parent.name)


def is_abandoned(name: str) -> bool:
    """Whether a private name is of a process that has died, or has dropped it."""
    match = _PRIVATE.fullmatch(name)
    if match is None:
        return False
    pid, started = (int(part) for part in match.groups())
    if pid == os.getpid():
        return name not in _in_use
    return _start_of(pid) != started


@cache
def _started(pid: int) -> int:
    """When this process started; `pid` is asked for since a fork makes another process of it."""
    return _start_of(pid) or 0


def _start_of(pid: int) -> int | None:
    """When a process started, in ticks since boot, 0 where that is not told; None if it is dead."""
    if not Path("/proc/self/stat").exists():
        return _zero_if_alive(pid)
    try:
        # The command, in parentheses, may hold any text: what counts follows the last one.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _zero_if_alive(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def _expect_room(place: Path) -> None:
    room = os.statvfs(place)
    if room.f_bavail * room.f_frsize < ENOUGH_BYTES:
        raise OSError(f"{place} has less than {ENOUGH_BYTES} bytes free")


def _expect_nobody_swaps(place: Path) -> None:
    mode = place.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise PermissionError(f"others may rename what is in {place}")


def _make_ours(directory: Path) -> None:
    """State is unpickled from here, so whoever can write here can run code as this user."""
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not mine or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a directory that is ours alone")
