"""A page of the site, followed from top to bottom as a reader would.

```python blocks run in one namespace; with a title they are files, which are written instead. In a
```console block each `$` line is a command for bash. Everything happens in the current folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pages import Block, blocks_of, commands_of, run_python

LONGEST_S = 400


@dataclass(frozen=True)
class Ran:
    """Something that a page tells to do, what came of it, and what the page shows."""

    block: Block
    printed: str
    shown: str | None


def follow(page: Path, name: str) -> Iterator[Ran]:
    """Do what a page says, step by step."""
    namespace: dict[str, Any] = {"__name__": name}
    for block in blocks_of(page):
        if block.marked_not_run:
            continue
        if block.title is not None:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                run_python(block, name, namespace)
            yield Ran(block, printed.getvalue(), block.shows)
        elif block.language == "console":
            for command, output in commands_of(block):
                yield Ran(block, typed(command), output)


def typed(command: str) -> str:
    """What a command prints; it must succeed."""
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": scripts + os.pathsep + os.environ.get("PATH", "")}
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
