"""Calibration: the paper's equations on scripted throughputs, and figures of this machine."""

from math import log2

import pytest

from anabranch.engines.measuring.calibration import (
    calibrate,
    parallel_share,
    replication_ns,
    this_machine,
    thread_switch_ns,
)
from anabranch.engines.measuring.processor import clock_ghz
from anabranch.engines.measuring.spark_calibration import BatchTrial, fit, overheads
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine
from anabranch.planning.models.spark import SparkCosts
from anabranch.planning.profile import Overheads


class ModelBench:
    """An engine that does exactly what equations 15 to 18 say, on a machine with enough cores."""

    def __init__(self, switch_ns, copy_ns, capacity=None):
        self.switch_ns, self.copy_ns, self.capacity = switch_ns, copy_ns, capacity
        self.runs = []

    def rate_per_s(self, profile, pipelines, replicas):
        self.runs.append((len(profile.operators), tuple(pipelines), replicas))
        threads = replicas * len(pipelines)
        speed = 1.0 if self.capacity is None else min(1.0, self.capacity / threads)
        cost_ns = 1000 * profile.operators[0].cost
        if len(profile.operators) == 2:
            turn = 2 * cost_ns if len(pipelines) == 1 else cost_ns + self.switch_ns
            return 1e9 / turn * speed
        keyed = profile.operators[0].state is StateKind.PARTITIONED
        turn = (2 * self.switch_ns + cost_ns) / (replicas * speed)
        turn += log2(replicas) * self.copy_ns[1 if keyed else 0]
        return 1e9 / turn


@pytest.mark.parametrize("switch", [0.0, 95.0, 400.0])
def test_thread_switch_is_found_whatever_the_operators_cost(switch):
    for cost in (100.0, 19_000.0):
        found = thread_switch_ns(1e9 / (2 * cost), 1e9 / (cost + switch))
        assert found == pytest.approx(switch, abs=1e-6)


@pytest.mark.parametrize(("few", "many"), [(1, 2), (1, 4), (2, 8)])
def test_replication_cost_is_found_from_any_two_numbers_of_replicas(few, many):
    def rate(n):
        return 1e9 / ((2 * 95 + 19_000) / n + log2(n) * 4750)

    assert replication_ns({few: rate(few), many: rate(many)}) == pytest.approx(4750)


def test_an_engine_that_obeys_the_model_gets_its_own_overheads_back():
    found = calibrate(ModelBench(40.0, (25.0, 60.0)), Machine.of_cores(4), repeats=3)
    assert found.overheads.thread_switch == pytest.approx(40)
    assert found.overheads.replication == pytest.approx(60)
    assert found.stateless[1] == pytest.approx(25)
    assert found.partitioned[1] == pytest.approx(60)


def test_cores_that_slow_each_other_down_are_not_blamed_on_the_engine():
    machine = Machine("small", 1, 2, parallel_share=0.8)
    found = calibrate(ModelBench(40.0, (25.0, 25.0), capacity=1.6), machine, repeats=1)
    assert found.overheads.thread_switch == pytest.approx(40)
    assert found.overheads.replication == pytest.approx(25)


def test_noise_below_nothing_counts_as_nothing():
    class Lucky(ModelBench):
        def rate_per_s(self, profile, pipelines, replicas):
            return super().rate_per_s(profile, pipelines, replicas) * len(pipelines) * replicas

    found = calibrate(Lucky(0.0, (0.0, 0.0)), Machine.of_cores(2), repeats=1)
    assert found.thread_switch[1] < 0
    assert found.overheads == Overheads(0.0, 0.0)


def test_programs_take_turns_and_the_first_turn_warms_up():
    bench = ModelBench(1.0, (1.0, 1.0))
    calibrate(bench, Machine.of_cores(2), repeats=2)
    once = bench.runs[:6]
    assert bench.runs == once * 3
    assert (1, (1,), 2) in once


def test_thread_switches_may_be_measured_on_a_bench_of_their_own():
    bench, switching = ModelBench(1.0, (5.0, 5.0)), ModelBench(70.0, (9.0, 9.0))
    found = calibrate(bench, Machine.of_cores(2), 1, switching)
    assert found.overheads.thread_switch == pytest.approx(70)
    assert found.overheads.replication == pytest.approx(5)


def test_this_machine_has_cores_memory_and_a_share_of_them():
    for _ in range(5):  # whoever shares the machine may disturb some of them
        machine = this_machine(tries=1)
        assert machine.cores >= 1
        assert 0 < machine.parallel_share <= 1
        if machine.sockets > 1 or machine.bandwidth_mb_s[0][0] > 100:
            break
    assert machine.sockets > 1 or machine.bandwidth_mb_s[0][0] > 100


def test_one_core_is_worth_itself():
    assert parallel_share(1) == 1.0


@pytest.mark.parametrize(
    ("khz", "info", "ghz"),
    [
        ("2300000\n", "", 2.3),
        (None, "model name\t: A CPU @ 2.10GHz\ncpu MHz\t\t: 1999.500\n", 2.1),
        (None, "cpu MHz\t\t: 1999.500\n", None),
        (None, "no clock here", None),
        (None, None, None),
    ],
)
def test_the_clock_is_what_the_system_says(tmp_path, khz, info, ghz):
    files = {"khz": khz, "info": info}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    assert clock_ghz(tmp_path / "info", tmp_path / "khz") == ghz


SPARK = SparkCosts(0.1, 0.03, 0.02, 150.0, 9.0, 2.0)


def micro_batch_s(rows, replicas, width, slots=2, costs=SPARK, operator_ns=80.0):
    """What a flow of reader, replicas and ordered sink takes, written out."""
    seconds = costs.batch_s + rows * width * costs.sink_byte_ns / 1e9
    if replicas == 1:
        return seconds + costs.stage_s + costs.task_s + rows * operator_ns / 1e9
    waves = -(-replicas // slots)
    most = rows * waves / replicas
    one_row = (costs.shuffle_row_ns + width * costs.shuffle_byte_ns) / 1e9
    return (
        seconds
        + 3 * costs.stage_s
        + (2 + waves) * costs.task_s
        + most * (operator_ns / 1e9 + one_row)
        + rows * one_row
    )


def trials(noise=lambda n: 1.0):
    kinds = [(rows, n, 16) for rows in (2_000, 200_000) for n in (1, 2, 4)]
    kinds += [(200_000, n, 112) for n in (1, 2)]
    return [
        BatchTrial(*kind, tuple(micro_batch_s(*kind) * noise(n) for n in range(3)))
        for kind in kinds
    ]


def test_sparks_costs_are_found_from_micro_batches():
    found = fit(trials(), slots=2)
    for name in ("batch_s", "stage_s", "task_s", "shuffle_row_ns", "shuffle_byte_ns"):
        assert getattr(found, name) == pytest.approx(getattr(SPARK, name), rel=1e-3), name


def test_one_slow_micro_batch_does_not_change_them():
    found = fit(trials(lambda n: 5.0 if n == 2 else 1.0), slots=2)
    assert found.batch_s == pytest.approx(SPARK.batch_s, rel=1e-3)


def test_no_cost_is_below_zero():
    free = [BatchTrial(t.rows, t.replicas, t.row_bytes, (0.2,)) for t in trials()]
    found = fit(free, slots=2)
    assert found.batch_s == pytest.approx(0.2, rel=0.01)
    assert min(found.stage_s, found.task_s, found.shuffle_row_ns, found.shuffle_byte_ns) >= 0


def test_a_shuffle_is_a_way_out_and_a_way_in():
    assert overheads(SPARK).thread_switch == 75
    assert overheads(SPARK).replication == 0
