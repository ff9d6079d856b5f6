"""The clock of this machine's processors, where the system tells."""

from __future__ import annotations

import re
import threading
import time
from functools import lru_cache
from pathlib import Path

import numpy as np

CPU_INFO = Path("/proc/cpuinfo")
MAX_KHZ = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")


def clock_ghz(info: Path = CPU_INFO, max_khz: Path = MAX_KHZ) -> float | None:
    """The greatest clock of the first processor, or its nominal one; None if nobody says.

    Not its clock at this moment: two files taken minutes apart would seem to be of two machines.
    """
    try:
        return round(int(max_khz.read_text()) / 1e6, 3)
    except (OSError, ValueError):
        pass
    try:
        found = re.search(r"^model name.*@ ([\d.]+)GHz", info.read_text(), re.MULTILINE)
    except OSError:
        return None
    return float(found[1]) if found else None


# Work to measure with: multiplications that keep one core busy and let other threads run.

LANE = 1024
"""Numbers that are multiplied at once: they stay in the nearest cache, and NumPy lets go of the
interpreter for so many."""

_ONES = np.ones(LANE)
_ROUNDS, _TRIES = 30_000, 9
COPY_BYTES = 1 << 27


def multiply(multiplications: float) -> None:
    """Keep one core busy with so many multiplications, rounded to whole lanes."""
    lanes = round(multiplications / LANE)
    if lanes > 0:
        np.multiply.reduce(np.broadcast_to(_ONES, (lanes, LANE)), axis=0)


@lru_cache(maxsize=1)
def nanoseconds_a_multiplication() -> float:
    """Processor time of one multiplication here, by the best of some tries."""
    return min(_processor_ns(_ROUNDS * LANE) for _ in range(_TRIES)) / (_ROUNDS * LANE)


def _processor_ns(multiplications: float) -> int:
    start = time.thread_time_ns()
    multiply(multiplications)
    return time.thread_time_ns() - start


def multiplying_s(multiplications: float, threads: int = 1) -> float:
    """Processor seconds of so many multiplications, on average over threads that start at once.

    Processor time, not time that passes: what others run on this machine is not its speed.
    """
    spent: list[int] = []
    ready = threading.Barrier(threads)

    def work() -> None:
        ready.wait()
        spent.append(_processor_ns(multiplications))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(spent) / len(spent) / 1e9


def copying_mb_s(size: int = COPY_BYTES) -> float:
    """Megabytes a second between a core and its memory: a copy reads each byte and writes it."""
    given = np.ones(size // 8)
    taken = np.empty_like(given)
    np.copyto(taken, given)  # the first touch of memory is the system's doing
    start = time.perf_counter()
    np.copyto(taken, given)
    return 2 * given.nbytes / (time.perf_counter() - start) / 1e6
