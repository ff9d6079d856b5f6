"""Those who hear what a run tells: whatever they do with it, the run goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from traceback import extract_tb

from anabranch.errors import BuildError, Subject
from anabranch.events import Event

Listener = Callable[[Event], None]


class Listeners:
    """Some listeners as one that never raises.

    Args:
        listeners: One, several, or none.

    Example:
        >>> from anabranch.events import RunEnded
        >>> heard = []
        >>> both = Listeners([print, heard.append])
        >>> both.hear(RunEnded(2.0, 10, 3, ended=True))
        RunEnded(at_s=2.0, rows_in=10, rows_out=3, ended=True, error='')
        []
        >>> len(heard)
        1
    """

    def __init__(self, listeners: Listener | Sequence[Listener] | None) -> None:
        if listeners is None:
            listeners = ()
        self._listeners = (listeners,) if callable(listeners) else tuple(listeners)
        for listener in self._listeners:
            if not callable(listener):
                raise BuildError(
                    Subject("argument", "listener"),
                    "a function of one event, or several in a sequence",
                    repr(listener),
                    "give its method, such as listener=progress.hear",
                )
        self._complained: set[int] = set()

    def hear(self, event: Event) -> list[str]:
        """Tell all of them; in words, what was raised by those that never had before."""
        complaints = []
        for number, listener in enumerate(self._listeners):
            try:
                listener(event)
            except Exception as error:  # theirs, and no reason to end the run
                if number not in self._complained:
                    self._complained.add(number)
                    complaints.append(_complaint(listener, event, error))
        return complaints


def _complaint(listener: Listener, event: Event, error: Exception) -> str:
    name = getattr(listener, "__qualname__", type(listener).__qualname__)
    frames = extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"the listener {name} raised {what} at {type(event).__name__} ({place}); the run goes on, "
        "and more of this listener is not told"
    )
