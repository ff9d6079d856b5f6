"""A Python without the library, as PATH or a cluster's workers may have one."""

from __future__ import annotations

import sys
from pathlib import Path


def bare_python(path: Path) -> Path:
    """Write a program that is this interpreter without its installed packages."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path
