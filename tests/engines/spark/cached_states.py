"""Sizes, and what lies in a directory, for the tests of the state cache."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

MEGABYTE = 1 << 20
LARGE = 1 << 17  # bytes, and more than what is gathered in one file


def large(fill: int) -> np.ndarray:
    return np.full(LARGE // 8, fill, np.int64)


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in files(directory))


def maps_of(directory: Path) -> list[str]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in maps if str(directory) in line]


def open_files_of(directory: Path) -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since it was listed
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in names if name.startswith(str(directory))]
