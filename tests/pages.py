"""Documents whose code runs: their blocks, the commands in them, and what is shown below."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
COMMAND = re.compile(r"^\$ ", re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->$")
BELITTLING = re.compile(r"\b(?:simply|just|obviously)\b", re.IGNORECASE)
ANYTHING = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """Where its first line stands in the page, from 1."""
    shows: str | None
    """The ```text block that follows, with nothing but blank lines between."""
    title: str | None
    """The file that it is."""
    marked_not_run: bool
    """Whether the line above says that it is not run, and why."""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    blocks = []
    for fence, after in zip_longest(fences, fences[1:]):
        adjacent = after and after[1] == "text" and not text[fence.end() : after.start()].strip()
        title = TITLE.search(fence[2])
        blocks.append(
            Block(
                language=fence[1],
                text=fence[3],
                line=text.count("\n", 0, fence.start()) + 2,
                shows=after[3] if after and adjacent else None,
                title=title[1] if title else None,
                marked_not_run=bool(NOT_RUN.search(text[: fence.start()].rstrip())),
            )
        )
    return blocks


def run_python(block: Block, page: str, namespace: dict[str, Any]) -> None:
    """Run a block in the namespace of its page."""
    # Blank lines in front make a traceback point into the page.
    code = compile("\n" * (block.line - 1) + block.text, page, "exec", dont_inherit=True)
    exec(code, namespace)


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Each command of a ```console block, with the output that the page shows."""
    parts = (part.partition("\n") for part in COMMAND.split(block.text)[1:])
    return [(command, output) for command, _, output in parts]


def agrees(printed: str, shown: str) -> bool:
    """Whether a page shows what was printed; `…` stands for whatever differs between runs.

    >>> agrees("3 rows in 0.17 s", "3 rows in … s"), agrees("4 rows in 0.17 s", "3 rows in … s")
    (True, False)
    """
    pattern = ".*?".join(re.escape(part) for part in shown.split(ANYTHING))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def belittling_words(page: Path) -> list[str]:
    """Words that tell the reader that something is easy."""
    return BELITTLING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
