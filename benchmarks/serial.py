"""What is still serial in each application, why, and how many cores does that let help?

Every application reads stored Parquet files and writes Parquet, on the local engine, with 4
replicas of all that can have them. Counted from observations: how many rows pass regions of one
replica for each row that is read (at most 1), and which part of the time that threads work is
theirs. Both are split by the reason: an operator that is `stateful` by definition, and everything
else, which could be avoided. The bars are for the latter.

A profile of the same data gives the bound on the cores that can help; the simulator runs the best
plan of 8, 64 and 512 cores, where handing over costs nothing, and must stay below it.

    python benchmarks/serial.py --apps finance,linear-road
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import Report
from speedup_data import CASES, FILES, Case, rows_of

import anabranch as ab
from anabranch.apps import APPS
from anabranch.engines.measuring.profiling import profile_flow
from anabranch.engines.simulator.flows import specs_of
from anabranch.engines.simulator.simulation import Simulation
from anabranch.events import Event, Observed
from anabranch.flow import Flow
from anabranch.planning.flow_problem import as_plan, per_s, problem_for
from anabranch.planning.machine import Machine
from anabranch.planning.plan import Plan
from anabranch.planning.planners.exact import MOST_THREADS, exact
from anabranch.planning.profile import Profile
from anabranch.planning.regions import Region, RegionKind, Serial, regions, shape_of
from anabranch.planning.serial import SerialWork, serial_of, serial_work
from anabranch.planning.starting import side_by_side
from anabranch.view.run_state import work_seen
from anabranch.view.serial_report import percent

REPLICAS = 4
CORES = (8, 64, 512)
AVOIDABLE = 0.05
"""At most so much of an application may be serial that is not stateful by definition."""
PART, QUICK_PART = 16, 128
"""What part of the rows of `speedup.py` is read."""
BATCHES, BATCH_ROWS = 16, 65_536
QUEUED_S = 0.1
"""Queues of the simulation hold what the plan reads in this time: they are full soon."""
WARM_S, COUNTED_S = 2.0, 3.0
"""Virtual seconds: before rows are counted, and while they are."""


@dataclass(frozen=True)
class Row:
    """What one application has.

    Attributes:
        rows: Rows that were read.
        stateful_rows_share: Rows that passed stateful regions, for each that was read; at most 1.
        avoidable_rows_share: Rows that passed other regions of one replica, for each; at most 1.
        stateful_work_share: Part of the time that threads worked in stateful regions.
        avoidable_work_share: Part of that time in other regions of one replica.
        stateful: The stateful regions.
        avoidable: The others that rows have passed, with the reason.
        bound_cores: Cores that can help, by the profile; None for no bound.
        simulated: Speedup of the best plan over one core in the simulator, by number of cores.
    """

    rows: int
    stateful_rows_share: float
    avoidable_rows_share: float
    stateful_work_share: float
    avoidable_work_share: float
    stateful: str
    avoidable: str
    bound_cores: float | None
    simulated: dict[str, float]

    @property
    def above_bound(self) -> float:
        """The greatest speedup in the simulator, as a part of the bound."""
        return 0.0 if self.bound_cores is None else max(self.simulated.values()) / self.bound_cores

    def as_object(self) -> dict[str, Any]:
        """As results are kept: a column for each number of cores."""
        told = asdict(self)
        speedups = told.pop("simulated")
        return told | {f"simulated_{cores}_cores": round(speedups[cores], 2) for cores in speedups}


def measure_app(case: Case, root: Path, quick: bool) -> Row:
    """Run an application, profile it, and simulate the best plans."""
    folder = case.write(root, max(FILES, case.rows // (QUICK_PART if quick else PART)))
    flow = case.flow(folder, folder / "out")
    most = max(rows_of(flow).values())
    plan = side_by_side(flow, REPLICAS, max(1, min(BATCH_ROWS, most // BATCHES)))
    work, rows = run(flow, plan)
    read = sum(rows[name] for name in flow.sources())
    profile = profile_flow(flow, most, plan)
    serial = [region for region in regions(flow) if region.serial is not None]
    stateful = [region for region in serial if region.serial is Serial.STATEFUL]
    avoidable = [region for region in serial if region.serial is not Serial.STATEFUL]
    shutil.rmtree(folder)
    return Row(
        read,
        min(1.0, sum(rows[region.steps[0]] for region in stateful) / read),
        min(1.0, sum(rows[region.steps[0]] for region in avoidable) / read),
        _share(work, stateful),
        _share(work, avoidable),
        ", ".join(region.name for region in stateful),
        ", ".join(f"{r.name} {r.serial.value}" for r in avoidable if r.serial and rows[r.steps[0]]),
        serial_of(profile, shape_of(flow)).most_cores,
        simulated(flow, profile),
    )


def run(flow: Flow, plan: Plan) -> tuple[SerialWork, Counter[str]]:
    """Run a plan with several replicas of all that can have them.

    Returns:
        The serial work, and how many rows came into each step.
    """
    require_reasons(flow, plan)
    work: Counter[tuple[str, ...]] = Counter()
    rows: Counter[str] = Counter()

    def note(event: Event) -> None:
        if not isinstance(event, Observed):
            return
        seen = event.observation
        for steps, threads in work_seen(seen, plan).items():
            work[steps] += threads * seen.times.total_s
        rows.update({each.source: each.rows for each in seen.sources})
        rows.update({each.step: each.rows_in for each in seen.steps})

    result = ab.run(flow, engine="local", plan=plan, listener=note)
    if not result.ended or result.rows_in != sum(rows_of(flow).values()):
        raise AssertionError(f"{result.rows_in} rows were read, {rows_of(flow)} were due")
    return serial_work(shape_of(flow), work), rows


def require_reasons(flow: Flow, plan: Plan) -> None:
    """Raise unless the regions of one replica are those that say why they are serial."""
    for region in regions(flow):
        if region.kind is RegionKind.SOURCE:
            replicas = plan.source(region.name).replicas
        else:
            replicas = plan.region(region.name).replicas
        if (replicas == 1) != (region.serial is not None):
            raise AssertionError(f"{region.name} has {replicas} replicas, though {region.serial}")


def simulated(flow: Flow, profile: Profile) -> dict[str, float]:
    """How many times as fast the best plan of so many cores is as one core."""
    one = per_s(profile) / profile.work
    return {str(cores): rate(flow, profile, cores) / one for cores in CORES}


def rate(flow: Flow, profile: Profile, cores: int) -> float:
    """Rows a second that the simulator reads under the best plan."""
    machine = Machine.of_cores(cores)
    most = min(MOST_THREADS, problem_for(flow, profile, machine).most_threads)
    answer = exact(problem_for(flow, profile, machine, most))
    plan = as_plan(flow, answer)
    for source in plan.sources:
        queued = max(1, round(QUEUED_S * answer.throughput * per_s(profile)))
        plan = plan.with_source(source.source, in_flight_limit=queued)
    simulation = Simulation(profile, specs_of(flow, plan, profile, machine), machine)
    read = []
    for seconds in (WARM_S, COUNTED_S):
        simulation.advance(seconds)
        read.append(sum(simulation.totals.operators[name].rows_in for name in flow.sources()))
    return (read[1] - read[0]) / COUNTED_S


def judge(found: dict[str, Row]) -> Report:
    """The bars: what could be avoided is small, and the simulator agrees with the bound."""
    report = Report("serial", "Little is serial in any application but stateful operators")
    shares = {
        "rows": [row.avoidable_rows_share for row in found.values()],
        "work": [row.avoidable_work_share for row in found.values()],
    }
    for what, each in shares.items():
        report.add_figure(f"applications_within_{what}_bar", sum(s <= AVOIDABLE for s in each))
        report.add_bar(f"most_avoidable_{what}_share", max(each), AVOIDABLE, at_least=False)
    over = round(max(row.above_bound for row in found.values()), 3)
    report.add_bar("simulated_speedup_per_bound", over, 1.0, at_least=False)
    return report


def line(name: str, row: Row) -> str:
    """One application in a table of people."""
    bound = "none" if row.bound_cores is None else f"{row.bound_cores:,.1f}"
    shares = (
        row.avoidable_rows_share,
        row.avoidable_work_share,
        row.stateful_rows_share,
        row.stateful_work_share,
    )
    cells = [f"{percent(share):>8}" for share in shares]
    speedups = [f"{row.simulated[str(cores)]:7.1f}" for cores in CORES]
    return f"{name:22}{''.join(cells)} {bound:>9} {''.join(speedups)}  {row.stateful}"


HEADER = (
    f"{'':22}{'rows':>8}{'work':>8}{'st.rows':>8}{'st.work':>8} {'bound':>9} "
    f"{''.join(f'{cores:7}' for cores in CORES)}  stateful"
)


def measure(options: argparse.Namespace, root: Path) -> tuple[dict[str, Row], Report]:
    """All applications that were asked for."""
    found: dict[str, Row] = {}
    say(HEADER)
    for name in options.apps:
        found[name] = measure_app(CASES[name], root, options.quick)
        say(line(name, found[name]))
    return found, judge(found)


def say(text: str) -> None:
    """On standard error: standard output may be JSON."""
    print(text, file=sys.stderr, flush=True)


def _share(work: SerialWork, among: Sequence[Region]) -> float:
    names = {region.name for region in among}
    return sum(each.share or 0.0 for each in work.regions if each.region in names)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    known = [name for name in CASES if name in APPS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apps", type=lambda names: names.split(","), default=known)
    parser.add_argument("--quick", action="store_true", help="an eighth of the rows")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.apps if name not in known]:
        parser.error(f"{unknown} are none of {known}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="serial-", ignore_cleanup_errors=True) as folder:
        found, report = measure(options, Path(folder))
    if options.json:
        told = json.loads(report.to_json())
        told["figures"] |= {app: row.as_object() for app, row in found.items()}
        print(json.dumps(told))
    else:
        report.print()


if __name__ == "__main__":
    main()
