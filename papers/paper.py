"""A paper's reproduction: what is measured, what the paper claims, and how both are shown.

Each paper's folder gives one value, a `Paper`. The code here is the same for all of them: it
measures with progress, judges the claims, and writes JSON, a Markdown page, pictures and text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import msgspec

from papers.claims import Claim, Machine, cores_here
from papers.processor_time import Look, least_free_share

Effort = TypeVar("Effort")
Results = TypeVar("Results")
Tell: TypeAlias = Callable[[str], None]
"""Gets a line about what is measured next."""


@dataclass(frozen=True)
class Picture:
    """A picture of a table.

    Attributes:
        file: Its file name.
        svg: Draws it; needs matplotlib.
    """

    file: str
    svg: Callable[[], str]


@dataclass(frozen=True)
class Table:
    """A titled table.

    Attributes:
        title: What it shows.
        note: What a reader has to know.
        header: Names of the columns.
        rows: Cells as text.
        picture: Follows the table on the page.
    """

    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    picture: Picture | None = None

    def text(self) -> str:
        """Return aligned columns.

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
        """Return a section with the table and its picture.

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
        shown = ["", f"![{self.title}]({self.picture.file})"] if self.picture else []
        return "\n".join([f"## {self.title}", "", self.note, "", *rows, *shown])


@dataclass(frozen=True)
class Reproduction(Generic[Effort, Results]):
    """A finished reproduction.

    Attributes:
        effort: How much was measured.
        machine: Where.
        seconds: How long it took.
        results: What was computed and measured.
        claims: The paper's claims with verdicts.
    """

    effort: Effort
    machine: Machine
    seconds: float
    results: Results
    claims: list[Claim]


@dataclass(frozen=True)
class Paper(Generic[Effort, Results]):
    """What a paper's folder must provide.

    Attributes:
        name: The argument of `anabranch reproduce`, which file names begin with.
        title: The short name of the paper.
        citation: Full title, authors, venue and year.
        beside: What of this library the claims stand beside.
        full: How much to measure.
        quick: How much to measure in about a minute.
        measure: Measures, and reports what comes next.
        results: The type of what `measure` returns: a dataclass that msgspec can read from JSON.
        claims: Judges the results of one machine by the rules of the paper.
        tables: The tables of the page, without that of the claims.
        differences: What differs from the paper's setting, an entry each.
        reasons: Why some claims do not come out, an entry each.
        virtual: Nothing depends on the machine: everything happens in virtual time.
        draws: Some tables have pictures, for which matplotlib is needed.
    """

    name: str
    title: str
    citation: str
    beside: str
    full: Effort
    quick: Effort
    measure: Callable[[Effort, Tell], Results]
    results: type[Results]
    claims: Callable[[Results, Machine], list[Claim]]
    tables: Callable[[Reproduction[Effort, Results]], Sequence[Table]]
    differences: Callable[[Reproduction[Effort, Results]], Sequence[str]]
    reasons: Sequence[str] = ()
    virtual: bool = False
    draws: bool = True

    def reproduce(self, effort: Effort, tell: Tell) -> Reproduction[Effort, Results]:
        """Measure everything, then judge the claims."""
        looks = [Look.now()]

        def begin(section: str) -> None:
            looks.append(Look.now())
            tell(section)

        results = self.measure(effort, begin)
        looks.append(Look.now())
        free = 1.0 if self.virtual else least_free_share(looks, cores_here())
        machine, seconds = Machine.here(free), looks[-1].at_s - looks[0].at_s
        return Reproduction(effort, machine, seconds, results, self.claims(results, machine))

    def to_json(self, found: Reproduction[Effort, Results]) -> str:
        """Return one JSON object: the parts of the reproduction beside those of its results."""
        parts = asdict(found)
        claims, results = parts.pop("claims"), parts.pop("results")
        return json.dumps({"paper": self.name, **parts, **results, "claims": claims})

    def from_json(self, text: str) -> Reproduction[Effort, Results]:
        """Read what `to_json` has written."""
        stored = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return Reproduction(
            msgspec.json.decode(stored["effort"], type=type(self.full)),
            msgspec.json.decode(stored["machine"], type=Machine),
            msgspec.json.decode(stored["seconds"], type=float),
            msgspec.json.decode(text, type=self.results),
            msgspec.json.decode(stored["claims"], type=list[Claim]),
        )

    def all_tables(self, found: Reproduction[Effort, Results]) -> list[Table]:
        """Return the claims first, then what they rest on."""
        return [claims_table(found.claims), *self.tables(found)]

    def text(self, found: Reproduction[Effort, Results]) -> str:
        """Return all tables for a terminal."""
        return "\n\n".join([self._summary(found), *(t.text() for t in self.all_tables(found))])

    def page(self, found: Reproduction[Effort, Results]) -> str:
        """Return all tables as a Markdown page."""
        parts = [
            f"# {self.title}, reproduced",
            f"{self.citation}\nThe paper's claims beside {self.beside}. Written by `anabranch "
            f"reproduce {self.name} --out DIR`; every verdict follows from the rule beside it.",
            self._summary(found),
            _bullets("What differs from the paper's setting:", self.differences(found)),
        ]
        if self.reasons:
            why = "Why some claims do not come out, as far as the journals of the runs tell:"
            parts.append(_bullets(why, self.reasons))
        return "\n\n".join([*parts, *(t.markdown() for t in self.all_tables(found))]) + "\n"

    def write(self, found: Reproduction[Effort, Results], folder: Path) -> None:
        """Write the numbers, the page and its pictures to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{self.name}.json": self.to_json(found) + "\n"}
        files[f"{self.name}.md"] = self.page(found)
        files |= {picture.file: picture.svg() for picture in pictures(self.tables(found))}
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")

    def _summary(self, found: Reproduction[Effort, Results]) -> str:
        counts = Counter(claim.verdict.value for claim in found.claims)
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
        machine, seconds = found.machine, found.seconds
        where = (
            f"Simulated in {seconds:.0f} s, in virtual time: the same numbers on every machine."
            if self.virtual
            else f"Computed and measured in {seconds:.0f} s on {machine.cores} cores "
            f"({machine.system}, Python {machine.python}), {machine.free_share:.0%} of which "
            "other programs left free."
        )
        return f"{len(found.claims)} claims: {verdicts}.\n{where}"


def claims_table(claims: Sequence[Claim]) -> Table:
    """Return every claim with its verdict."""
    return Table(
        "Claims",
        "What the paper says, what came out here, and the rule or reason behind the verdict.",
        ("where", "paper", "here", "verdict", "rule or reason"),
        [(c.where, c.paper, c.ours, c.verdict.value, c.rule) for c in claims],
    )


def pictures(tables: Iterable[Table]) -> list[Picture]:
    """Return the pictures of tables."""
    return [table.picture for table in tables if table.picture is not None]


def _bullets(title: str, entries: Sequence[str]) -> str:
    return "\n".join([title, "", *(f"- {entry}" for entry in entries)])
