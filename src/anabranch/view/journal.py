"""A run's events as a file: a line of JSON each, written while they happen, read back as they were.

A line is `{"event": "Observed", …}` with the fields of that event. A run that was killed leaves a
file whose last line may be cut off; what stands before it is the journal. So it is when a disk is
full, which must not cost the run its result.

Lines are written where events are told, without a queue: an event takes less than a
millisecond, and what has been told is in the file, whatever happens to the process.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Any, Union, get_args, get_origin, get_type_hints

from anabranch.errors import UnknownNameError
from anabranch.events import Event

EVENTS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Event)}
BEGINNING = 100
"""So many bytes tell a journal from another file."""


def to_object(event: Event) -> dict[str, Any]:
    """An event as an object that JSON can hold.

    Example:
        >>> from anabranch.events import RunEnded
        >>> to_object(RunEnded(2.0, 10, 3, ended=True))
        {'event': 'RunEnded', 'at_s': 2.0, 'rows_in': 10, 'rows_out': 3, 'ended': True, 'error': ''}
    """
    return {"event": type(event).__name__, **asdict(event)}


def from_object(content: Mapping[str, Any]) -> Event:
    """The event that `to_object` described; fields that are not known are left out.

    Example:
        >>> from_object(
        ...     {"event": "RunEnded", "at_s": 2, "rows_in": 1, "rows_out": 1, "ended": True}
        ... )
        RunEnded(at_s=2, rows_in=1, rows_out=1, ended=True, error='')
    """
    event: Event = _read(EVENTS[content["event"]], content)
    return event


class JournalFile:
    """Writes every event it hears, so that nothing but the last line can be lost.

    An earlier journal of that name is replaced; a file that is something else is refused.

    Attributes:
        trouble: Why the file ends before the run, such as a full disk; None if it does not.
        lost: Events that are not in it for that.
    """

    def __init__(self, path: Path) -> None:
        """Begin a new file."""
        _require_journal_or_nothing(path)
        self._file = path.open("wb", buffering=0)
        self._lock = Lock()
        self.trouble: OSError | None = None
        self.lost = 0

    def hear(self, event: Event) -> None:
        """Write an event; this is a listener for `start`."""
        line = json.dumps(to_object(event), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return
            if self.trouble is None:
                try:
                    self._write(line)
                    return
                except OSError as error:  # behind half a line, more of them could not be read
                    self.trouble = error
            self.lost += 1

    def close(self) -> None:
        """No more events."""
        with self._lock:
            try:
                self._file.close()
            except OSError as error:  # some disks tell only now
                self.trouble = self.trouble or error

    def _write(self, line: bytes) -> None:
        """Write it whole: a file without a buffer takes what there is room for."""
        while line:
            line = line[self._file.write(line) :]


def read_journal(path: Path) -> Iterator[Event]:
    """The events of a file, up to the first line that is no JSON; unknown events are left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
        yield _first_event(path, first)
        for line in file:
            try:
                content = json.loads(line)
                kind = content["event"]
            except (ValueError, KeyError, TypeError, RecursionError):
                return
            try:
                event = from_object(content)
            except (ValueError, KeyError, TypeError):
                if isinstance(kind, str):  # a later version may tell more
                    continue
                return
            yield event


def _first_event(path: Path, line: str) -> Event:
    try:
        return from_object(json.loads(line))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        nothing = "an empty line" if line else "an empty file"
        raise _no_journal(
            path, line[:60].strip() or nothing, "write one with `anabranch run APP --journal FILE`"
        ) from error


def _require_journal_or_nothing(path: Path) -> None:
    """Raise if writing to a path would destroy a file that is no journal."""
    if not path.is_file():  # nothing there, or a pipe or device, which cannot be destroyed
        return
    with path.open("rb") as file:
        head = file.read(BEGINNING).decode(errors="replace")
    begins = "".join(head.split())
    if head and not any(begins.startswith(f'{{"event":"{kind}"') for kind in EVENTS):
        got = head.splitlines()[0][:60].strip() or "an empty line"
        raise _no_journal(path, got, "name another file, or remove this one")


def _no_journal(path: Path, got: str, remedy: str) -> UnknownNameError:
    return UnknownNameError(str(path), "a journal: a line of JSON for every event", got, remedy)


def _read(kind: Any, value: Any) -> Any:
    """A value of JSON in the type that a field has."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        known = [each.name for each in fields(kind) if each.name in value]
        return kind(**{name: _read(hints[name], value[name]) for name in known})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        return tuple(_read(get_args(kind)[0], each) for each in value)
    if get_origin(kind) in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not types.NoneType]
        return None if value is None else _read(inner[0], value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value
