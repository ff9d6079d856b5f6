"""The command `anabranch size`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.exits import WRONG_RESULT
from anabranch.cli.finding import (
    AsJson,
    Inputs,
    Profiled,
    ProfileFile,
    Settings,
    Target,
    find_profiled,
    read_text,
)
from anabranch.cli.planning import EngineName, find_machine
from anabranch.engines.registry import require_results
from anabranch.engines.simulator.flows import flow_of
from anabranch.engines.spark.layout import with_ranges
from anabranch.engines.spark.model import predicted_batch_s
from anabranch.errors import PlanError, Subject
from anabranch.flow import Flow
from anabranch.planning import sizing
from anabranch.planning.answer import Answer
from anabranch.planning.flow_problem import choices, problem_for
from anabranch.planning.machine import Machine, read_spark_costs, with_overheads
from anabranch.planning.models.spark import Slots, SparkCosts
from anabranch.planning.profile import NANOSECONDS, Profile
from anabranch.planning.regions import regions
from anabranch.planning.sizing import (
    BATCHES,
    HEADROOM,
    MOST_CORES,
    Cores,
    Fit,
    Found,
    SizedBatches,
    Sizing,
    fewest_cores,
    fewest_slots,
)
from anabranch.planning.starting import side_by_side
from anabranch.runtime.dispenser import LINGER_S
from anabranch.view import sizing_report as sizes

GATHERING_S = 2 * LINGER_S
"""Readers look for due rows as often as they let them linger: the first waits up to twice that."""


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("size")(size)


def size(
    target: Target,
    rate: Annotated[float, typer.Option(help="Rows a second that all sources read together.")],
    latency_ms: Annotated[
        float | None, typer.Option(help="What 99 in a hundred rows may take at most.")
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            help="MACHINE.json, whose cores are counted; cores like this machine's when left out."
        ),
    ] = None,
    profile: ProfileFile = None,
    engine: EngineName = "local",
    input: Inputs = None,
    settings: Settings = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Another topology of it: a profile, or an application as it is by itself, without "
            "--input and --set."
        ),
    ] = None,
    headroom: Annotated[float, typer.Option(help="Part of the rate to carry on top.")] = HEADROOM,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of a jumbo tuple at most; found when left out.")
    ] = None,
    most_cores: Annotated[int, typer.Option(min=1, max=500, help="Where to stop.")] = MOST_CORES,
    as_json: AsJson = False,
) -> None:
    """Find how many cores an application needs for a rate and a latency.

    The answer also says how sure that is.
    """
    require_results(engine)
    wish = sizing.Target(rate, latency_ms, headroom, most_cores)
    place = Place(find_machine(machine), spark_costs(machine, engine), engine, batch_rows)
    found = [sized(target, find_profiled(target, profile, input, settings), wish, place)]
    if against is not None:
        found.append(sized(against, find_profiled(against), wish, place))
    tell(found, as_json)
    if not all(isinstance(each.fit, Fit) for each in found):
        raise typer.Exit(WRONG_RESULT)


def tell(found: list[Sizing], as_json: bool) -> None:
    """Print what was found."""
    if as_json:
        told = [sizes.as_object(each) for each in found]
        typer.echo(json.dumps(told[0] if len(told) == 1 else told, allow_nan=False))
    else:
        typer.echo(sizes.in_words(found[0]) if len(found) == 1 else sizes.side_by_side(*found))


@dataclass(frozen=True)
class Place:
    """Where an application shall run.

    Attributes:
        machine: What cores are like.
        spark: What Spark takes there, if that is the engine.
        engine: Which engine.
        batch_rows: Rows of a jumbo tuple; None for what suits.
    """

    machine: Machine
    spark: SparkCosts | None
    engine: str
    batch_rows: int | None


def spark_costs(machine: str | None, engine: str) -> SparkCosts | None:
    """What the machine's file says of Spark, which has to be there for that engine."""
    if engine != "spark":
        return None
    found = None
    if machine is not None and Path(machine).is_file():
        text = read_text(Path(machine), "a machine", "anabranch calibrate --out FILE")
        found = read_spark_costs(text, Path(machine).name)
    if found is None:
        raise PlanError(
            Subject("machine", machine or "this machine"),
            "a file that says what Spark takes there",
            repr(machine),
            "write one with `anabranch calibrate --engine spark --out MACHINE.json`",
        )
    return found


def sized(target: str, profiled: Profiled, wish: sizing.Target, place: Place) -> Sizing:
    """What one application needs."""
    known, flow = profiled.profile, profiled.flow
    if flow is None:
        if place.spark is not None:
            raise PlanError(
                Subject("profile", target),
                "an application, whose stages on Spark can be told",
                "a profile alone",
                "name the application and give the file with --profile",
            )
        drawn = regions(flow_of(known))
        runs = tuple(r.steps for r in drawn if r.steps[0] in known.by_name)
        return on_threads(known.app or Path(target).stem, known, runs, wish, place)
    problem = problem_for(flow, known, place.machine)
    if place.spark is not None:
        return on_spark(flow, problem.profile, place.spark, wish, place.machine)
    return on_threads(
        flow.name, problem.profile, tuple(r.steps for r in regions(flow)), wish, place
    )


def on_threads(
    name: str,
    profile: Profile,
    runs: tuple[tuple[str, ...], ...],
    wish: sizing.Target,
    place: Place,
) -> Sizing:
    """What it needs on threads; who says what each tuple costs more has no jumbo tuples."""
    by_tuple = profile.overheads is not None
    known = with_overheads(profile, place.machine, place.engine)
    usual = (1,) if by_tuple else BATCHES
    batches = usual if place.batch_rows is None else (place.batch_rows,)
    cores = Cores(place.machine, runs, batches, per_jumbo=not by_tuple, linger_s=GATHERING_S)
    return sizing.size(name, known, wish, lambda each: fewest_cores(each, wish, cores))


def on_spark(
    flow: Flow, profile: Profile, costs: SparkCosts, wish: sizing.Target, machine: Machine
) -> Sizing:
    """What it needs in micro-batches, with as many tasks as slots."""

    def found(known: Profile) -> Found:
        def on(slots: int) -> SizedBatches:
            plan = side_by_side(flow, slots)
            chosen = tuple(choices(flow, plan))
            room = Slots(slots, max(1.0, slots * machine.parallel_share))

            def seconds(rows: int) -> float:
                filled = plan
                for source in plan.sources:
                    filled = filled.with_source(source.source, batch_rows=rows)
                ranged = with_ranges(flow, filled)
                return predicted_batch_s(flow, ranged, known, costs, room, rows)

            work_s = known.work * NANOSECONDS[known.unit or "ns"] / 1e9
            return SizedBatches(Answer(chosen, 0.0, 0.0), seconds, work_s)

        return fewest_slots(wish, on)

    return sizing.size(flow.name, profile, wish, found)
