"""What `profile`, `compare` and `tune` write as pictures, behind their option `--plot`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from anabranch.errors import Subject, UnknownNameError
from anabranch.events import Observation
from anabranch.io.local_paths import local_option
from anabranch.pictures import plots
from anabranch.pictures.boxes import shortened
from anabranch.planning.answer import Answer
from anabranch.planning.profile import Profile
from anabranch.view.plan_report import Compared
from anabranch.view.tuning_report import Round, Rounds

RATE = "thousand tuples/s"

Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="A file for a picture of it, as SVG; takes anabranch[plots].",
        callback=local_option,
    ),
]


def require_plots(file: Path | None) -> None:
    """Raise if a plot is wanted that cannot be drawn: rather now than after the measuring."""
    if file is not None:
        plots.require("--plot")


def write_picture(file: Path, picture: str) -> None:
    """Write a picture, and the folders above it where there are none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UnknownNameError(
            Subject("file", str(file)),
            "a file that can be written",
            error.strerror or str(error),
            "name another",
        ) from error


def profile_plot(name: str, profile: Profile) -> str:
    """What each step costs, its part of the work, and what it passes on."""
    unit = profile.unit or "units of time"
    steps = profile.operators
    passed = [sum(s.selectivity for s in profile.out_of(o.name)) for o in steps]
    passed_on = [p if profile.out_of(o.name) else None for o, p in zip(steps, passed, strict=True)]
    parts = [100 * profile.visits[o.name] * o.cost / profile.work for o in steps]
    return plots.panels(
        f"{name}: its steps, on one thread",
        [shortened(o.name) for o in steps],
        [
            plots.Panel(f"{unit.replace('us', 'µs')} per tuple in", [o.cost for o in steps]),
            plots.Panel("% of the work", parts),
            plots.Panel("tuples out per tuple in", passed_on),
        ],
    )


def compare_plot(title: str, profile: Profile, compared: Sequence[Compared]) -> str:
    """What the plans of several planners promise, and how long each took to find its own."""
    answers = [c.answer if isinstance(c.answer, Answer) else None for c in compared]
    unit = f" per {profile.unit.replace('us', 'µs')}" if profile.unit else ""
    times = [c.solve_ms if answer else None for c, answer in zip(compared, answers, strict=True)]
    return plots.panels(
        f"{title}: planners",
        [c.planner if answer else f"{c.planner}: no plan"
         for c, answer in zip(compared, answers, strict=True)],
        [
            plots.Panel(f"tuples in{unit}", [a.taken_in(profile) if a else None for a in answers]),
            plots.Panel("ms to find it", times, log=True),
        ],
    )  # fmt: skip


def tune_plot(title: str, rounds: Rounds) -> str:
    """The rate while a policy was at work: as seen, and of each round; plan changes are marked."""
    all_rounds = rounds.rounds
    series = {
        "seen": [(seen.at_s, _rate_per_s(seen) / 1e3) for one in all_rounds for seen in one.seen],
        "round, settled": _levels(rounds, all_rounds),
    }
    marks = [(now.began_s, _change(before, now)) for before, now in pairwise(all_rounds)]
    return plots.lines(title, "second", RATE, series, marks=marks)


def _levels(rounds: Rounds, all_rounds: Sequence[Round]) -> list[tuple[float, float]]:
    """For each round its rate, from its beginning to the last that was seen of it."""
    levels = []
    for one in all_rounds:
        figures = rounds.figures(one)
        if figures is not None:
            rate = figures.rate_per_s / 1e3
            levels += [(one.began_s, rate), (one.seen[-1].at_s, rate)]
    return levels


def _rate_per_s(seen: Observation) -> float:
    seconds = seen.times.total_s + seen.times.commit_s
    return seen.rows_in / seconds if seconds else 0.0


def _change(before: Round, now: Round) -> str:
    """A change of plan in a few words; the report has them all."""
    first, *more = before.plan.diff(now.plan) or ["the same plan"]
    others = f" and {len(more)} more" if more else ""
    return f"{now.number}: {first.partition(',')[0]}{others}"
