"""Tables as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A titled table.

    Attributes:
        title: What it shows.
        note: What has to be known to read it.
        header: Names of the columns.
        rows: Cells as text.
    """

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self) -> str:
        """Aligned columns.

        Example:
            >>> print(Table("Sizes", "In metres.", ("what", "size"), [("house", "10")]).text())
            Sizes
            In metres.
            <BLANKLINE>
            what   size
            house  10
        """
        cells = [self.header, *self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, self.note, "", *lines])

    def markdown(self) -> str:
        """A section with a table.

        Example:
            >>> print(Table("Sizes", "In metres.", ("what", "size"), [("house", "10")]).markdown())
            ## Sizes
            <BLANKLINE>
            In metres.
            <BLANKLINE>
            | what | size |
            |---|---|
            | house | 10 |
        """
        rows = ["| " + " | ".join(row) + " |" for row in (self.header, *self.rows)]
        rows.insert(1, "|" + "---|" * len(self.header))
        return "\n".join([f"## {self.title}", "", self.note, "", *rows])
