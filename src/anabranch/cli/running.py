"""The commands `anabranch run` and `anabranch rollback`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anabranch.adapt.registry import POLICIES
from anabranch.apps import APPS
from anabranch.cli.finding import AppName, AsJson, Inputs, Settings, find_flow, read_plan
from anabranch.cli.outcomes import WRONG_RESULT
from anabranch.cli.planning import find_machine
from anabranch.cli.results import Results, unread
from anabranch.cli.stopping import STOPS, again, code_of
from anabranch.cli.watching import (
    Address,
    DashboardPort,
    JournalPath,
    MetricsAddress,
    MetricsPort,
    PageControls,
    Token,
    Wanted,
    watching,
)
from anabranch.engines.handle import Result, Run
from anabranch.errors import AnabranchError, SourceError, Subject, UnknownNameError
from anabranch.io.local_paths import local_option
from anabranch.running import rollback, start
from anabranch.view.answers import counted
from anabranch.view.outcome import as_object, in_words, place_of
from anabranch.view.progress import Progress


def register(cli: typer.Typer) -> None:
    """Add the commands to a command line."""
    cli.command("run")(run_app)
    cli.command("rollback")(roll_back)


def roll_back(
    name: AppName,
    checkpoint: Annotated[str, typer.Option(help="The folder of the checkpoint.")],
    to: Annotated[int, typer.Option(min=0, help="The version to go on from.")],
    input: Inputs = None,
    settings: Settings = None,
) -> None:
    """Go back to an earlier version of a checkpoint.

    The next run goes on from there.
    """
    rollback(find_flow(name, input, settings), checkpoint, to)
    typer.echo(f"{checkpoint} is at version {to}; the next run goes on from there")


def run_app(
    name: AppName,
    engine: Annotated[
        str, typer.Option(help="What runs it: spark, or local, the threads of this process.")
    ] = "spark",
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="A plan to start with, from `plan --json` with the same --input and --set.",
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=0, help="Read no more rows of each source than this.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long, not counting the start.")
    ] = None,
    input: Inputs = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the results, as Parquet; one in it for each of several, and one for "
            "rows that are set aside.",
            callback=local_option,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="For --out: replace what an earlier run wrote.")
    ] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder to go on from after a stop or a crash.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"Who tunes it meanwhile: {', '.join(POLICIES)} or none; by default auto, and "
            "none with --plan."
        ),
    ] = None,
    machine: Annotated[
        Path | None, typer.Option(help="For a policy: what `anabranch calibrate` measured here.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="For spark: its master URL; embedded Spark when left out.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="For spark: a setting of its session, such as spark.ui.enabled=true; may be "
            "repeated.",
        ),
    ] = None,
    dashboard: DashboardPort = None,
    metrics: MetricsPort = None,
    metrics_address: MetricsAddress = "127.0.0.1",
    address: Address = "127.0.0.1",
    token: Token = None,
    controls: PageControls = True,
    journal: JournalPath = None,
    as_json: AsJson = False,
) -> None:
    """Run an application, show how it goes, and say what came of it."""
    if rows is not None and seconds is not None:
        raise typer.BadParameter("give --rows or --seconds, not both")
    endless = rows is not None or seconds is not None
    flow = find_flow(name, input, settings, endless)
    plan = read_plan(plan_file) if plan_file is not None else None
    results = Results(name, flow, engine, out, overwrite, resumes=checkpoint is not None)
    progress = Progress(name)
    begin = partial(
        start,
        results.flow,
        engine=engine,
        plan=plan,
        checkpoint=checkpoint,
        rows=rows,
        policy=policy,
        master=master,
        conf=spark_settings(engine, conf or ()),
        machine=None if machine is None else find_machine(str(machine)),
    )
    wanted = Wanted(journal, dashboard, metrics, address, token, metrics_address, controls)
    if as_json:
        with redirect_stdout(sys.stderr), watching(wanted) as watchers:  # sinks may print
            handle = begin(listener=watchers.listeners)
            watchers.control(handle)
            stopped = wait_for(handle, seconds)
        result = handle.result()
        said = {"found": results.found(), "unread": list(unread(flow, result))}
        typer.echo(json.dumps(as_object(name, result, flow) | said))
    else:
        with (
            watching(wanted, progress.hear) as watchers,
            progress.live(Console(stderr=True)),
        ):
            handle = begin(listener=watchers.listeners)
            watchers.control(handle)
            stopped = wait_for(handle, seconds)
        if lines := results.found():
            typer.echo("\n".join(lines) + "\n")
        typer.echo(in_words(handle.result(), flow))
    if stopped:
        command = shlex.join(["anabranch", *sys.argv[1:]])
        how = f"go on with: {command}" if checkpoint else "with --checkpoint DIR it could go on"
        typer.echo(f"interrupted; {how}", err=True)
        raise typer.Exit(stopped)
    if lost := unread(flow, handle.result()):
        for source, step in lost.items():
            typer.echo(f"error: {nothing_read(name, source, step, handle.result())}", err=True)
        raise typer.Exit(WRONG_RESULT)


def nothing_read(app: str, source: str, step: str, result: Result) -> SourceError:
    """The error for a source of which every row was set aside."""
    first = result.first_skipped[step]
    rows = f"{counted(result.skipped[step], 'row')}, all of which were set aside at {step!r}"
    columns = f"`anabranch apps {app}` lists the columns" if app in APPS else "compare the columns"
    return SourceError(
        source,
        "rows that can be read",
        f"{rows}; the first is {place_of(first)}{first.why}",
        f"{columns} and types that it reads",
    )


def spark_settings(engine: str, given: Sequence[str]) -> dict[str, str]:
    """Settings as Spark takes them; a name that it would overlook is refused.

    Example:
        >>> spark_settings("spark", ["spark.ui.enabled=true", "spark.ui.port=4050"])
        {'spark.ui.enabled': 'true', 'spark.ui.port': '4050'}
    """
    if given and engine != "spark":
        raise UnknownNameError(
            Subject("option", "--conf"),
            "the engine spark",
            engine,
            "leave --conf out, or run it on spark",
        )
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("spark.") or name == "spark.":
            raise UnknownNameError(
                Subject("option", "--conf"),
                "NAME=VALUE with a name of Spark's, such as spark.ui.enabled=true",
                repr(setting),
                "give the whole name; one for Hadoop begins with spark.hadoop.",
            )
        settings[name] = value
    return settings


def wait_for(handle: Run, seconds: float | None) -> int:
    """Wait for the end of a run, or stop it after some seconds.

    Returns 0, or what to leave to the shell if the run was stopped from outside.
    """
    try:
        handle.await_termination(seconds)
        handle.stop()
    except AnabranchError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(WRONG_RESULT) from error
    except STOPS as stop:
        typer.echo(f"finishing what is under way; {again(stop)} to give up", err=True)
        handle.stop()
        return code_of(stop)
    return 0
