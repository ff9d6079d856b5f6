"""The command `anabranch replay`: files into a Redis stream, at a set pace."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.cli.exits import STOPS, code_of
from anabranch.cli.finding import AsJson
from anabranch.io.files_source import files
from anabranch.io.redis_client import StreamClient
from anabranch.io.redis_rows import FIELD, FORMATS
from anabranch.io.replaying import Replayed, Steps, StreamReplay


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("replay")(replay_files)


def replay_files(
    paths: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Text, CSV, JSON lines or Parquet.")
    ],
    to: Annotated[str, typer.Option(help="The server, like redis://localhost:6379/0.")],
    stream: Annotated[str, typer.Option(help="The key of the stream.")],
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Rows a second, from beginning to end.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Rates that change: 'second:rate, second:rate, …'.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Send no more than this.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after so long.")] = None,
    repeat: Annotated[bool, typer.Option(help="Begin again at the end of the files.")] = False,
    end: Annotated[bool, typer.Option("--end", help="End the stream behind the rows.")] = False,
    format: Annotated[
        str, typer.Option(help="An entry has a field per column (fields), or an object (json).")
    ] = "fields",
    field: Annotated[str, typer.Option(help="For json: the field of the object.")] = FIELD,
    keep: Annotated[
        int | None, typer.Option(min=1, help="About how many entries to keep; all when left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay files into a Redis stream, evenly at a set rate.

    At the end it says what rate was reached.
    """
    if (rate is None) == (steps is None):
        raise typer.BadParameter("give --rate or --steps, one of them")
    if format not in FORMATS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}")
    pace = Steps.parse(steps) if steps is not None else Steps.constant(rate or 0.0)
    client = StreamClient(to, stream)
    replay = StreamReplay(
        files(paths), client, pace, format=format, field=field, repeat=repeat, keep=keep
    )
    stopped = 0
    try:
        replay.run(rows, seconds)
    except STOPS as stop:
        stopped = code_of(stop)
    if end:
        replay.end()
    told = replay.outcome()
    typer.echo(json.dumps(as_object(told)) if as_json else in_words(stream, told))
    if stopped:
        raise typer.Exit(stopped)


def in_words(stream: str, told: Replayed) -> str:
    """What was asked for and what was reached."""
    lines = [
        f"{told.rows:,} rows into stream {stream!r} in {told.seconds:.1f} s, "
        f"at most {told.most_behind:,} rows behind the pace"
    ]
    for step in told.steps:
        lines.append(
            f"  from {step.begin_s:g} s: {step.asked_per_s:,.0f} rows/s asked for, "
            f"{step.per_s:,.0f} reached"
        )
    return "\n".join(lines)


def as_object(told: Replayed) -> dict[str, object]:
    """The same for programs."""
    steps = [asdict(step) | {"per_s": round(step.per_s, 1)} for step in told.steps]
    return {
        "rows": told.rows,
        "seconds": round(told.seconds, 3),
        "most_behind": told.most_behind,
        "steps": steps,
    }
