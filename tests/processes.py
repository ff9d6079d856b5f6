"""Processes that tests send signals to."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


def start_process(
    command: Sequence[str | Path], *, ignores_sigint: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """Start a process that inherits SIGINT as ignored, or not, however the tests were started.

    A shell starts what runs in the background of a script, or under `nohup` there, with SIGINT
    ignored, and the tests with it.
    """
    inherited = signal.SIG_IGN if ignores_sigint else signal.default_int_handler
    before = signal.signal(signal.SIGINT, inherited)
    try:
        return subprocess.Popen(command, text=True, **options)
    finally:
        signal.signal(signal.SIGINT, before)


def is_running(pid: int) -> bool:
    """Return whether a process is there, and has not ended without anybody asking for its code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def in_a_fresh_process(function: Callable[[], Result]) -> Result:
    """Return what a module's function returns in a process that did nothing before."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply_async(function).get(timeout=120)
