"""Who else hears a run that the command line starts: a journal, a web page, Prometheus."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.ports import PORTS
from anabranch.engines.handle import Run
from anabranch.engines.listeners import Listener
from anabranch.errors import Subject, UnknownNameError
from anabranch.io.local_paths import local_option
from anabranch.view.journal import JournalFile
from anabranch.view.web import DEFAULT_PORT, Dashboard, serve

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
class Wanted:
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
def watching(wanted: Wanted, *first: Listener) -> Iterator[Watchers]:
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


def _metrics(wanted: Wanted, open_things: ExitStack) -> tuple[Listener, str]:
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
