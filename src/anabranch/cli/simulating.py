"""The command `anabranch simulate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

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
from anabranch.cli.planning import MachineName, find_machine
from anabranch.engines.simulator.costs import RegionSpec
from anabranch.engines.simulator.flows import (
    flow_of,
    named_by_operators,
    names_of,
    require_profiled,
    specs_of,
    watched,
)
from anabranch.engines.simulator.observing import Names, Observer, Watched, observations
from anabranch.engines.simulator.scenario import Scenario, read_scenario
from anabranch.engines.simulator.simulation import Simulation
from anabranch.errors import Subject
from anabranch.events import Observation
from anabranch.planning.answer import RegionChoice
from anabranch.planning.machine import Machine, with_overheads
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Profile
from anabranch.planning.typed_json import as_document, parsed

LINES = 12


def register(cli: typer.Typer) -> None:
    """Add the command to a command line."""
    cli.command("simulate")(simulate)


def simulate(
    target: Target,
    machine: MachineName = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="From `plan --save` or, of a profile, from `plan --json`; one thread per region "
            "when left out."
        ),
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="What happens: load, drift, stragglers, noise, skew.")
    ] = None,
    profile: ProfileFile = None,
    input: Inputs = None,
    settings: Settings = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Virtual seconds.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Decides every choice.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a plan in virtual time, on a machine that need not be there."""
    place = find_machine(machine)
    case = prepare(find_profiled(target, profile, input, settings), place, plan)
    happening = Scenario()
    if scenario is not None:
        text = read_text(scenario, "a scenario", "any editor")
        happening = read_scenario(text, scenario.name)
    run = Simulation(
        case.profile, case.specs, place, happening.for_sources(case.names.sources), seed
    )
    seen = list(observations(run, Observer(run, case.names), case.watched, seconds))
    told = outcome(case.title, place, run, seen)
    readers = {spec.name: spec.choice.replicas for spec in run.specs}
    typer.echo(json.dumps(told) if as_json else in_words(told, seen, readers))


@dataclass(frozen=True)
class Case:
    """What to simulate: a profile under a plan, and what things are called."""

    title: str
    profile: Profile
    specs: list[RegionSpec]
    watched: list[Watched]
    names: Names


def prepare(profiled: Profiled, machine: Machine, plan: Path | None) -> Case:
    """Find the plan that the arguments of the command line name, and what it is about."""
    flow = profiled.flow
    if flow is not None:
        require_profiled(flow, profiled.profile)
    found = with_overheads(profiled.profile, machine)
    title = flow.name if flow else found.app or "profile"
    text = None if plan is None else read_text(plan, "a plan", "anabranch plan … --json")
    answer = None if text is None or plan is None else _answered(text, plan.name)
    if answer is not None:
        specs = [RegionSpec(region.operators[0], region) for region in answer]
        shown = [Watched(s.name, s.choice.pipelines, s.choice.replicas) for s in specs]
        return Case(title, found, specs, shown, named_by_operators(found))
    flow = flow or flow_of(found)
    chosen = Plan.sequential(flow) if text is None else Plan.from_json(text)
    chosen.validate(flow)
    specs = specs_of(flow, chosen, found, machine)
    return Case(title, found, specs, watched(chosen), names_of(flow, found))


@dataclass(frozen=True)
class _PlannedRegions:
    """The part of an answer that is simulated."""

    regions: tuple[RegionChoice, ...]


def _answered(text: str, name: str) -> tuple[RegionChoice, ...] | None:
    """The regions of what `anabranch plan PROFILE.json --json` wrote; None for a flow's plan."""
    file = Subject("plan", name)
    content = parsed(text, file)
    if "fingerprint" in content:
        return None
    return as_document(content, file, _PlannedRegions, strict=False).regions


def outcome(
    title: str, machine: Machine, run: Simulation, seen: list[Observation]
) -> dict[str, Any]:
    """What came of it, as JSON."""
    seconds = run.now_s
    busy_s = sum(pipeline.busy_s for pipeline in run.totals.pipelines.values())
    rows_in, rows_out = (sum(getattr(o, rows) for o in seen) for rows in ("rows_in", "rows_out"))
    return {
        "name": title,
        "machine": machine.name,
        "seconds": seconds,
        "rows_in": rows_in,
        "rows_out": rows_out,
        "rows_in_per_s": rows_in / seconds,
        "rows_out_per_s": rows_out / seconds,
        "cores_busy": busy_s / seconds,
        "threads": sum(spec.choice.threads for spec in run.specs),
        "latency_p50_ms": run.waits.latencies.percentile(0.5),
        "latency_p99_ms": run.waits.latencies.percentile(0.99),
        "observations": [asdict(observation) for observation in seen],
    }


def in_words(told: dict[str, Any], seen: list[Observation], readers: Mapping[str, int]) -> str:
    """What came of it, for people; `readers` says how many there are of each source."""
    lines = [
        f"{told['name']} on {told['machine']}: {told['seconds']:g} s of virtual time",
        f"  {told['rows_in_per_s']:,.0f} rows/s in, {told['rows_out_per_s']:,.0f} rows/s out, "
        f"{told['threads']} threads keep {told['cores_busy']:.2f} cores busy",
        f"  latency {told['latency_p50_ms']:.2f} ms at the median, "
        f"{told['latency_p99_ms']:.2f} ms at 99 %",
        "",
        "     at s    rows/s in   rows/s out    p50 ms    p99 ms     backlog",
    ]
    every = max(1, -(-len(seen) // LINES))
    for observation in seen[every - 1 :: every]:
        backlog = [s.backlog_rows for s in observation.sources if s.backlog_rows is not None]
        lasted = observation.times.total_s
        lines.append(
            f"{observation.at_s:9.1f} {observation.rows_in / lasted:12,.0f} "
            f"{observation.rows_out / lasted:12,.0f} {observation.latency_p50_ms:9.2f} "
            f"{observation.latency_p99_ms:9.2f} {f'{sum(backlog):,}' if backlog else '-':>11}"
        )
    lines += ["", "   busy  overhead    waiting  replicas  pipeline"]
    shown: set[str] = set()
    for source in seen[-1].sources:
        if source.busy_share is not None and all(
            source.source != p.region for p in seen[-1].pipelines
        ):
            lines.append(
                f"{source.busy_share:7.1%} {'':>9} {'':>10} {readers[source.source]:9}  "
                f"source {source.source}"
            )
    for pipeline in seen[-1].pipelines:
        region = next(r for r in seen[-1].regions if r.region == pipeline.region)
        # What waits in front of a region is shown beside the first of its pipelines.
        waiting = "" if region.region in shown else f"{region.queue_rows:,.0f}"
        shown.add(region.region)
        lines.append(
            f"{pipeline.busy_share:7.1%} {pipeline.overhead_share:9.1%} {waiting:>10} "
            f"{region.replicas:9}  {' · '.join(pipeline.steps)}"
        )
    return "\n".join(lines)
