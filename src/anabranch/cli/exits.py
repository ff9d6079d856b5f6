"""How the command line hears that it shall end: Ctrl-C, and SIGTERM as service managers send it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM came. Like KeyboardInterrupt no error, so that nothing takes it for one."""


STOPS = (KeyboardInterrupt, Terminated)
"""What ends a command from outside."""


def code_of(stop: BaseException) -> int:
    """What the command leaves to the shell when it was stopped so."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def again(stop: BaseException) -> str:
    """How to stop one that does not wait for what is under way."""
    return "another SIGTERM" if isinstance(stop, Terminated) else "Ctrl-C again"


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated` here, as Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# What the command line leaves to the shell.

WRONG_RESULT = 1
WRONG_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
"""As shells tell a command that SIGINT or SIGTERM has ended: 128 and the number of the signal."""
