"""Tables as plain text and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.reproduce.claims import Claim
from anabranch.reproduce.machine import Machine


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


def claims_table(claims: Sequence[Claim]) -> Table:
    """Every claim with its verdict."""
    return Table(
        "Claims",
        "What the paper says, what came out here, and the rule or reason behind the verdict.",
        ("where", "paper", "here", "verdict", "rule or reason"),
        [(c.where, c.paper, c.ours, c.verdict.value, c.rule) for c in claims],
    )


def summary(claims: Sequence[Claim], machine: Machine, seconds: float) -> str:
    """How many claims came out how, where and how long it took."""
    counts = Counter(claim.verdict.value for claim in claims)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    return (
        f"{len(claims)} claims: {told}.\n"
        f"Computed and measured in {seconds:.0f} s on {machine.cores} cores "
        f"({machine.system}, Python {machine.python}), {machine.free_share:.0%} of which other "
        "programs left free."
    )
