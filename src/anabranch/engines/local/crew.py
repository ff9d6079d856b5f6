"""The worker processes of the user's process: started once, used for one run after the other.

A worker runs `python -m anabranch.engines.local.worker` and never imports the user's `__main__`, so
a script needs no guard and a notebook works as well. Workers end with the user's process; see
worker.py.
"""

from __future__ import annotations

import atexit
import errno
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache

import pyarrow as pa

from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.local import forwarding
from anabranch.engines.local.mesh import COORDINATOR, Mesh, packed
from anabranch.engines.local.status_page import StatusPage
from anabranch.engines.local.wire import Wire
from anabranch.engines.local.worker import ONE_THREAD, Control, Job, Surroundings
from anabranch.engines.process_memory import arrow_pool
from anabranch.errors import EngineError, Subject

GRACE_S = 5.0
"""Seconds in which a worker must become idle after its run."""
EXIT_S = 2.0
"""Seconds to wait for the end of a process that has closed its connections."""
DISMISS_S = 30.0
"""Idle workers beyond the cores of the machine are kept for so many seconds."""
CONNECT_S = 30.0
RETRY_S = 0.01


class WorkerProcess:
    """A worker process of this process."""

    def __init__(self) -> None:
        control, its_control = socket.socketpair()
        self._lifeline, its_lifeline = socket.socketpair()
        self._control = Wire(control, blocking=True)
        self.status = StatusPage()
        self._has_run = False
        try:
            self._process = _started(
                its_control.fileno(), its_lifeline.fileno(), self.status.descriptor
            )
        except BaseException:
            self._close()
            raise
        finally:
            its_control.close()
            its_lifeline.close()

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the exit code, minus the number of a signal that killed it; None if it runs."""
        return self._process.poll()

    def describe_exit(self) -> str:
        """Return how the process has ended, after a moment in which it may still do so."""
        try:
            code = self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            return "still running"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def end(self) -> None:
        """End the process whatever it does."""
        self._process.kill()

    def kill(self) -> None:
        """End the process whatever it does, and release everything that belongs to it."""
        self.end()
        self._process.wait()
        self._close()

    def connect(self, number: int, connection: socket.socket) -> None:
        """Give the worker a socket to the process of this number, for its next run."""
        self._send(Control.CONNECT, number, (connection.fileno(),))

    def start(self, number: int) -> None:
        """Let the worker wait for a job, as the process of this number."""
        self._has_run = True
        self._send(Control.START, number)

    def becomes_idle(self, until_s: float) -> bool:
        """Return whether the worker reports the end of its run before a time of the clock."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        while self._has_run and not self._control.ended:
            if not poller.poll(max(until_s - time.monotonic(), 0) * 1000):
                return False
            if any(frame.kind == Control.IDLE for frame in self._control.receive()):
                self._has_run = False
        return not self._has_run

    def forget(self) -> None:
        """Let go of a process that belongs to the parent of this process."""
        self._process.returncode = 0
        self._close()

    def _send(self, kind: Control, number: int, descriptors: Sequence[int] = ()) -> None:
        self._control.queue(kind, str(number).encode(), descriptors)
        end = time.monotonic() + CONNECT_S
        while not self._control.flush():
            if time.monotonic() > end:
                raise OSError(errno.ETOOMANYREFS, "too many descriptors are on their way")
            time.sleep(RETRY_S)

    def _close(self) -> None:
        self._control.close()
        self._lifeline.close()
        self.status.close()


class Crew:
    """A pool of worker processes, for any thread.

    A run whose operators wait may have more workers than the machine has cores. Idle ones beyond
    those are kept for a while, since a similar run may follow.

    Example:
        >>> def main(mesh: Mesh, text: str) -> None:
        ...     mesh.send(0, f"{text} from {mesh.number}")
        >>> crew = Crew()
        >>> workers = crew.take(2)
        >>> mesh = crew.connect(workers)
        >>> crew.run(mesh, main, "hello")
        >>> received = []
        >>> while len(received) < 2:
        ...     received += mesh.poll(None)
        >>> sorted(received)
        [(1, 'hello from 1'), (2, 'hello from 2')]
        >>> mesh.close()
        >>> crew.give_back(workers)
        >>> crew.close()
    """

    def __init__(self) -> None:
        self._reset()
        _crews.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._taken: list[WorkerProcess] = []
        self._dismissal: threading.Timer | None = None

    @staticmethod
    def available() -> bool:
        """Return whether worker processes can be used on this system."""
        return hasattr(socket, "AF_UNIX") and hasattr(select, "poll") and bool(sys.executable)

    def take(self, count: int) -> list[WorkerProcess]:
        """Return workers for a run: idle ones first, and new ones for the rest.

        New ones start at the same time; the first job waits for them.
        """
        if not self.available():
            raise EngineError(
                Subject("engine", "local"),
                "a system with Unix sockets and an executable of Python",
                f"{sys.platform}, {sys.executable!r}",
                "use Linux, macOS or WSL",
            )
        with self._lock:
            workers: list[WorkerProcess] = []
            while len(workers) < count and self._idle:
                worker = self._idle.pop()
                if worker.returncode is None:
                    workers.append(worker)
                else:
                    worker.kill()
            try:
                while len(workers) < count:
                    workers.append(WorkerProcess())
            except BaseException:
                self._idle += workers
                raise
            self._taken += workers
            return workers

    def give_back(self, workers: Sequence[WorkerProcess]) -> None:
        """Keep workers for the next run, after the mesh of the last one has been closed.

        A worker that is not idle in time is killed, as is one whose job left threads behind.
        """
        until_s = time.monotonic() + GRACE_S
        idle = [worker for worker in workers if worker.becomes_idle(until_s)]
        for worker in workers:
            if worker not in idle:
                worker.kill()
        with self._lock:
            self._taken = [worker for worker in self._taken if worker not in workers]
            # The order makes the next run of this size give each worker the same number.
            self._idle += reversed(idle)
            if len(self._idle) > len(usable_cpus()) and self._dismissal is None:
                self._dismissal = threading.Timer(DISMISS_S, self._dismiss)
                self._dismissal.daemon = True
                self._dismissal.start()

    def _dismiss(self) -> None:
        """End the idle workers beyond the cores."""
        with self._lock:
            self._dismissal = None
            cores = len(usable_cpus())
            surplus, self._idle = self._idle[:-cores], self._idle[-cores:]
            for worker in surplus:
                worker.kill()

    def connect(self, workers: Sequence[WorkerProcess]) -> Mesh:
        """Return the mesh for a run, in which the workers have the numbers from 1 in this order."""
        mesh = Mesh(COORDINATOR)
        self.extend(mesh, workers)
        return mesh

    @staticmethod
    def extend(mesh: Mesh, workers: Sequence[WorkerProcess]) -> list[int]:
        """Connect further workers to a mesh and with each other; returns their numbers."""
        numbers = []
        for worker in workers:
            others = mesh.peers
            number = max(others, default=COORDINATOR) + 1
            mine, its = socket.socketpair()
            mesh.connect(number, mine)
            worker.connect(COORDINATOR, its)
            its.close()
            worker.start(number)
            for other in others:
                mesh.introduce(number, other)
            mesh.flush()
            numbers.append(number)
        return numbers

    @staticmethod
    def run(
        mesh: Mesh,
        main: Callable[..., object],
        *arguments: object,
        steps: Mapping[str, object] | None = None,
        to: Sequence[int] | None = None,
    ) -> None:
        """Let each worker of a mesh call `main(mesh, *arguments)` with its own mesh.

        `main` must return when it receives `Lost(0)`. If it raises, `Failed` is received from that
        worker. Large Arrow columns of the arguments are copied once for all workers.

        Args:
            mesh: The result of `connect`.
            main: Any function, also one of a script or a notebook.
            arguments: Any objects that cloudpickle can send.
            steps: Parts of the arguments by the names of their steps, to find the one that cannot
                be sent.
            to: The numbers of the workers; all of them when left out.

        Raises:
            EngineError: When the function or an argument cannot be sent to another process.
        """
        buffers: list[pickle.PickleBuffer] = []

        def is_kept_inside(buffer: pickle.PickleBuffer) -> bool:
            # Arrow data is never written to. A function may write to its arrays.
            view = memoryview(buffer)
            if view.readonly or isinstance(view.obj, pa.Buffer):
                buffers.append(buffer)
                return False
            return True

        classes: list[type] = []  # pickled last, when it is complete
        try:
            job = packed(
                (main, arguments, classes),
                is_kept_inside,
                by_value=True,
                take_class=classes.append,
            )
        except Exception as error:
            raise _unsendable(error, steps or {}) from error
        mesh.send_all(
            mesh.peers if to is None else to,
            Job(_surroundings(), pickle.PickleBuffer(job), tuple(buffers)),
        )
        mesh.flush()

    def close(self) -> None:
        """End all workers, also those in use."""
        with self._lock:
            for worker in (*self._idle, *self._taken):
                worker.kill()
            self._idle.clear()
            self._taken.clear()

    def _forget(self) -> None:
        """Let go of all workers in a process that was forked from theirs."""
        for worker in (*self._idle, *self._taken):
            worker.forget()
        self._reset()


@cache
def shared_crew() -> Crew:
    """Return the pool that all runs of this process use."""
    return Crew()


_crews: weakref.WeakSet[Crew] = weakref.WeakSet()


_exiting = threading.Event()


def is_exiting() -> bool:
    """Return whether this process is about to end, and its workers with it."""
    return _exiting.is_set()


def _close_all() -> None:
    _exiting.set()
    for crew in list(_crews):
        crew.close()


def _forget_all() -> None:
    # A forked process that kept the lifelines open would keep its parent's workers alive.
    for crew in list(_crews):
        crew._forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def interpreter_flags() -> list[str]:
    """Return the flags of this interpreter that change what code does: -O, -X dev and -W."""
    flags = ["-O"] * sys.flags.optimize + ["-X", "dev"] * sys.flags.dev_mode
    return flags + [f"-W{option}" for option in sys.warnoptions]


def _started(*descriptors: int) -> subprocess.Popen[bytes]:
    module = "anabranch.engines.local.worker"
    command = [sys.executable, *interpreter_flags(), "-P", "-m", module, *map(str, descriptors)]
    path = {"PYTHONPATH": os.pathsep.join(_absolute_path())}
    environment = os.environ | ONE_THREAD | arrow_pool() | path
    # A worker inherits the mask, so that Ctrl-C cannot reach it before it ignores that.
    masked_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            env=environment,
        )
    except OSError as error:
        raise EngineError(
            Subject("engine", "local"),
            "a worker process",
            f"{sys.executable!r}: {error}",
            "make memory and process ids available, or use fewer workers",
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked_before)


def _surroundings() -> Surroundings:
    folder = None
    with suppress(OSError):  # it may have been removed
        folder = os.getcwd()
    return Surroundings(_absolute_path(), folder, dict(os.environ), forwarding.levels())


def _absolute_path() -> list[str]:
    return [os.path.abspath(entry) for entry in sys.path]


def _unsendable(error: Exception, steps: Mapping[str, object]) -> EngineError:
    expected = "functions and objects that can be sent to a worker process"
    remedy = "create what cannot be sent inside of the function that uses it, not outside"
    for name, part in steps.items():
        try:
            packed(part, _left_out, by_value=True)
        except Exception as found:
            return EngineError(name, expected, _described(found), remedy)
    return EngineError(Subject("engine", "local"), expected, _described(error), remedy)


def _left_out(_: pickle.PickleBuffer) -> bool:
    return False


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
