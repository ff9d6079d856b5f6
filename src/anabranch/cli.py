"""The command line: `anabranch apps | plan APP | run APP | check APP | rollback APP`."""

from __future__ import annotations

import importlib
import inspect
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console

from anabranch.apps import APPS, app
from anabranch.engines.handle import Run
from anabranch.errors import AnabranchError, UnknownNameError
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import parquet
from anabranch.io.collect import CollectSink
from anabranch.io.read_back import read_back
from anabranch.plan.plan import Plan
from anabranch.reproduce.command import register as register_reproduce
from anabranch.run import rollback, start
from anabranch.testing.check import check as check_flow
from anabranch.view.outcome import as_object, in_words
from anabranch.view.progress import Progress

cli = typer.Typer(
    help="Write a streaming application once; Anabranch finds out how to run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

WRONG_RESULT = 1
WRONG_INPUT = 2
INTERRUPTED = 130

AppName = Annotated[str, typer.Argument(metavar="APP", help="An application, or module:flow.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, nothing else.")]


@cli.command("apps")
def list_apps() -> None:
    """List the applications that come with the library."""
    width = max(map(len, APPS))
    for name, module in sorted(APPS.items()):
        typer.echo(f"{name:{width}}  {(module.__doc__ or '').splitlines()[0]}")


@cli.command("plan")
def show_plan(
    name: AppName,
    file: Annotated[
        Path | None, typer.Option("--plan", help="A plan to check against the application.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how an application would run: its regions, pipelines, replicas."""
    flow = find_flow(name)
    plan = Plan.sequential(flow)
    if file is not None:
        plan = read_plan(file)
        plan.validate(flow)
    typer.echo(plan.to_json() if as_json else repr(plan))


@cli.command("rollback")
def roll_back(
    name: AppName,
    checkpoint: Annotated[str, typer.Option(help="The folder of the checkpoint.")],
    to: Annotated[int, typer.Option(min=0, help="The version to go on from.")],
) -> None:
    """Go back to an earlier version of a checkpoint; the next run goes on from there."""
    rollback(find_flow(name), checkpoint, to)
    typer.echo(f"{checkpoint} is at version {to}; the next run goes on from there")


@cli.command("run")
def run_app(
    name: AppName,
    engine: Annotated[
        str, typer.Option(help="What runs it: spark, or local, the threads of this process.")
    ] = "spark",
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="A plan to start with, from `plan --json`.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=0, help="Read no more rows of each source than this.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long, not counting the start.")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(help="Your own files: a path, folder or quoted pattern; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A folder for the results, as Parquet; one in it for each of several."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="A folder to go on from after a stop or a crash.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="For spark: its master URL; embedded Spark when left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run an application, show how it goes, and say what came of it."""
    if rows is not None and seconds is not None:
        raise typer.BadParameter("give --rows or --seconds, not both")
    flow = find_flow(name, input or (), endless=rows is not None or seconds is not None)
    plan = read_plan(plan_file) if plan_file is not None else None
    if out is not None:
        flow = flow.writing({sink: parquet(place) for sink, place in places(flow, out).items()})
    progress = Progress(name)
    begin = partial(start, flow, engine=engine, plan=plan, checkpoint=checkpoint, rows=rows)
    if as_json:
        with redirect_stdout(sys.stderr):  # sinks may print
            handle = begin(master=master)
            finished = wait_for(handle, seconds)
        typer.echo(json.dumps(as_object(name, handle.result())))
    else:
        with progress.live(Console(stderr=True)):
            handle = begin(master=master, listener=progress.hear)
            finished = wait_for(handle, seconds)
        found = written(flow, out)
        if found is not None and hasattr(APPS.get(name), "summary"):
            typer.echo(app(name).summary(found) + "\n")
        typer.echo(in_words(handle.result()))
    if not finished:
        command = shlex.join(["anabranch", *sys.argv[1:]])
        how = f"go on with: {command}" if checkpoint else "with --checkpoint DIR it could go on"
        typer.echo(f"interrupted; {how}", err=True)
        raise typer.Exit(INTERRUPTED)


def wait_for(handle: Run, seconds: float | None) -> bool:
    """Wait for the end of a run, or stop it after some seconds; False if the user stopped it."""
    try:
        handle.await_termination(seconds)
        handle.stop()
    except AnabranchError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(WRONG_RESULT) from error
    except KeyboardInterrupt:
        typer.echo("finishing what is under way; Ctrl-C again to give up", err=True)
        handle.stop()
        return False
    return True


def places(flow: Flow, folder: Path) -> dict[str, Path]:
    """Where each sink writes: into the folder if it is the only one, else into one of its own."""
    sinks = flow.names(Role.SINK)
    return {sink: folder / sink if len(sinks) > 1 else folder for sink in sinks}


def written(flow: Flow, out: Path | None) -> pa.Table | None:
    """What the first sink of a flow got, where that can be read."""
    first = flow.names(Role.SINK)[0]
    if out is not None:
        return read_back(places(flow, out)[first])
    sink = flow.graph.steps[first].body.sink
    return sink.table() if isinstance(sink, CollectSink) else None


@cli.command("check")
def run_check(
    name: AppName,
    engine: Annotated[
        str | None, typer.Option(help="Run on this engine (spark, local) instead of imitating one.")
    ] = None,
    cases: Annotated[
        int | None, typer.Option(min=1, help="How many random runs; 40, or 6 on spark.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each source to run on.")] = 200,
    seed: Annotated[int, typer.Option(help="Decides every choice.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the sequential run with random plans, interleavings, batchings and plan changes."""
    flow = find_flow(name)
    quiet = as_json or not sys.stderr.isatty()
    with nullcontext() if quiet else Console(stderr=True).status(f"checking {flow.name}"):
        report = check_flow(flow, engine=engine, cases=cases, rows=rows, seed=seed)
    if as_json:
        finding = report.finding
        answer = {
            "flow": report.flow,
            "engine": report.engine,
            "ok": report.ok,
            "rows": report.rows,
            "runs": report.runs,
            "question": finding.question if finding else None,
            "step": finding.step if finding else None,
            "input": finding.input.rows if finding else None,
            "difference": str(finding.difference) if finding else None,
        }
        typer.echo(json.dumps(answer, default=str))
    else:
        typer.echo(str(report))
    if not report.ok:
        raise typer.Exit(WRONG_RESULT)


def find_flow(name: str, input: Sequence[str] = (), endless: bool = False) -> Flow:
    """A built-in application, or `module:attribute` — a Flow or a function that builds one.

    Args:
        name: What the user typed.
        input: Files to read instead of the application's own data.
        endless: Whether generated data shall have no end, because something else ends the run.
    """
    if ":" in name:
        return find_own(name, input)
    build = app(name).build
    given = with_input(name, build, input)
    if endless and not input and "rows" in inspect.signature(build).parameters:
        given["rows"] = None
    flow: Flow = build(**given)
    return flow


def with_input(name: str, build: Any, input: Sequence[str]) -> dict[str, Any]:
    """The argument that makes an application read the user's files, if there are any."""
    if not input:
        return {}
    if not callable(build) or "input" not in inspect.signature(build).parameters:
        raise UnknownNameError(
            name,
            "a function with an argument `input`",
            f"--input {shlex.join(input)} for one without",
            "leave --input out to run on the application's own data",
        )
    return {"input": input[0] if len(input) == 1 else list(input)}


def find_own(name: str, input: Sequence[str] = ()) -> Flow:
    """What `module:attribute` names: a Flow, or what a function of that name builds."""
    module_name, _, attribute = name.partition(":")
    if not module_name:
        raise UnknownNameError(name, "module:flow", repr(name), "name the module before the colon")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's own module lies where they stand
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise UnknownNameError(
            name,
            "a module that can be imported",
            repr(module_name),
            "run from the folder that holds it, or install it",
        ) from error
    found = getattr(module, attribute, None)
    given = {} if found is None else with_input(name, found, input)
    if callable(found):
        try:
            inspect.signature(found).bind(**given)
        except TypeError as error:
            raise UnknownNameError(
                name, "a function without required arguments", str(error), "give them defaults"
            ) from error
        found = found(**given)
    if not isinstance(found, Flow):
        flows = sorted(n for n, value in vars(module).items() if isinstance(value, Flow))
        raise UnknownNameError(
            name,
            f"a Flow, or a function that builds one, called {attribute!r} in {module_name}",
            "nothing of that name" if found is None else type(found).__name__,
            f"there is {', '.join(flows)}" if flows else "define one there",
        )
    return found


def read_plan(file: Path) -> Plan:
    """A plan from a file."""
    try:
        return Plan.from_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UnknownNameError(
            str(file), "a readable plan file", str(error), "write one with `anabranch plan --json`"
        ) from error


register_reproduce(cli)


def main() -> None:
    """Run the command line; what the user can mend is a line on stderr, not a traceback."""
    try:
        cli()
    except AnabranchError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(WRONG_INPUT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
