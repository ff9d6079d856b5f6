"""The command `anabranch reproduce PAPER`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.errors import Subject, UnknownNameError, nearest
from anabranch.io.local_paths import local_option
from anabranch.pictures import plots


@dataclass(frozen=True)
class Paper:
    """What a paper's modules give.

    Attributes:
        full: How much to measure.
        quick: How much to measure in a minute.
        reproduce: Measures so much, and tells what comes next; what it gives has `as_object`.
        page: The same as a Markdown page.
        text: The same for a terminal.
        pictures: SVG texts by file name, which the page refers to; None if it refers to none.
    """

    full: Any
    quick: Any
    reproduce: Callable[..., Any]
    page: Callable[[Any], str]
    text: Callable[[Any], str]
    pictures: Callable[[Any], Mapping[str, str]] | None = None


def _stretch() -> Paper:
    from anabranch.reproduce.stretch import page as looks
    from anabranch.reproduce.stretch import reproduction as paper

    return Paper(paper.FULL, paper.QUICK, paper.reproduce, looks.page, looks.text)


def _briskstream() -> Paper:
    from anabranch.reproduce.briskstream import page as looks
    from anabranch.reproduce.briskstream import reproduction as paper
    from anabranch.reproduce.briskstream.pictures import pictures

    return Paper(paper.FULL, paper.QUICK, paper.reproduce, looks.page, looks.text, pictures)


def _pipelined_fission() -> Paper:
    from anabranch.reproduce.pipelined_fission import page as looks
    from anabranch.reproduce.pipelined_fission import reproduction as paper

    return Paper(paper.FULL, paper.QUICK, paper.reproduce, looks.page, looks.text, looks.pictures)


def _joker() -> Paper:
    from anabranch.reproduce.joker import page as looks
    from anabranch.reproduce.joker import reproduction as paper
    from anabranch.reproduce.joker.pictures import pictures

    return Paper(paper.FULL, paper.QUICK, paper.reproduce, looks.page, looks.text, pictures)


def _stepwise() -> Paper:
    from anabranch.reproduce.stepwise import page as looks
    from anabranch.reproduce.stepwise import reproduction as paper

    return Paper(paper.FULL, paper.QUICK, paper.reproduce, looks.page, looks.text, looks.pictures)


PAPERS: Mapping[str, Callable[[], Paper]] = {
    "stretch": _stretch,
    "pipelined-fission": _pipelined_fission,
    "briskstream": _briskstream,
    "joker": _joker,
    "stepwise": _stepwise,
}
"""Their modules are imported when they are asked for: they bring engines and solvers along."""


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("reproduce")(reproduce_paper)


def reproduce_paper(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"One of: {', '.join(PAPERS)}.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute instead of several, and rougher.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the numbers as JSON, a page to read and its pictures.",
            callback=local_option,
        ),
    ] = None,
) -> None:
    """Show a paper's claims beside what this machine does."""
    if paper not in PAPERS:
        raise UnknownNameError(
            Subject("argument", "paper"),
            f"a paper among {list(PAPERS)}",
            repr(paper),
            nearest(paper, PAPERS),
        )
    chosen = PAPERS[paper]()
    if out is not None and chosen.pictures is not None:
        plots.require()  # rather now than after minutes of measuring
    effort = chosen.quick if quick else chosen.full
    found = chosen.reproduce(effort, tell=lambda words: typer.echo(f"… {words}", err=True))
    numbers = json.dumps(found.as_object())
    if out is not None:
        _write(out, paper, numbers, chosen, found)
    typer.echo(numbers if as_json else chosen.text(found))


def _write(out: Path, name: str, numbers: str, paper: Paper, found: Any) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(numbers + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(paper.page(found), encoding="utf-8")
    for file, picture in (paper.pictures(found) if paper.pictures else {}).items():
        (out / file).write_text(picture, encoding="utf-8")
