"""The commands `anabranch plan` and `anabranch compare`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from anabranch.cli.finding import (
    AsJson,
    Inputs,
    Profiled,
    ProfileFile,
    Settings,
    Target,
    find_flow,
    find_profiled,
    is_profile,
    read_plan,
    read_text,
)
from anabranch.cli.plotting import Plot, compare_plot, require_plots, write_picture
from anabranch.engines.cpu_topology import usable_cpus
from anabranch.engines.registry import require_results
from anabranch.errors import AnabranchError, PlanError, Subject, UnknownNameError
from anabranch.flow import Flow
from anabranch.io.local_paths import local_option
from anabranch.planning.answer import Answer
from anabranch.planning.flow_problem import as_plan, problem_for
from anabranch.planning.machine import Machine, read_machine, with_overheads
from anabranch.planning.plan import Plan
from anabranch.planning.planners.planner import Problem
from anabranch.planning.planners.registry import PLANNERS, planner
from anabranch.planning.profile import Profile
from anabranch.planning.regions import shape_of
from anabranch.planning.serial import SerialWork, serial_of, serial_work
from anabranch.view.plan_report import Compared, as_table, as_tree
from anabranch.view.serial_report import serial_lines

DEFAULT_PLANNER = "exact"

MachineName = Annotated[
    str | None,
    typer.Option("--machine", help="MACHINE.json, or cores=N; this machine when left out."),
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

    @property
    def serial(self) -> SerialWork:
        """Return the work that no plan can divide."""
        return serial_of(self.problem.profile, shape_of(self.flow) if self.flow else None)


def show_plan(
    target: Target,
    machine: MachineName = None,
    name: Annotated[
        str | None, typer.Option("--planner", help=f"One of: {', '.join(PLANNERS)}.")
    ] = None,
    threads: Threads = None,
    profile: ProfileFile = None,
    engine: EngineName = "local",
    input: Inputs = None,
    settings: Settings = None,
    file: Annotated[
        Path | None, typer.Option("--plan", help="For APP: a plan to check against it.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="For APP: a file for the plan, to run it with.", callback=local_option),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", help="For APP: a file for a picture of the plan.", callback=local_option
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how an application would run, or find the best way to run it.

    An application alone shows its regions as every run can start; with a planner, machine, profile
    or number of threads, and for a profile, a planner finds pipelines, replicas and places. Below
    the plan stands what is serial whatever the plan says, why, and how many cores that lets help.
    """
    wishes = (name, machine, threads, profile)
    if not is_profile(target) and all(wish is None for wish in wishes):
        show_start(find_flow(target, input, settings), file, save, svg, as_json)
        return
    if file is not None:
        raise typer.BadParameter("--plan checks a plan; it goes with neither profile nor planner")
    chosen = name or DEFAULT_PLANNER
    find = planner(chosen)
    require_results(engine)
    place = find_machine(machine)
    asked = ask(find_profiled(target, profile, input, settings), place, threads, engine)
    if asked.flow is None and (save or svg):
        option = "--save writes" if save else "--svg draws"
        raise typer.BadParameter(f"{option} the plan of an application; a profile has none")
    begun = perf_counter()
    answer = find(asked.problem)
    solve_ms = (perf_counter() - begun) * 1e3
    if asked.flow is not None and (save or svg):
        keep(as_plan(asked.flow, answer), save, svg)
    if as_json:
        told = answer.as_object(asked.problem.profile, chosen, solve_ms)
        typer.echo(json.dumps(told | {"serial": asked.serial.as_object()}, allow_nan=False))
    else:
        typer.echo(as_tree(asked.title, asked.problem, chosen, answer))
        typer.echo("\n".join(serial_lines(asked.serial)))


def show_start(
    flow: Flow, file: Path | None, save: Path | None, svg: Path | None, as_json: bool
) -> None:
    """The plan that every run can start with, or one from a file that was checked."""
    plan, serial = Plan.sequential(flow), serial_work(shape_of(flow))
    if file is not None:
        plan = replace(read_plan(file), shape=shape_of(flow))
        plan.validate(flow)
    keep(plan, save, svg)
    if as_json:
        told = json.loads(plan.to_json()) | {"serial": serial.as_object()}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo("\n".join([repr(plan), *serial_lines(serial)]))


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
    input: Inputs = None,
    settings: Settings = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Ask every planner, and show their answers side by side."""
    require_plots(plot)
    require_results(engine)
    place = find_machine(machine)
    asked = ask(find_profiled(target, profile, input, settings), place, threads, engine)
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


def ask(profiled: Profiled, machine: Machine, threads: int | None, engine: str) -> Asked:
    """The problem that arguments of the command line describe."""
    profile, flow = with_overheads(profiled.profile, machine, engine), profiled.flow
    if flow is None:
        return Asked(Problem(profile, machine, threads), None)
    return Asked(problem_for(flow, profile, machine, threads), flow)


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
