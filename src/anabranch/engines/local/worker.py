"""The main program of a worker process: runs the jobs that it is sent, one after the other.

A worker is started by crew.py with three file descriptors. The *control* socket brings a connection
to the user's process for the next run. The *lifeline* brings nothing: its other end is closed when
the user's process ends in any way, and then the kernel kills this process, whatever it computes.
The *status* is a page of memory on which the user's process sees which step runs here.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import pickle
import select
import signal
import socket
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import cloudpickle
import pyarrow as pa

from anabranch.engines.local import forwarding
from anabranch.engines.local.mesh import COORDINATOR, Mesh
from anabranch.engines.local.status_page import StatusPage
from anabranch.engines.local.wire import Wire
from anabranch.engines.process_memory import (
    ARROW_POOL,
    freeze_modules,
    give_back_memory,
    keep_freed_memory,
)
from anabranch.errors import EngineError, Subject

ONE_THREAD = {
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
"""Variables that keep numeric libraries from starting a thread per processor in each worker."""


class Control(IntEnum):
    """Kinds of frames of the control socket.

    CONNECT has the number of another process, and a socket to it. START has the number of this
    worker and comes after all of those. IDLE is the answer after the job.
    """

    CONNECT = 0
    START = 1
    IDLE = 2


@dataclass(frozen=True)
class Surroundings:
    """Properties of the user's process that a worker takes over at each job."""

    path: list[str]
    folder: str | None
    environment: dict[str, str]
    log_levels: dict[str, int]


@dataclass(frozen=True)
class Job:
    """A function, its arguments and the classes of the user's `__main__` that they refer to.

    They are packed by cloudpickle; the buffers that they refer to are beside them.
    """

    surroundings: Surroundings
    packed: Any
    buffers: tuple[Any, ...]


@dataclass(frozen=True)
class Failed:
    """Reports that the function of a job has raised."""

    error: BaseException
    traceback: str


_status: list[StatusPage] = []


def status_page() -> StatusPage | None:
    """Return the page on which this process notes what it does; None in the user's process."""
    return _status[0] if _status else None


def serve(control_descriptor: int, lifeline_descriptor: int, status_descriptor: int) -> None:
    """Run jobs until the user's process closes the control socket."""
    _status.append(StatusPage(status_descriptor))
    lifeline = socket.socket(fileno=lifeline_descriptor)
    lifeline.set_inheritable(False)
    end_with(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for number in (signal.SIGTERM, signal.SIGHUP):  # they may go to a whole group of processes
        signal.signal(number, _leave_it_to_the_coordinator)
    faulthandler.enable()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    keep_freed_memory()
    pa.array([0])  # Arrow loads pandas with its first array: too long for a plan change to wait
    freeze_modules()

    connection = socket.socket(fileno=control_descriptor)
    connection.set_inheritable(False)
    control = Wire(connection, blocking=True)
    for each in (control, lifeline):
        os.register_at_fork(after_in_child=each.close)
    lasting_modules = set(sys.modules)
    while (mesh := _connected(control)) is not None:
        _do_job(mesh)
        # Closing connections before that would look like a failure to the other workers.
        mesh.discard_until_lost(COORDINATOR)
        mesh.close()
        if threading.active_count() > 1:
            return
        _forget_user_modules(lasting_modules)
        control.queue(Control.IDLE, b"")
        control.flush()
        del mesh
        gc.collect()
        give_back_memory()


def _leave_it_to_the_coordinator(number: int, frame: object) -> None:
    """Handle a signal by nothing: a child process that a step starts does not inherit that."""


def end_with(lifeline: socket.socket) -> None:
    """Let the kernel end this process as soon as the other end of a socket is closed.

    A thread could not do that while another one computes without releasing Python's lock, and the
    signal for the death of a parent comes at the end of the parent's thread already.
    """
    import fcntl  # Windows has none

    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    else:
        _exit_at_sigio()
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        os._exit(1)


def _exit_at_sigio() -> None:
    """Handle SIGIO by the C function _exit: macOS ignores it, Python's handlers may come late."""
    library = ctypes.CDLL(None)
    library.signal(int(signal.SIGIO), ctypes.cast(library._exit, ctypes.c_void_p))


def _connected(control: Wire) -> Mesh | None:
    """Wait for the connections of the next run; return None if there is no further one."""
    sockets: dict[int, socket.socket] = {}
    while not control.ended:
        for kind, body, descriptors in control.receive():
            if kind == Control.CONNECT:
                sockets[int(bytes(body))] = socket.socket(fileno=descriptors[0])
            elif kind == Control.START:
                mesh = Mesh(int(bytes(body)))
                for number, connection in sockets.items():
                    mesh.connect(number, connection)
                return mesh
    return None


def _do_job(mesh: Mesh) -> None:
    """Receive a job from the user's process and do it."""
    try:
        job = _received_job(mesh)
        if job is None:
            return
        _take_over(job.surroundings)
        forwarding.forward(partial(mesh.post_soon, COORDINATOR), job.surroundings.log_levels)
        main, arguments = _unpacked(job)
        del job
        main(mesh, *arguments)
    except BaseException as error:
        forwarding.stop_forwarding()
        mesh.send(COORDINATOR, _failure(error), by_value=True)
    finally:
        forwarding.stop_forwarding()
        forwarding.current.step = None


def _received_job(mesh: Mesh) -> Job | None:
    """Return the first message of the user's process, or None if that has ended the run."""
    job = None
    others: list[tuple[int, object]] = []
    while COORDINATOR in mesh.peers:
        for number, message in mesh.poll(None):
            if isinstance(message, Job):
                job = message
            else:  # workers that have begun before send, too
                others.append((number, message))
        if job is not None:
            break
    mesh.put_back(others)
    return job


def _take_over(surroundings: Surroundings) -> None:
    sys.path[:] = surroundings.path
    if surroundings.folder is not None:
        with suppress(OSError):  # it may have been removed
            os.chdir(surroundings.folder)
    environment = surroundings.environment | ONE_THREAD
    if ARROW_POOL in os.environ:  # Arrow may look for it later
        environment[ARROW_POOL] = os.environ[ARROW_POOL]
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


def _unpacked(job: Job) -> tuple[Callable[..., object], tuple[Any, ...]]:
    try:
        main, arguments, classes = pickle.loads(job.packed, buffers=job.buffers)
    except Exception as error:
        raise EngineError(
            Subject("engine", "local"),
            "functions and objects that a worker process can load",
            f"{type(error).__name__}: {error}",
            "define them in the script itself, or in a module that sys.path leads to",
        ) from error
    # State with objects of the user's script is pickled by the names of their classes.
    for each in classes:
        setattr(sys.modules["__main__"], each.__name__, each)
    return main, arguments


def _failure(error: BaseException) -> Failed:
    """Return a report with the error itself, or its text if it cannot be sent."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Failed(error.with_traceback(None), text)


def _forget_user_modules(lasting: set[str]) -> None:
    """Drop imported modules that are not installed: the user may change them before the next run.

    Their global variables start anew, too, as they do in a process that is not used again.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        is_own = name.partition(".")[0] == "anabranch"
        if name not in lasting and file.endswith(".py") and not is_own and not _is_installed(file):
            del sys.modules[name]


def _is_installed(file: str) -> bool:
    folders = file.split(os.sep)
    is_package = "site-packages" in folders or "dist-packages" in folders
    return is_package or file.startswith(sysconfig.get_path("stdlib") + os.sep)


if __name__ == "__main__":
    # The classes of a module that runs as __main__ could not be sent to another process.
    from anabranch.engines.local import worker  # noqa: PLW0406

    worker.serve(*map(int, sys.argv[1:]))
