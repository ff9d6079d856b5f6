"""The command line: `anabranch apps | plan APP | check APP`."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anabranch.apps import APPS, app
from anabranch.errors import AnabranchError, UnknownNameError
from anabranch.flow import Flow
from anabranch.plan.plan import Plan
from anabranch.testing.check import check as check_flow

cli = typer.Typer(
    help="Write a streaming application once; Anabranch finds out how to run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

WRONG_RESULT = 1
WRONG_INPUT = 2

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


@cli.command("check")
def run_check(
    name: AppName,
    cases: Annotated[int, typer.Option(min=1, help="How many random runs.")] = 40,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each source to run on.")] = 200,
    seed: Annotated[int, typer.Option(help="Decides every choice.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the sequential run with random plans, interleavings, batchings and plan changes."""
    flow = find_flow(name)
    if as_json or not sys.stderr.isatty():
        report = check_flow(flow, cases=cases, rows=rows, seed=seed)
    else:
        with Console(stderr=True).status(f"checking {flow.name}: up to {cases} random runs"):
            report = check_flow(flow, cases=cases, rows=rows, seed=seed)
    if as_json:
        finding = report.finding
        answer = {
            "flow": report.flow,
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


def find_flow(name: str) -> Flow:
    """A built-in application, or `module:attribute` — a Flow or a function that builds one."""
    if ":" not in name:
        flow: Flow = app(name).build()
        return flow
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
    if callable(found):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise UnknownNameError(
                name, "a function without required arguments", str(error), "give them defaults"
            ) from error
        found = found()
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


def main() -> None:
    """Run the command line; what the user can mend is a line on stderr, not a traceback."""
    try:
        cli()
    except AnabranchError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(WRONG_INPUT)


if __name__ == "__main__":
    main()
