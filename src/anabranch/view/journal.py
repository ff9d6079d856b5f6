"""A run's events as a file: a line of JSON each, written while they happen, read back as they were.

A line is `{"event": "Observed", …}` with the fields of that event. A run that was killed leaves a
file whose last line may be cut off; what stands before it is the journal.
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
    """Writes every event it hears, so that nothing but the last line can be lost."""

    def __init__(self, path: Path) -> None:
        """Begin a new file."""
        self._file = path.open("w", encoding="utf-8")
        self._lock = Lock()

    def hear(self, event: Event) -> None:
        """Write an event; this is a listener for `start`."""
        line = json.dumps(to_object(event), separators=(",", ":"))
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    def close(self) -> None:
        """No more events."""
        with self._lock:
            self._file.close()


def read_journal(path: Path) -> Iterator[Event]:
    """The events of a file, up to the first line that is none."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            try:
                event = from_object(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                if number == 0:
                    raise UnknownNameError(
                        str(path),
                        "a journal: a line of JSON for every event",
                        line[:60].strip() or "an empty line",
                        "write one with `anabranch run APP --journal FILE`",
                    ) from error
                return
            yield event


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
