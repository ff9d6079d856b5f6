"""The command `anabranch tune APP`: run a policy to its end, and keep the plan that it found."""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import typer
from rich.console import Console

from anabranch.adapt.registry import DEFAULT, NONE
from anabranch.adapt.registry import policy as find_policy
from anabranch.cli.exits import STOPS, WRONG_RESULT, code_of
from anabranch.cli.finding import AppName, AsJson, Inputs, Settings, find_flow, read_plan
from anabranch.cli.planning import find_machine
from anabranch.cli.plotting import Plot, require_plots, tune_plot, write_picture
from anabranch.cli.results import keeping_the_last
from anabranch.engines.handle import Run
from anabranch.engines.registry import require_results
from anabranch.errors import AnabranchError, Subject, UnknownNameError
from anabranch.events import Event
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.local_paths import local_option
from anabranch.io.redis_source import RedisStreamSource, redis_stream
from anabranch.planning.plan import Plan
from anabranch.running import start
from anabranch.view.progress import Progress
from anabranch.view.tuning_report import Rounds, as_object, report

QUIET_ROUNDS = 5
LOOK_S = 0.1
GRACE_S = 10.0


@dataclass(frozen=True)
class End:
    """Why tuning has ended, and what the command tells its caller."""

    why: str
    code: int = 0


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("tune")(tune_app)


def tune_app(
    name: AppName,
    policy: Annotated[str, typer.Option(help="Who decides: auto, organic, stepwise, …")] = DEFAULT,
    engine: Annotated[str, typer.Option(help="What runs it: spark or local.")] = "spark",
    rounds: Annotated[int | None, typer.Option(min=1, help="Stop after so many plans.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Stop after so long.")] = 300.0,
    quiet: Annotated[
        int, typer.Option(min=1, help="Stop when so many decisions in a row changed nothing.")
    ] = QUIET_ROUNDS,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="A plan to begin with, from `plan --json`.")
    ] = None,
    input: Inputs = None,
    settings: Settings = None,
    redis: Annotated[
        list[str] | None,
        typer.Option(
            help="A stream to read: [SOURCE=]redis://host:6379/0/STREAM; repeatable. With "
            "?first_row=N behind it from entry N on."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="Entries of --redis have a field per column (fields), or are json.")
    ] = "fields",
    machine: Annotated[
        Path | None, typer.Option(help="For the policy: what `anabranch calibrate` measured here.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="For spark: its master URL; embedded Spark when left out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A file for the plan.", callback=local_option)
    ] = None,
    report_file: Annotated[
        Path | None,
        typer.Option("--report", help="A file for the report, as Markdown.", callback=local_option),
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Let a policy tune an application, and report every round.

    It ends when the policy changes nothing more.
    """
    require_results(engine)
    require_plots(plot)
    if policy == NONE:
        raise typer.BadParameter("a policy has to tune; `anabranch run` goes without")
    decider = find_policy(policy)
    flow = find_flow(name, input, settings, endless=True)
    if redis:
        flow = reading_streams(flow, redis, format)
    flow = keeping_the_last(flow)
    plan = read_plan(plan_file) if plan_file is not None else None
    known = None if machine is None else find_machine(str(machine))
    found, progress = Rounds(decider.pace), Progress(name)

    def hear(event: Event) -> None:
        found.hear(event)
        progress.hear(event)

    # Sinks may print; what is moved around on a terminal must not be in the way of that.
    with redirect_stdout(sys.stderr) if as_json else progress.live(Console(stderr=True)):
        handle = start(
            flow,
            engine=engine,
            plan=plan,
            policy=decider,
            machine=known,
            master=master,
            listener=hear,
        )
        end = wait_for_end(handle, found, rounds, seconds, quiet)
    best = found.plan or handle.plan
    title = f"{name} on {engine}, tuned by {policy}"
    said = report(title, end.why, found)
    write(out, best.to_json())
    write(report_file, said)
    if plot is not None:
        write_picture(plot, tune_plot(title, found))
    if as_json:
        typer.echo(json.dumps(told(name, engine, policy, end.why, found, best)))
    else:
        typer.echo(said, nl=False)
    if end.code:
        raise typer.Exit(end.code)


def wait_for_end(handle: Run, found: Rounds, rounds: int | None, seconds: float, quiet: int) -> End:
    """Wait until there is a reason to stop, stop, and say what it was."""
    try:
        try:
            end = End(wait_for_reason(handle, found, rounds, seconds, quiet))
        except STOPS as stop:
            end = End("interrupted", code_of(stop))
        handle.stop()
    except AnabranchError as error:  # what was found until then is worth keeping
        typer.echo(f"error: {error}", err=True)
        return End(f"an error, {error}", WRONG_RESULT)
    return end


def wait_for_reason(
    handle: Run, found: Rounds, rounds: int | None, seconds: float, quiet: int
) -> str:
    """Wait until there is a reason to stop."""
    began = time.monotonic()
    while not handle.await_termination(LOOK_S):
        passed_s = time.monotonic() - began
        # A plan that is on its way is waited for, as it is the one to be kept.
        patient = found.under_way and passed_s < seconds + GRACE_S
        if (why := reason(found, rounds, quiet, passed_s, seconds)) and not patient:
            return why
    return "the input is over"


def reason(found: Rounds, rounds: int | None, quiet: int, passed_s: float, seconds: float) -> str:
    """Why to stop; nothing while there is none."""
    if found.settled(quiet):
        return f"{quiet} decisions in a row changed nothing"
    if rounds is not None and len(found.rounds) > rounds:
        return f"{rounds} {'plan was' if rounds == 1 else 'plans were'} looked at"
    return f"{seconds:g} seconds are over" if passed_s >= seconds else ""


def reading_streams(flow: Flow, streams: list[str], format: str) -> Flow:
    """The flow with Redis streams in place of its sources."""
    sources, known = {}, flow.names(Role.SOURCE)
    for text in streams:
        name, equals, place = text.partition("=")
        if name not in known or not equals:
            name, place = known[0], text
            if len(known) > 1:
                raise UnknownNameError(
                    Subject("option", "--redis"),
                    f"SOURCE=URL/STREAM with a source among {list(known)}",
                    repr(text),
                    "say which source it is for",
                )
        sources[name] = stream_at(flow, name, place, format)
    return flow.reading(sources)


def stream_at(flow: Flow, source: str, place: str, format: str) -> RedisStreamSource:
    """A stream as the command line names it, with the columns of the source that it replaces."""
    parts = urlsplit(place)
    path, _, stream = parts.path.rpartition("/")
    # A number alone is the database, and no stream.
    if not parts.scheme or not stream or (not path and stream.isdecimal()):
        raise UnknownNameError(
            Subject("option", "--redis"),
            "a stream as redis://host:6379/0/STREAM",
            repr(place),
            "put the key of the stream behind the database",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    first_row = options.pop("first_row", "0")
    if not first_row.isdecimal():
        raise UnknownNameError(
            Subject("option", "--redis"),
            "first_row=N with a number of 0 or more",
            repr(place),
            "count from 0",
        )
    url = urlunsplit(parts._replace(path=path, query=urlencode(options)))
    schema = flow.sources()[source].schema
    return redis_stream(url, stream, schema, format, first_row=int(first_row))


def told(
    name: str, engine: str, policy: str, why: str, found: Rounds, best: Plan
) -> dict[str, object]:
    """What `tune --json` prints."""
    return {
        "app": name,
        "engine": engine,
        "policy": policy,
        "end": why,
        "rounds": as_object(found),
        "plan": json.loads(best.to_json()),
    }


def write(file: Path | None, text: str) -> None:
    """Write a file, if one is wanted."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
