"""A pool of threads: replicas come and go, their threads are used again.

The threads are daemons, unlike those of `concurrent.futures`: a user's function that never returns
must not keep the interpreter from ending.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread

Work = Callable[[], None]


class Pool:
    """Runs each piece of work in a thread of its own, an idle one if there is any."""

    def __init__(self, name: str) -> None:
        """No threads yet; `name` shows in debuggers."""
        self._name = name
        self._lock = Lock()
        self._idle: list[SimpleQueue[Work | None]] = []
        self._threads: list[Thread] = []
        self._over = False

    def run(self, work: Work) -> None:
        """Start a piece of work, which is to handle its own errors."""
        with self._lock:
            desk = self._idle.pop() if self._idle else None
            if desk is None:
                desk = SimpleQueue()
                number = len(self._threads)
                thread = Thread(
                    target=self._serve, args=(desk,), name=f"{self._name}-{number}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
        desk.put(work)

    @property
    def size(self) -> int:
        """How many threads there are, idle ones included."""
        return len(self._threads)

    def is_inside(self) -> bool:
        """Whether the calling thread is one of the pool's."""
        return current_thread() in self._threads

    def end(self, timeout_s: float) -> list[str]:
        """Let idle threads end, and wait for the others; names of those that still run."""
        with self._lock:
            self._over = True
            for desk in self._idle:
                desk.put(None)
            self._idle = []
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _serve(self, desk: SimpleQueue[Work | None]) -> None:
        while (work := desk.get()) is not None:
            work()
            with self._lock:
                if self._over:
                    return
                self._idle.append(desk)
