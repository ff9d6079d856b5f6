"""The time of a micro-batch, against examples worked out by hand."""

import pytest

from anabranch.planning.models.spark import (
    Slots,
    SparkCosts,
    Task,
    TaskPhase,
    batch_s,
    stage_s,
    waves_s,
)

FREE = SparkCosts(batch_s=0.0)


def test_an_empty_batch_costs_its_fixed_parts():
    costs = SparkCosts(batch_s=0.2, stage_s=0.05, task_s=0.01)
    assert batch_s(costs, [[Task(())], [Task(())]], Slots(2)) == pytest.approx(0.2 + 2 * 0.06)


def test_stages_run_one_after_another():
    stages = [
        [Task((TaskPhase((1.0,)),))],
        [Task((TaskPhase((0.5,)),)), Task((TaskPhase((0.5,)),))],
    ]
    assert batch_s(FREE, stages, Slots(2)) == pytest.approx(1.5)


@pytest.mark.parametrize(("tasks", "waves"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_equal_tasks_run_in_waves(tasks, waves):
    assert stage_s(FREE, [Task((TaskPhase((0.3,)),))] * tasks, Slots(2)) == pytest.approx(
        0.3 * waves
    )


def test_a_free_slot_takes_the_next_task():
    assert waves_s([3.0, 1.0, 1.0, 1.0], slots=2) == 3.0


def test_the_slowest_task_ends_a_stage():
    assert stage_s(
        FREE, [Task((TaskPhase((0.1,)),)), Task((TaskPhase((0.9,)),))], Slots(2)
    ) == pytest.approx(0.9)


def test_every_task_of_every_wave_is_launched():
    costs = SparkCosts(batch_s=0.0, task_s=0.1)
    assert stage_s(costs, [Task((TaskPhase((0.0,)),))] * 4, Slots(2)) == pytest.approx(0.2)


def test_pipelines_of_a_task_overlap_while_there_are_cores():
    two_threads = Task((TaskPhase((0.4, 0.6)),))
    assert stage_s(FREE, [two_threads], Slots(2, cores=2)) == pytest.approx(0.6)
    assert stage_s(FREE, [two_threads] * 2, Slots(2, cores=2)) == pytest.approx(1.0)


@pytest.mark.parametrize(("jumbos", "seconds"), [(1, 1.0), (2, 0.8), (4, 0.7), (0, 1.0)])
def test_few_jumbo_tuples_leave_little_to_overlap(jumbos, seconds):
    assert TaskPhase((0.4, 0.6), jumbos).elapsed_s == pytest.approx(seconds)


def test_phases_of_a_task_follow_one_another():
    ordered = Task((TaskPhase((0.4, 0.6)), TaskPhase((0.2,))))
    assert stage_s(FREE, [ordered], Slots(2)) == pytest.approx(0.8)


def test_cores_that_slow_each_other_down_take_longer():
    both = [Task((TaskPhase((1.0,)),)), Task((TaskPhase((1.0,)),))]
    assert stage_s(FREE, both, Slots(2, cores=1.6)) == pytest.approx(2 / 1.6)


def test_what_is_shuffled_costs_by_tuple_and_by_byte():
    costs = SparkCosts(batch_s=0.0, shuffle_row_ns=100.0, shuffle_byte_ns=2.0)
    shuffled = Task((TaskPhase((0.0,)),), shuffled_rows=1e6, row_bytes=50.0)
    assert stage_s(costs, [shuffled], Slots(2)) == pytest.approx(0.2)


def test_larger_batches_share_the_fixed_cost():
    costs = SparkCosts(batch_s=0.3)

    def rate(rows):
        return rows / batch_s(costs, [[Task((TaskPhase((rows * 1e-6,)),))]], Slots(2))

    assert rate(1e5) == pytest.approx(1e5 / 0.4)
    assert rate(1e6) == pytest.approx(1e6 / 1.3)
