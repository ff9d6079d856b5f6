"""A run's events as a file: a line of JSON each, written while they happen, read back as they were.

A line is `{"event": "Observed", …}` with the fields of that event. A run that was killed leaves a
file whose last line may be cut off; what stands before it is the journal. So it is when a disk is
full, which must not cost the run its result. Any other line that cannot be read costs itself alone,
and `Unread` says so.

Lines are written where events are told, without a queue: an event takes less than a
millisecond, and what has been told is in the file, whatever happens to the process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, get_args

import msgspec

from anabranch.errors import Subject, UnknownNameError
from anabranch.events import Event
from anabranch.planning.typed_json import Misfit, fitted
from anabranch.view.plan_report import counted

EVENTS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Event)}
BEGINNING = 100
"""So many bytes tell a journal from another file."""
NAMED = 5
"""So many problems of a file are kept in words; the others are counted."""


def to_object(event: Event) -> dict[str, Any]:
    """An event as an object that JSON can hold.

    Example:
        >>> from anabranch.events import RunEnded
        >>> to_object(RunEnded(2.0, 10, 3, ended=True))
        {'event': 'RunEnded', 'at_s': 2.0, 'rows_in': 10, 'rows_out': 3, 'ended': True, 'error': ''}
    """
    return {"event": type(event).__name__, **msgspec.to_builtins(event)}


def from_object(content: Mapping[str, Any]) -> Event:
    """The event that `to_object` described; fields that are not known are left out.

    Raises:
        Misfit: A field is missing or is of another type; says which one.

    Example:
        >>> from_object(
        ...     {"event": "RunEnded", "at_s": 2, "rows_in": 1, "rows_out": 1, "ended": True}
        ... )
        RunEnded(at_s=2.0, rows_in=1, rows_out=1, ended=True, error='')
    """
    event: Event = fitted(content, EVENTS[content["event"]])
    return event


@dataclass
class Unread:
    """What of a journal could not be read or shown: how often, and why the first times.

    Example:
        >>> unread = Unread()
        >>> unread.note("line 3", "Decision.at_s is 'soon', not a number")
        >>> print(unread)
        1 event could not be shown: line 3: Decision.at_s is 'soon', not a number
    """

    count: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, where: str, why: str) -> None:
        """One more."""
        self.count += 1
        if self.count <= NAMED:
            self.problems.append(f"{where}: {why}")

    def __str__(self) -> str:
        more = self.count - len(self.problems)
        told = "; ".join(self.problems) + (f"; and {more} more" if more else "")
        return f"{counted(self.count, 'event')} could not be shown: {told}"


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


def read_journal(path: Path, unread: Unread | None = None) -> Iterator[Event]:
    """The events of a file.

    Events that this version does not know are left out, and so is a last line that is cut off.

    Args:
        path: The file.
        unread: Where to note lines that cannot be read.
    """
    unread = unread if unread is not None else Unread()
    with path.open(encoding="utf-8", errors="replace") as file:
        yield _first_event(path, file.readline())
        for number, line in enumerate(file, start=2):
            try:
                content = _parsed(line)
                if content["event"] in EVENTS or not isinstance(content["event"], str):
                    yield from_object(content)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if line.endswith("\n"):
                    unread.note(f"line {number}", _why(line, error))


def _parsed(line: str) -> Any:
    """Parse a line; NaN, which Python writes and no browser reads, is no number but a text."""
    return json.loads(line, parse_constant=str)


def _first_event(path: Path, line: str) -> Event:
    try:
        return from_object(_parsed(line))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_journal(
            path, _why(line, error), "write one with `anabranch run APP --journal FILE`"
        ) from error


def _why(line: str, error: Exception) -> str:
    """What is wrong with a line: a field of an event, or all of it."""
    if isinstance(error, Misfit):
        return f"{_parsed(line)['event']}: {error}"
    return line[:60].strip() or ("an empty line" if line else "an empty file")


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
    return UnknownNameError(
        Subject("file", str(path)), "a journal: a line of JSON for every event", got, remedy
    )
