"""Where a host parks state, and whose the unfinished pieces of it are.

What is not a whole entry has a hidden name that tells which process works on it, so that whoever
finds it can tell whether that process still lives.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from anabranch.errors import StateError, Subject

SHARED_MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 1 << 30

_PRIVATE = re.compile(r"\.[a-z]+-(\d+)-(\d+)-\d+")
_serial = itertools.count()
_in_use: set[str] = set()


class ParkingFull(StateError):
    """State cannot be parked here: no room, or no safe place. Work can go on without parking."""


def lot_directory(checkpoint_id: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of a checkpoint's lot on this host, made if need be; nobody else can enter it.

    It lies in shared memory if there is enough of it, else in the temporary directory. Once made
    it stays the one, however much room is left.

    Raises:
        ParkingFull: There is no place that only this user can write to.
    """
    lot = hashlib.sha256(checkpoint_id.encode()).hexdigest()[:16]
    refusals = []
    for place in _places(environment):
        home = place / f"anabranch-{os.geteuid()}"
        try:
            if place == SHARED_MEMORY and not (home / lot).is_dir():
                _expect_room(place)
            _expect_nobody_swaps(place)
            _make_ours(home)
            _make_ours(home / lot)
        except OSError as error:
            refusals.append(str(error))
        else:
            return home / lot
    raise ParkingFull(
        Subject("state"),
        f"a place that only user {os.geteuid()} can write to",
        "; ".join(refusals),
        "remove what is there, or set TMPDIR to a directory of your own",
    )


def all_lots(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The lots of this user on this host."""
    homes = [place / f"anabranch-{os.geteuid()}" for place in _places(environment)]
    return [lot for home in homes if home.is_dir() for lot in home.iterdir()]


def _places(environment: Mapping[str, str]) -> tuple[Path, Path]:
    return SHARED_MEMORY, Path(environment.get("TMPDIR") or tempfile.gettempdir())


def private_path(lot: Path, kind: str) -> Path:
    """A path in the lot for something that only this process works on; free it by `discard`."""
    pid = os.getpid()
    name = f".{kind}-{pid}-{_started(pid)}-{next(_serial)}"
    _in_use.add(name)
    return lot / name


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
