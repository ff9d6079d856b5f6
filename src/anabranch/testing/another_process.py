"""Runs a flow sequentially in a fresh process, for `check`.

The other process has another hash seed, time zone and working directory, and of course another id,
so a step that depends on one of those gives another result there. It runs as many flows as it is
sent, so that a difference can be cut down without starting a process for each attempt.

Flows travel by cloudpickle: functions of `__main__`, of a notebook and inside of other functions
go by value, those of modules by name. The other process imports such modules again, from the same
`sys.path`; it never runs the user's `__main__`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count, cycle
from typing import IO, Self

from anabranch.engines.local.crew import interpreter_flags
from anabranch.errors import AnabranchError, EngineError, Subject
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import collect
from anabranch.testing.compare import Recorded, difference, run_sequential_recorded
from anabranch.testing.result import RunResult

TIME_LIMIT_S = 60.0
TIME_LIMIT_S_PER_ROW = 0.1
HASH_SEEDS = 2**32
ZONES = {"ANA-13:45": -49_500, "ANA+9:30": 34_200}
"""Seconds west of Greenwich. Most dates differ in one of them from those of any other time zone."""
COMMAND = "from anabranch.testing.another_process import serve; serve()"


class Unsendable(Exception):
    """A flow cannot be sent to another process, or that one lacks what the flow needs."""


@dataclass(frozen=True)
class Surroundings:
    """Properties of a process that a result must not depend on.

    Attributes:
        hash_seed: Decides the order of a set of texts.
        time_zone: In the form of the variable TZ; None for the time zone of this process.
        folder: The working directory; None for the one of this process.
    """

    hash_seed: int
    time_zone: str | None = None
    folder: str | None = None

    def __str__(self) -> str:
        """Name the properties in a form that can be tried by hand."""
        return (
            f"another process (hash seed: PYTHONHASHSEED={self.hash_seed}, "
            f"time zone: TZ={self.time_zone}, another working directory)"
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of a process with this hash seed and time zone."""
        paths = [os.path.abspath(path) for path in sys.path]
        changed = {"PYTHONHASHSEED": str(self.hash_seed), "PYTHONPATH": os.pathsep.join(paths)}
        if self.time_zone is not None:
            changed["TZ"] = self.time_zone
        return os.environ | changed


def other_surroundings(seed: int, folder: str) -> Iterator[Surroundings]:
    """Yield surroundings without end that have nothing in common with this process.

    Example:
        >>> next(other_surroundings(0, "empty/")).hash_seed == own_hash_seed()
        False
    """
    zones = [z for z, west_s in ZONES.items() if west_s not in (time.timezone, time.altzone)]
    seeds = ((seed + n) % HASH_SEEDS for n in count(1))
    others = (s for s in seeds if s != own_hash_seed())
    for hash_seed, zone in zip(others, cycle(zones), strict=False):
        yield Surroundings(hash_seed, zone, folder)


def own_hash_seed() -> int | None:
    """Return the hash seed of this process, if it has been given one."""
    given = os.environ.get("PYTHONHASHSEED", "")
    return int(given) if given.isdecimal() else None


class OtherProcess:
    """A fresh process that runs flows one by one; it starts with the first and is killed at exit.

    Example:
        >>> from anabranch.apps import word_count
        >>> with OtherProcess(Surroundings(hash_seed=1)) as other:
        ...     result, _ = other.run(word_count.build(text="a b a"))
        >>> max(result.rows("out"), key=lambda row: row["n"])
        {'word': 'a', 'n': 2}
    """

    def __init__(self, surroundings: Surroundings, time_limit_s: float = TIME_LIMIT_S) -> None:
        """Hold what it is started with, and how long it may take for a flow."""
        self.surroundings, self.time_limit_s = surroundings, time_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._begun: dict[Flow, Future[Recorded]] = {}
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Take a log and a thread that waits for answers."""
        self._log: IO[bytes] = self._resources.enter_context(tempfile.TemporaryFile())
        self._waiting = self._resources.enter_context(ThreadPoolExecutor(1))
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the process whatever it does, and release everything else."""
        self._resources.close()

    def begin(self, flow: Flow) -> None:
        """Run a flow in the background; `run` of the same flow then takes that result."""
        self._begun[flow] = self._submit(flow)

    def run(self, flow: Flow) -> Recorded:
        """Run a flow there.

        Raises:
            Unsendable: When the flow cannot be sent.
            EngineError: When the process dies or exceeds its time limit.
            Exception: What the flow raised there.
        """
        future = self._begun.get(flow) or self._submit(flow)
        try:
            return future.result(self.time_limit_s)
        except TimeoutError:
            raise _failure(f"no result after {self.time_limit_s:g} s") from None

    def _submit(self, flow: Flow) -> Future[Recorded]:
        try:
            request = _packed(flow)
        except Unsendable as error:
            unsent: Future[Recorded] = Future()
            unsent.set_exception(error)
            return unsent
        if self._process is None:
            self._process = self._started()
            self._resources.callback(_end, self._process)
        return self._waiting.submit(self._exchange, self._process, request)

    def _started(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [sys.executable, *interpreter_flags(), "-P", "-c", COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=self.surroundings.environment(),
                cwd=self.surroundings.folder,
            )
        except OSError as error:
            raise _failure(f"{sys.executable!r}: {error}") from error

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> Recorded:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            answer: Recorded | Exception = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            process.kill()
            self._log.seek(0)
            printed = self._log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise _failure(f"exit code {process.wait()}: {printed}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer


def cause(flow: Flow, fed: Flow, shown: OtherProcess) -> str | None:
    """Name the property of a process that a result depends on.

    One property is changed at a time, each in a process of its own. A twin with all of them alike
    comes first and shows what depends on the process itself.

    Args:
        flow: The flow whose result in another process differs from the one in this process.
        fed: The same flow with the input that shows it.
        shown: The other process.
    """
    known, own = shown.surroundings, own_hash_seed()
    seed = (known.hash_seed + 2) % HASH_SEEDS if own is None else own
    variants = {
        "the process itself, such as its id": known,
        "the hash seed of the process, such as the order of a set": replace(known, hash_seed=seed),
        "the time zone of the process": replace(known, time_zone=None),
        "the working directory of the process": replace(known, folder=None),
    }
    with suppress(EngineError, Unsendable):
        before = _result(shown, fed)
        for name, variant in variants.items():
            with OtherProcess(variant, shown.time_limit_s) as other:
                after = _result(other, fed)
            if before is None or after is None:
                if before is not after:
                    return name
            elif difference(flow, before, after) is not None:
                return name
    return None


def _result(other: OtherProcess, fed: Flow) -> RunResult | None:
    """Return what a flow gave in another process, or None where it raised."""
    try:
        return other.run(fed)[0]
    except (EngineError, Unsendable):
        raise
    except Exception:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # a request that was cut short cannot be flushed
            if pipe is not None:
                pipe.close()


def _failure(got: str) -> EngineError:
    return EngineError(
        Subject("run", "check"),
        "the result of another process",
        got,
        "take fewer rows, or leave other processes out with processes=0",
    )


def _packed(flow: Flow) -> bytes:
    """Return a flow as bytes, without its sinks, which are not written."""
    import cloudpickle

    bare = flow.writing({name: collect() for name in flow.names(Role.SINK)})
    try:
        packed: bytes = cloudpickle.dumps(bare)
    except Exception as error:
        for name in flow.names(Role.OPERATOR):
            try:
                cloudpickle.dumps(flow.graph.steps[name].body)
            except Exception as found:
                raise Unsendable(f"step {name!r}: {_described(found)}") from found
        raise Unsendable(_described(error)) from error
    return packed


def serve() -> None:
    """Answer requests from standard input until it is closed: the other process's main function."""
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as answers:
        # Operators may read and print; neither must get in the way of requests and answers.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        while True:
            try:
                request = pickle.load(requests)
            except EOFError:
                return
            pickle.dump(_answer(request), answers)
            answers.flush()


def _answer(request: bytes) -> Recorded | Exception:
    try:
        flow: Flow = pickle.loads(request)
    except Exception as error:
        return Unsendable(_described(error))
    try:
        return run_sequential_recorded(flow)
    except Exception as error:
        missing = next((e for e in _causes(error) if isinstance(e, ImportError)), None)
        if missing is not None:
            return Unsendable(_described(missing))
        return error if isinstance(error, AnabranchError) else RuntimeError(_described(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
