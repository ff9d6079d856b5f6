"""Waiting, with a deadline, for what another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 60.0


class Side:
    """A thread beside the test; what it returns or raises comes out of `end`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._function, self._args = function, args
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function(*self._args)
        except BaseException as error:
            self._error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> Any:
        self._thread.join(DEADLINE_S)
        assert self.over, "a thread did not end"
        if self._error is not None:
            raise self._error
        return self._result


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, "what was waited for did not happen"
        time.sleep(0.001)
