"""The command `anabranch check`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console

from anabranch.cli.exits import WRONG_RESULT
from anabranch.cli.finding import AppName, AsJson, Inputs, Settings, find_flow
from anabranch.testing.checking import PROCESSES
from anabranch.testing.checking import check as check_flow


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("check")(run_check)


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
    processes: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many fresh processes to repeat the sequential run in, each with another hash "
            "seed, time zone and working directory.",
        ),
    ] = PROCESSES,
    input: Inputs = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Find out whether it matters how an application is run.

    Its sequential run is compared with random plans, batchings, plan changes and other processes.
    """
    flow = find_flow(name, input, settings)
    quiet = as_json or not sys.stderr.isatty()
    with nullcontext() if quiet else Console(stderr=True).status(f"checking {flow.name}"):
        report = check_flow(
            flow, engine=engine, cases=cases, rows=rows, seed=seed, processes=processes
        )
    if as_json:
        finding = report.finding
        answer = {
            "flow": report.flow,
            "engine": report.engine,
            "ok": report.ok,
            "rows": report.rows,
            "runs": report.runs,
            "processes": report.processes,
            "unsent": report.unsent,
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
