"""The commands `anabranch profile APP` and `anabranch calibrate`: what planners need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.finding import AppName, Inputs, Settings, find_flow
from anabranch.cli.plotting import Plot, profile_plot, require_plots, write_picture
from anabranch.engines.measuring.calibration import (
    REPEATS,
    Calibrated,
    calibrate_local,
    this_machine,
)
from anabranch.engines.measuring.profiling import ROWS, Measured, measure_flow
from anabranch.engines.measuring.spark_calibration import fit, overheads, spark_trials
from anabranch.errors import unknown
from anabranch.io.local_paths import local_option
from anabranch.planning.machine import (
    Machine,
    machine_text,
    read_machine,
    read_spark_costs,
    with_spark_costs,
)
from anabranch.planning.models.spark import SparkCosts
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Overheads, profile_text

BATCH_ROWS = {"local": 16_384, "spark": 131_072}
"""Rows of a jumbo tuple on each engine, unless a plan says otherwise."""
CALLS = 12
"""Jumbo tuples to profile with at least: a median needs some, behind those that warm up."""

Engine = Annotated[str, typer.Option(help="Whose habits to measure by: local or spark.")]
Out = Annotated[
    Path | None,
    typer.Option(help="A file to write; on screen only when left out.", callback=local_option),
]
AsJson = Annotated[bool, typer.Option("--json", help="The text of the file, nothing else.")]
BatchRows = Annotated[
    int | None, typer.Option(min=1, help="Rows of a jumbo tuple; the engine's when left out.")
]


def register(cli: typer.Typer) -> None:
    """Add the commands to a command line."""
    cli.command("profile")(profile_app)
    cli.command("calibrate")(calibrate_engine)


def profile_app(
    name: AppName,
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of each source; a dozen jumbo tuples when left out."),
    ] = None,
    engine: Engine = "local",
    batch_rows: BatchRows = None,
    input: Inputs = None,
    settings: Settings = None,
    out: Out = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Measure what each step of an application costs.

    Each step runs by itself; the profile also says what it passes on and remembers.
    """
    require_plots(plot)
    flow = find_flow(name, input, settings)
    usual = _of_engine(engine)
    size = batch_rows or usual
    plan = Plan.sequential(flow)
    for source in plan.sources:
        plan = plan.with_source(source.source, batch_rows=size)
    found = measure_flow(flow, rows or max(ROWS, CALLS * size), plan)
    text = profile_text(replace(found.profile, app=name))
    _write(out, text)
    if plot is not None:
        write_picture(plot, profile_plot(name, found.profile))
    if as_json:
        typer.echo(text, nl=False)
        return
    typer.echo(profile_in_words(name, found))


def calibrate_engine(
    engine: Engine = "local",
    batch_rows: BatchRows = None,
    repeats: Annotated[int, typer.Option(min=1, help="More are slower and surer.")] = REPEATS,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine, and what parallelism costs on an engine here."""
    usual = _of_engine(engine)
    rows = batch_rows or usual
    machine, spark = this_machine(), None
    if engine == "local":
        calibrated = calibrate_local(machine, rows, repeats)
        machine = replace(machine, overheads={engine: calibrated.overheads})
        told = _local_in_words(calibrated, rows, machine)
    else:
        spark = fit(spark_trials(rounds=repeats), slots=machine.cores)
        machine = replace(machine, overheads={engine: overheads(spark)})
        told = _spark_in_words(spark)
    text = machine_file(machine, spark, out)
    _write(out, text)
    typer.echo(text if as_json else f"{_machine_in_words(machine)}\n{told}", nl=not as_json)


def _of_engine(engine: str) -> int:
    if engine not in BATCH_ROWS:
        raise unknown("engine", engine, BATCH_ROWS)
    return BATCH_ROWS[engine]


def machine_file(machine: Machine, spark: SparkCosts | None, earlier: Path | None) -> str:
    """The text of a machine's file; what an earlier one says of other engines is kept."""
    known: Mapping[str, Overheads] = {}
    if earlier is not None and earlier.exists():
        text = earlier.read_text(encoding="utf-8")
        known = read_machine(text, str(earlier)).overheads
        spark = spark or read_spark_costs(text, str(earlier))
    told = machine_text(replace(machine, overheads={**known, **machine.overheads}))
    return told if spark is None else with_spark_costs(told, spark)


def _write(out: Path | None, text: str) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")


def profile_in_words(name: str, found: Measured) -> str:
    """A profile as people read it: a table, and what it could not tell."""
    rows = [("step", "state", "median µs", "p99 µs", "out per in", "bytes", "keys", "hottest")]
    for each in found.profile.operators:
        streams = found.profile.out_of(each.name)
        rows.append(
            (
                each.name,
                each.state.value,
                f"{each.cost:.4f}",
                "–" if each.cost_p99 is None else f"{each.cost_p99:.4f}",
                ", ".join(f"{stream.selectivity:.3g}" for stream in streams) or "–",
                f"{each.tuple_bytes:.1f}",
                "–" if each.keys is None else f"{each.keys:,}",
                "–" if each.hottest_key_share is None else f"{each.hottest_key_share:.2%}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{name}: time per tuple that comes in, on one thread"]
    for row in rows:
        words = [f"{row[0]:<{widths[0]}}", f"{row[1]:<{widths[1]}}"]
        words += [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(words))
    return "\n".join([*lines, *found.notes])


def _machine_in_words(machine: Machine) -> str:
    ghz = "clock unknown" if machine.ghz is None else f"{machine.ghz:g} GHz"
    memory = machine.bandwidth_mb_s
    bandwidth = f", memory {memory[0][0]:,.0f} MB/s" if memory else ""
    return (
        f"{machine.sockets} socket(s) of {machine.cores_per_socket} cores, {ghz}{bandwidth}; "
        f"all cores at once are worth {machine.capacity:.2f}"
    )


def _local_in_words(found: Calibrated, rows: int, machine: Machine) -> str:
    def spread(values: tuple[float, float, float]) -> str:
        low, median, high = values
        return f"{median:,.0f} ns a tuple [{low:,.0f} … {high:,.0f}]"

    lines = [
        f"thread switch               {spread(found.thread_switch)}",
        f"replication, stateless      {spread(found.stateless)}",
        f"replication, partitioned    {spread(found.partitioned)}",
        f"with jumbo tuples of {rows:,} rows; for planners: thread switch "
        f"{found.overheads.thread_switch:,.0f}, replication {found.overheads.replication:,.0f} ns",
    ]
    if machine.cores < 4:
        lines.append(
            f"with {machine.cores} cores only 1 and {max(2, machine.cores)} replicas can be told "
            "apart: how replication grows with more is taken from the model"
        )
    return "\n".join(lines)


def _spark_in_words(costs: SparkCosts) -> str:
    named: dict[str, Any] = asdict(costs)
    lines = [f"{name.removesuffix('_s'):<18} {1000 * named[name]:8.1f} ms" for name in _SECONDS]
    lines += [f"{name.removesuffix('_ns'):<18} {named[name]:8.1f} ns" for name in _NANOSECONDS]
    return "\n".join(lines)


_SECONDS = ("batch_s", "stage_s", "task_s")
_NANOSECONDS = ("shuffle_row_ns", "shuffle_byte_ns", "sink_byte_ns")
