"""Words as Markdown: tables, and text that must not be taken for markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Prose, for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def code(text: str) -> str:
    """Something to be typed, for a cell of a table."""
    return f"`{text}`".replace("|", r"\|")
