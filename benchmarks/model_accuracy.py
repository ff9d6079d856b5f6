"""The models against reality: predicted and measured throughput of every plan, local and Spark.

Costs come from a profile, overheads from a calibration; nothing is fitted to the runs. Because the
speed of a shared machine drifts, each run stands between two short profiles and two looks at what
all cores are worth, and what counts is the ratio of prediction and measurement of that moment; the
median over the rounds is the case's. The error of a case is how far that ratio is from 1.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from harness import Report, main
from local_model import LocalCosts, estimate, local_costs
from model_cases import Case, choices, local_cases, spark_cases

from anabranch.engines.engine import Options
from anabranch.engines.measuring.calibration import (
    calibrate_local,
    parallel_share,
    steady_rate_per_s,
    this_machine,
)
from anabranch.engines.measuring.profiling import profile_flow
from anabranch.engines.measuring.spark_calibration import fit, spark_trials, tour_spark
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.spark.model import predicted_batch_s
from anabranch.engines.spark.session import session
from anabranch.planning.flow_problem import problem_for
from anabranch.planning.machine import Machine
from anabranch.planning.models.spark import Slots, SparkCosts
from anabranch.planning.plan import Plan
from anabranch.planning.profile import Overheads, Profile

BAR = 0.15
RUN_S, SIMULATED_S = 0.5, 5.0
PROFILED_BATCHES = 6
MICROSECONDS = 1e6


@dataclass(frozen=True)
class Moment:
    """What was known of a case around one run."""

    profile: Profile
    machine: Machine


def measure(quick: bool) -> Report:
    report = Report("model_accuracy", "The models predict throughput within 15 % at the median")
    machine = this_machine()
    report.add_figure("cores_worth", machine.capacity)
    measure_local(report, machine, 1 if quick else 4)
    if not quick:
        measure_spark(report, machine, rounds=2)
    return report


# The local engine


def measure_local(report: Report, machine: Machine, rounds: int) -> None:
    cases = local_cases()
    calibrated = {
        rows: local_costs(calibrate_local(machine, rows, 3 if rounds > 1 else 1), rows)
        for rows in sorted({case.batch_rows for case in cases})
    }
    for rows, costs in calibrated.items():
        for name in ("handover_ns", "replication_ns", "keyed_replication_ns"):
            report.add_figure(f"local_{rows}_rows_{name}", getattr(costs, name))
    found: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for case in cases:
            for plan, figures in local_round(case, machine, calibrated[case.batch_rows]):
                found.setdefault(f"local_{case.name}_{plan}", []).append(figures)
    tell(report, "local", found)


def local_round(
    case: Case, machine: Machine, costs: LocalCosts
) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """By plan: predicted by the model, by the simulator, and measured, in tuples a second."""
    before = moment(case, machine)
    for name, plan in case.plans.items():
        measured = steady_rate_per_s(case.flow, plan, RUN_S)
        after = moment(case, machine)
        around = (before, after)
        predicted = statistics.mean(predict_local(case, plan, each, costs) for each in around)
        simulated = statistics.mean(simulate(case, plan, each, costs) for each in around)
        yield name, (predicted, simulated, measured)
        before = after


def moment(case: Case, machine: Machine) -> Moment:
    """A short profile, and what all cores are worth now."""
    plan = next(iter(case.plans.values()))
    profile = profile_flow(case.flow, PROFILED_BATCHES * case.batch_rows, plan)
    return Moment(profile, replace(machine, parallel_share=parallel_share(machine.cores)))


def predict_local(case: Case, plan: Plan, known: Moment, costs: LocalCosts) -> float:
    """Pipelined Fission's model in the form of the local engine, with the flow's regions."""
    problem = problem_for(case.flow, known.profile, known.machine)
    found = estimate(problem.profile, choices(plan), known.machine.capacity, costs)
    return found.throughput * MICROSECONDS


def simulate(case: Case, plan: Plan, known: Moment, costs: LocalCosts) -> float:
    """The same plan in virtual time, with overheads per tuple."""
    by_key = any(each.bucket_map and each.replicas > 1 for each in plan.regions)
    copying_ns = costs.keyed_replication_ns if by_key else costs.replication_ns
    overheads = Overheads(costs.handover_ns / costs.batch_rows / 1000, copying_ns / 1000)
    profile = replace(known.profile, overheads=overheads)
    run = SimulatorEngine(case.flow, plan, Options(), profile, known.machine)
    run.start(lambda event: None)
    run.wait(SIMULATED_S)
    return run.rows[0] / SIMULATED_S


# Spark


def measure_spark(report: Report, machine: Machine, rounds: int) -> None:
    spark = session(app="model-accuracy")
    try:
        costs = fit(spark_trials(spark, rounds), machine.cores)
        for name in ("batch_s", "stage_s", "task_s", "shuffle_row_ns", "shuffle_byte_ns"):
            report.add_figure(f"spark_{name}", getattr(costs, name))
        found: dict[str, list[tuple[float, float, float]]] = {}
        for case in spark_cases():
            look = partial(spark_moment, case, machine)
            turns = tour_spark(case.flow, case.plans, rounds, look, batches=2, session=spark)
            for turn in turns:
                plan = case.plans[turn.plan]
                around = (turn.before, turn.after)
                predicted = statistics.mean(predict_spark(case, plan, m, costs) for m in around)
                measured = case.batch_rows / statistics.mean(turn.seconds)
                figures = (predicted, predicted, measured)
                found.setdefault(f"spark_{case.name}_{turn.plan}", []).append(figures)
    finally:
        spark.stop()
    tell(report, "spark", found)


def spark_moment(case: Case, machine: Machine) -> Moment:
    plan = reads_as(next(iter(case.plans.values())), case.jumbo_rows)
    profile = profile_flow(case.flow, PROFILED_BATCHES * case.jumbo_rows, plan)
    return Moment(profile, replace(machine, parallel_share=parallel_share(machine.cores)))


def reads_as(plan: Plan, most_rows: int) -> Plan:
    """The plan to profile with, so that steps get jumbo tuples as large as in Spark's tasks."""
    for source in plan.sources:
        rows = max(1, min(most_rows, source.batch_rows // source.replicas))
        plan = plan.with_source(source.source, batch_rows=rows)
    return plan


def predict_spark(case: Case, plan: Plan, known: Moment, costs: SparkCosts) -> float:
    slots = Slots(known.machine.cores, known.machine.capacity)
    rows, jumbo = case.batch_rows, case.jumbo_rows
    return rows / predicted_batch_s(case.flow, plan, known.profile, costs, slots, rows, jumbo)


# Telling


def tell(report: Report, engine: str, found: dict[str, list[tuple[float, float, float]]]) -> None:
    """Every case, and the median over the cases of an engine."""
    errors: dict[str, list[float]] = {"model": [], "simulator": []}
    for name, rounds in found.items():
        key = name.replace(" ", "_")
        report.add_figure(f"{key}_measured_per_s", statistics.median(m for _, _, m in rounds))
        report.add_figure(f"{key}_predicted_per_s", statistics.median(p for p, _, _ in rounds))
        ratio = statistics.median(p / m for p, _, m in rounds)
        errors["model"].append(abs(ratio - 1))
        report.add_figure(f"{key}_error", ratio - 1)
        if engine == "local":
            simulated = statistics.median(s / m for _, s, m in rounds)
            errors["simulator"].append(abs(simulated - 1))
            report.add_figure(f"{key}_simulator_error", simulated - 1)
    report.add_bar(f"{engine}_median_error", statistics.median(errors["model"]), BAR, False)
    report.add_figure(f"{engine}_worst_error", max(errors["model"]))
    if engine == "local":
        report.add_figure("simulator_median_error", statistics.median(errors["simulator"]))
    print(f"{engine}: done", file=sys.stderr)


if __name__ == "__main__":
    main(measure)
