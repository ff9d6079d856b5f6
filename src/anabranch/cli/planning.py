"""The commands `anabranch plan` and `anabranch compare`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from anabranch.apps import APPS
from anabranch.cli.finding import AsJson, find_flow, read_plan, read_text
from anabranch.cli.own_flows import is_file
from anabranch.cli.plotting import Plot, compare_plot, require_plots, write_picture
from anabranch.engines.local.places import usable_cpus
from anabranch.engines.registry import require_results
from anabranch.errors import AnabranchError, PlanError, Subject, UnknownNameError
from anabranch.flow import Flow
from anabranch.plan.answer import Answer
from anabranch.plan.for_flow import as_plan, problem_for
from anabranch.plan.machine import Machine, with_overheads
from anabranch.plan.machine_file import read_machine
from anabranch.plan.plan import Plan
from anabranch.plan.planners.planner import Problem
from anabranch.plan.planners.registry import PLANNERS, planner
from anabranch.plan.profile import Profile
from anabranch.plan.profile_file import read_profile
from anabranch.plan.shape import shape_of
from anabranch.view.answers import Compared, as_table, as_tree

DEFAULT_PLANNER = "exact"

Target = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE.json|APP", help="A profile, an application, module:flow or file.py:flow."
    ),
]
MachineName = Annotated[
    str | None,
    typer.Option("--machine", help="MACHINE.json, or cores=N; this machine when left out."),
]
ProfileFile = Annotated[
    Path | None,
    typer.Option("--profile", help="For APP: its profile; taken anew when left out."),
]
EngineName = Annotated[
    str, typer.Option("--engine", help="Whose overheads to take from MACHINE.json: local, spark.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="The most threads; twice the cores when left out, and for APP one per region."
    ),
]


def register(cli: typer.Typer) -> None:
    """Add the commands to a command line."""
    cli.command("plan")(show_plan)
    cli.command("compare")(compare)


@dataclass(frozen=True)
class Asked:
    """What planners are asked: a problem, and the flow that it stems from, if it does."""

    problem: Problem
    flow: Flow | None

    @property
    def title(self) -> str:
        """What it is about."""
        name = self.flow.name if self.flow else self.problem.profile.app or "profile"
        return f"{name} on {self.problem.machine.name}"


def show_plan(
    target: Target,
    machine: MachineName = None,
    name: Annotated[
        str | None, typer.Option("--planner", help=f"One of: {', '.join(PLANNERS)}.")
    ] = None,
    threads: Threads = None,
    profile: ProfileFile = None,
    engine: EngineName = "local",
    file: Annotated[
        Path | None, typer.Option("--plan", help="For APP: a plan to check against it.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="For APP: a file for the plan, to run it with.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="For APP: a file for a picture of the plan.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how an application would run, or find the best way to run it.

    An application alone shows its regions as every run can start; with a planner, machine, profile
    or number of threads, and for a profile, a planner finds pipelines, replicas and places.
    """
    wishes = (name, machine, threads, profile)
    if not is_profile(target) and all(wish is None for wish in wishes):
        show_start(target, file, save, svg, as_json)
        return
    if file is not None:
        raise typer.BadParameter("--plan checks a plan; it goes with neither profile nor planner")
    chosen = name or DEFAULT_PLANNER
    find = planner(chosen)
    asked = ask(target, machine, threads, profile, engine)
    if asked.flow is None and (save or svg):
        option = "--save writes" if save else "--svg draws"
        raise typer.BadParameter(f"{option} the plan of an application; a profile has none")
    begun = perf_counter()
    answer = find(asked.problem)
    solve_ms = (perf_counter() - begun) * 1e3
    if asked.flow is not None and (save or svg):
        keep(as_plan(asked.flow, answer), save, svg)
    if as_json:
        typer.echo(
            json.dumps(answer.as_object(asked.problem.profile, chosen, solve_ms), allow_nan=False)
        )
    else:
        typer.echo(as_tree(asked.title, asked.problem, chosen, answer))


def show_start(
    name: str, file: Path | None, save: Path | None, svg: Path | None, as_json: bool
) -> None:
    """The plan that every run can start with, or one from a file that was checked."""
    flow = find_flow(name)
    plan = Plan.sequential(flow)
    if file is not None:
        plan = replace(read_plan(file), shape=shape_of(flow))
        plan.validate(flow)
    keep(plan, save, svg)
    typer.echo(plan.to_json() if as_json else repr(plan))


def keep(plan: Plan, save: Path | None, svg: Path | None) -> None:
    """Write a plan and its picture, where they are wanted."""
    if save is not None:
        save.write_text(plan.to_json() + "\n", encoding="utf-8")
    if svg is not None:
        write_picture(svg, plan.svg())


def compare(
    target: Target,
    machine: MachineName = None,
    threads: Threads = None,
    profile: ProfileFile = None,
    engine: EngineName = "local",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Ask every planner, and show their answers side by side."""
    require_plots(plot)
    asked = ask(target, machine, threads, profile, engine)
    compared: list[Compared] = []
    for name, find in PLANNERS.items():
        begun = perf_counter()
        try:
            answer: Answer | AnabranchError = find(asked.problem)
        except AnabranchError as error:  # one that is refused leaves the others
            answer = error
        compared.append(Compared(name, answer, (perf_counter() - begun) * 1e3))
    if plot is not None:
        write_picture(plot, compare_plot(asked.title, asked.problem.profile, compared))
    if as_json:
        typer.echo(json.dumps([as_object(asked.problem.profile, each) for each in compared]))
    else:
        typer.echo(as_table(asked.title, asked.problem, compared))


def as_object(profile: Profile, compared: Compared) -> dict[str, Any]:
    """One planner's answer, or why it has none."""
    if isinstance(compared.answer, AnabranchError):
        return {"planner": compared.planner, "error": str(compared.answer)}
    return compared.answer.as_object(profile, compared.planner, compared.solve_ms)


def is_profile(target: str) -> bool:
    """Whether a file is meant, not an application."""
    known = target in APPS or ":" in target or is_file(target)
    return target.endswith(".json") or (not known and Path(target).is_file())


def ask(
    target: str,
    machine_name: str | None,
    threads: int | None,
    profile_file: Path | None,
    engine: str,
) -> Asked:
    """The problem that arguments of the command line describe."""
    require_results(engine)
    machine = find_machine(machine_name)
    if is_profile(target):
        if profile_file is not None:
            raise typer.BadParameter("--profile goes with an application, not with a profile")
        found = with_overheads(find_profile(Path(target)), machine, engine)
        return Asked(Problem(found, machine, threads), None)
    flow = find_flow(target)
    profile = find_profile(profile_file) if profile_file is not None else take_profile(flow)
    return Asked(
        problem_for(flow, with_overheads(profile, machine, engine), machine, threads), flow
    )


def find_profile(file: Path) -> Profile:
    """A profile from a file."""
    text = read_text(file, "a profile", "anabranch profile APP --out FILE")
    return read_profile(text, file.name)


def take_profile(flow: Flow) -> Profile:
    """Run each step of a flow by itself."""
    from anabranch.engines.measuring.profiling import profile_flow

    return profile_flow(flow)


def find_machine(name: str | None) -> Machine:
    """A machine from a file or `cores=N`; this one when nothing is given."""
    if name is None:
        return replace(Machine.of_cores(len(usable_cpus())), name="this machine")
    word, equals, number = name.partition("=")
    if equals and word == "cores":
        if not number.isdecimal() or int(number) < 1:
            raise PlanError(
                Subject("machine", name), "cores=N with N of 1 or more", repr(name), "count again"
            )
        return Machine.of_cores(int(number))
    if equals and not Path(name).is_file():
        raise UnknownNameError(
            Subject("machine", name), "MACHINE.json or cores=N", repr(name), "give one of those"
        )
    text = read_text(Path(name), "a machine", "anabranch calibrate --out FILE")
    return read_machine(text, Path(name).name)
