"""The machine that is measured on, and how much of it is ours: others may be at work, too."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from threading import Thread

import numpy as np

SPIN_S = 0.4


@dataclass(frozen=True)
class Machine:
    """Where it was measured.

    Attributes:
        cores: Cores that this process may use.
        system: What it runs on.
        python: Version of Python.
        free_share: The part of the cores that a program gets which wants them all: the smaller one
            of before and after.
    """

    cores: int
    system: str
    python: str
    free_share: float

    @staticmethod
    def here(free_share: float) -> Machine:
        """This one."""
        system = f"{platform.system()} {platform.machine()}"
        return Machine(cores_here(), system, platform.python_version(), free_share)


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def free_share(seconds: float = SPIN_S) -> float:
    """The part of all cores that this process gets when it asks for all of them.

    Example:
        >>> 0 < free_share(0.05) <= 1
        True
    """
    spent: list[float] = []

    def spin() -> None:
        numbers = np.linspace(0.0, 1.0, 100_000)
        until = time.monotonic() + seconds
        begun = time.thread_time()
        while time.monotonic() < until:
            numbers = np.sin(numbers)  # without the interpreter lock
        spent.append(time.thread_time() - begun)

    started_s = time.monotonic()
    threads = [Thread(target=spin) for _ in range(cores_here())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return min(1.0, sum(spent) / (time.monotonic() - started_s) / len(threads))
