"""The commands `anabranch run` and `anabranch rollback`, with journal, web page and metrics."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anabranch.adapt.registry import POLICIES
from anabranch.apps import APPS
from anabranch.cli.exits import STOPS, WRONG_RESULT, again, code_of
from anabranch.cli.finding import AppName, AsJson, Inputs, Settings, find_flow, read_plan
from anabranch.cli.planning import find_machine
from anabranch.cli.ports import PORTS
from anabranch.cli.results import Results, unread
from anabranch.engines.handle import Listener, Result, Run
from anabranch.errors import AnabranchError, SourceError, Subject, UnknownNameError
from anabranch.io.local_paths import local_option
from anabranch.running import rollback, start
from anabranch.view.journal import JournalFile
from anabranch.view.outcome import as_object, in_words, place_of
from anabranch.view.plan_report import counted
from anabranch.view.progress import Progress
from anabranch.view.web import DEFAULT_PORT, Dashboard, serve


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
        str, typer.Option(help="What runs it: spark, or local, processes of this machine.")
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
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="For local: worker processes; 0 for none. As many as the plan uses when left out.",
        ),
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
        workers=workers,
        master=master,
        conf=spark_settings(engine, conf or ()),
        machine=None if machine is None else find_machine(str(machine)),
    )
    wanted = WatchOptions(journal, dashboard, metrics, address, token, metrics_address, controls)
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


# Who else hears a run that the command line starts: a journal, a web page, Prometheus.

METRICS_PORT = PORTS["--metrics"]

DashboardPort = Annotated[
    int | None,
    typer.Option(
        "--dashboard",
        min=0,
        max=65_535,
        metavar="[PORT]",
        help=f"Show it on a web page, too; port {DEFAULT_PORT} when left out, 0 for any.",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        min=0,
        max=65_535,
        metavar="[PORT]",
        help=f"Let Prometheus read it; port {METRICS_PORT} when left out, 0 for any.",
    ),
]
Address = Annotated[
    str, typer.Option(help="Where the page listens; beyond this machine it takes a token.")
]
MetricsAddress = Annotated[
    str, typer.Option(help="Where Prometheus may ask; beyond this machine anybody can.")
]
Token = Annotated[
    str | None, typer.Option(help="The token of the page; random where needed and left out.")
]
PageControls = Annotated[
    bool,
    typer.Option(
        " /--no-controls",
        help="Let the page show the run, and change nothing.",
        show_default=False,
    ),
]
JournalPath = Annotated[
    Path | None,
    typer.Option(
        "--journal", help="A file for all events, for `anabranch view`.", callback=local_option
    ),
]


@dataclass(frozen=True)
class WatchOptions:
    """What a user asked for beside the run itself."""

    journal: Path | None = None
    dashboard: int | None = None
    metrics: int | None = None
    address: str = "127.0.0.1"
    token: str | None = None
    metrics_address: str = "127.0.0.1"
    controls: bool = True


@dataclass
class Watchers:
    """Those who hear a run, and the page that may control it."""

    listeners: list[Listener] = field(default_factory=list)
    page: Dashboard | None = None

    def control(self, run: Run) -> None:
        """The run has begun."""
        if self.page is not None:
            self.page.control(run)


@contextmanager
def watching(wanted: WatchOptions, *first: Listener) -> Iterator[Watchers]:
    """Open what was asked for, say where it is, and close it at the end."""
    found = Watchers(list(first))
    with ExitStack() as open_things:
        if wanted.dashboard is not None:
            page = serve(
                port=wanted.dashboard,
                address=wanted.address,
                token=wanted.token,
                controls=wanted.controls,
            )
            open_things.callback(_say_how_to_see_it_again, wanted.journal)
            found.page = open_things.enter_context(page)
            found.listeners.append(found.page.hear)
            typer.echo(f"the page is at {found.page.url}", err=True)
        if wanted.metrics is not None:
            listener, where = _metrics(wanted, open_things)
            found.listeners.append(listener)
            typer.echo(f"Prometheus finds it at {where}", err=True)
        if wanted.journal is not None:  # last: a port that is taken shall not cost an old journal
            file = _journal(wanted.journal)
            open_things.callback(_close, file, wanted.journal)
            found.listeners.append(file.hear)
        yield found


def _say_how_to_see_it_again(journal: Path | None) -> None:
    """A page goes with its run; a reload would find nothing."""
    if journal is None:
        again = "with --journal FILE it could be seen again"
    else:
        again = f"see it again with: anabranch view {shlex.quote(str(journal))}"
    typer.echo(f"the page is gone; {again}", err=True)


def _journal(path: Path) -> JournalFile:
    try:
        return JournalFile(path)
    except OSError as error:
        raise UnknownNameError(
            Subject("file", str(path)),
            "a file that can be written",
            error.strerror or str(error),
            "name another",
        ) from error


def _close(file: JournalFile, path: Path) -> None:
    """Close a journal, and say so if it does not tell all of the run."""
    file.close()
    if file.trouble is not None:
        why = file.trouble.strerror or str(file.trouble)
        typer.echo(f"the journal {path} lacks the last {file.lost:,} events: {why}", err=True)


def _metrics(wanted: WatchOptions, open_things: ExitStack) -> tuple[Listener, str]:
    try:
        from anabranch.view.metrics import Metrics
    except ImportError as error:
        raise UnknownNameError(
            Subject("option", "--metrics"),
            "the package prometheus-client",
            str(error),
            "pip install 'anabranch[metrics]'",
        ) from error
    metrics = Metrics()
    server = open_things.enter_context(metrics.serve(wanted.metrics or 0, wanted.metrics_address))
    return metrics.hear, server.url
