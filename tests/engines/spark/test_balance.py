"""Policy `balance` on Spark: hot buckets move, results stay, a hot key is named."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.engines.skewed import QUICK, Skewed, keys_of_replica_0

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

BATCH = 10_000


def test_hot_buckets_move_to_the_other_replica_and_nobody_can_tell(spark: SparkSession) -> None:
    skewed = Skewed(keys_of_replica_0(4), 0.8, rows=5 * BATCH)
    flow, out = skewed.flow()
    plan = skewed.plan(flow, BATCH)
    run = ab.start(flow, plan=plan, session=spark, policy=QUICK)
    assert run.await_termination(100)
    tried, judged = run.decisions[:2]
    assert (tried.outcome, judged.outcome) == ("tried", "kept")
    assert "region numbered: replica 0 has" in tried.why
    before, after = (
        skewed.imbalance(each.region("numbered").bucket_map) for each in (plan, run.plan)
    )
    assert before > 1.7
    assert after < 1.5
    assert out.table().to_pylist() == skewed.expected()


def test_a_key_that_no_move_can_help_is_named_once(spark: SparkSession) -> None:
    skewed = Skewed(keys_of_replica_0(1), 0.95, rows=3 * BATCH)
    flow, out = skewed.flow()
    run = ab.start(flow, plan=skewed.plan(flow, BATCH), session=spark, policy=QUICK)
    assert run.await_termination(100)
    [named] = [decision for decision in run.decisions if "alone has" in decision.why]
    assert named.outcome == "noted"
    assert f"region numbered: k {skewed.hot[0]} alone has 0.9" in named.why
    assert out.table().to_pylist() == skewed.expected()
