"""The tutorial's Python can be pasted into an interactive Python, which has rules of its own."""

from __future__ import annotations

import code
from pathlib import Path
from types import CodeType

import pytest

from tests.docs.test_pages import DOCS, TUTORIAL
from tests.pages import blocks_of


class Typed(code.InteractiveConsole):
    """Takes lines as `python` does, runs nothing, and keeps what it cannot take."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []

    def runcode(self, code: CodeType) -> None:
        """Leave it: other tests run it."""

    def showsyntaxerror(self, filename: str | None = None, **more: object) -> None:
        """Keep the lines up to the one that does not fit."""
        self.refused.append("\n".join(self.buffer))


def refused(text: str) -> list[str]:
    """What an interactive Python does not take of a block that is pasted."""
    console = Typed()
    for line in (*text.splitlines(), ""):
        console.push(line)
    return console.refused


def blocks_to_type(page: Path) -> list[str]:
    blocks = blocks_of(page)
    return [block.text for block in blocks if block.language == "python" and not block.title]


@pytest.mark.parametrize("name", TUTORIAL)
def test_python_of_the_tutorial_can_be_pasted(name):
    blocks = blocks_to_type(DOCS / "tutorial" / f"{name}.md")
    assert blocks
    assert [text for text in blocks if refused(text)] == []


def test_a_line_right_below_an_indented_one_is_refused():
    assert refused("for n in range(3):\n    print(n)\nprint('done')\n")
    assert not refused("for n in range(3):\n    print(n)\n\nprint('done')\n")


def test_a_blank_line_within_a_function_is_refused():
    assert refused("def f():\n    a = 1\n\n    return a\n")
