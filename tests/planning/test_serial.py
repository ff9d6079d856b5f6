"""What is serial and why: the reasons that decide on replicas, and what follows from costs."""

from __future__ import annotations

import pytest

from anabranch.apps import APPS
from anabranch.events import Shape, StepShape
from anabranch.flow import Flow
from anabranch.graph import StateKind
from anabranch.io import collect, memory, parquet, stamped
from anabranch.operators.aggregates.functions import count
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.planning.regions import Serial, regions, shape_of
from anabranch.planning.serial import LIMITED, serial_of, serial_work
from tests.planning.described_flows import built

ROWS = [{"k": 1}]


def reasons(flow: Flow) -> dict[str, Serial | None]:
    return {region.name: region.serial for region in regions(flow)}


def described(text: str) -> dict[str, Serial | None]:
    flow, _ = built(text)
    return reasons(flow)


def test_operators_are_serial_by_their_state():
    found = described(
        """
        s: source a b
        m: map makes a b
        p: partitioned by a
        g: stateful
        x: shared
        out: sink
        c: timed by a <- s
        timed: sink <- c
        u: union s m
        d: timed by a
        both: sink
        """
    )
    serial = {name: found[name] for name in ("s", "m", "p", "g", "x", "c", "d")}
    assert serial == {
        "s": None,
        "m": None,
        "p": None,
        "g": Serial.STATEFUL,
        "x": None,
        "c": None,
        "d": Serial.CLOCK,
    }


def test_a_stateful_step_makes_a_region_stateful_that_begins_with_a_clock():
    found = described(
        """
        s: source a b
        m: map makes a b
        u: union s m
        c: timed by a
        g: stateful
        out: sink
        """
    )
    assert found["c"] is Serial.STATEFUL


def test_one_bucket_has_one_replica():
    flow = Flow("f", buckets=1)
    flow.source("s", memory(ROWS)).aggregate("count", key="k", n=count()).sink("out", collect())
    assert reasons(flow)["count"] is Serial.ONE_BUCKET


def test_a_source_that_is_stamped_on_reading_has_one_reader():
    flow = Flow("f")
    flow.source("s", stamped(memory(ROWS), "at")).sink("out", collect())
    assert reasons(flow)["s"] is Serial.ONE_READER


def test_sinks_say_what_keeps_them_from_taking_ranges(tmp_path):
    flow = Flow("f")
    left, right = flow.source("l", memory(ROWS)), flow.source("r", memory(ROWS))
    left.sink("files", parquet(str(tmp_path / "files")))
    left.sink("kept", collect())
    left.union("both", right).sink("merged", parquet(str(tmp_path / "merged")))
    left.timed("clock", "k").sink("timed", parquet(str(tmp_path / "timed")))
    changes = left.aggregate("count", key="k", n=count(), emit="changes")
    changes.sink("newest", parquet(str(tmp_path / "newest")))
    found = reasons(flow)
    assert {name: found[name] for name in flow.sinks()} == {
        "files": None,
        "kept": Serial.STAGED,
        "merged": None,
        "timed": Serial.EVENT_TIME,
        "newest": Serial.CHANGELOG,
    }


def test_a_sink_under_key_order_says_so():
    flow = Flow("f", order="key")
    flow.source("s", memory(ROWS)).sink("out", collect())
    assert reasons(flow)["out"] is Serial.KEY_ORDER


@pytest.mark.parametrize("name", APPS)
def test_a_region_without_a_reason_may_have_replicas_and_one_with_a_reason_gains_nothing(name):
    flow = APPS[name].build()
    plan = Plan.sequential(flow)
    for region in regions(flow):
        if region.serial is not None:
            assert not region.replicable or region.serial is Serial.STAGED
            continue
        if region.name in flow.sources():
            plan = plan.with_source(region.name, replicas=2)
        else:
            plan = plan.with_replicas(region.name, 2)
    plan.validate(flow)


def test_the_shape_of_a_flow_has_the_reasons():
    flow, _ = built(
        """
        s: source a b
        g: stateful
        h: stateful
        out: sink
        """
    )
    found = {step.step: step.serial for step in shape_of(flow).steps}
    assert (found["s"], found["g"], found["h"]) == ("", "is stateful", "is stateful")


STATEFUL = StateKind.STATEFUL


def test_the_slowest_thread_of_all_serial_regions_bounds_the_cores():
    shape = Shape(
        tuple(
            StepShape(name, "operator", region=region, serial=why)
            for name, region, why in (
                ("parse", "parse", ""),
                ("sort", "sort", "is stateful"),
                ("rank", "sort", "is stateful"),
                ("out", "out", "takes a changelog"),
            )
        )
    )
    # The two steps of one region may run in two threads, as the work says here.
    found = serial_work(shape, {("parse",): 12.0, ("sort",): 4.0, ("rank",): 2.0, ("out",): 2.0})
    assert [(each.region, each.share) for each in found.regions] == [
        ("sort", pytest.approx(0.3)),
        ("out", pytest.approx(0.1)),
    ]
    assert (found.share, found.most_cores) == (pytest.approx(0.4), pytest.approx(5.0))
    fused = serial_work(shape, {("parse",): 12.0, ("sort", "rank"): 6.0, ("out",): 2.0})
    assert fused.most_cores == pytest.approx(20 / 6)


def test_work_that_nobody_measured_bounds_nothing():
    shape = Shape((StepShape("g", "operator", region="g", serial="is stateful"),))
    for work in (None, {}, {("g",): 0.0}):
        found = serial_work(shape, work)
        assert [each.region for each in found.regions] == ["g"]
        assert (found.share, found.most_cores) == (None, None)


def test_a_serial_region_without_work_bounds_nothing():
    shape = Shape((StepShape("g", "operator", region="g", serial="is stateful"),))
    found = serial_work(shape, {("other",): 3.0, ("g",): 0.0})
    assert (found.share, found.most_cores) == (0.0, None)


def test_a_profile_counts_the_tuples_that_reach_an_operator_and_the_time_that_it_waits():
    many = OperatorProfile("cut", 1.0, selectivity=3.0)
    ask = OperatorProfile("ask", 1.0, state=STATEFUL, wait=2.0)
    assert serial_of(chain([many, ask])).most_cores == pytest.approx(10 / 9)


def test_a_profile_names_what_has_work_for_one_replica_only():
    one_part = OperatorProfile("lines", 1.0, max_replicas=1)
    found = serial_of(chain([one_part, OperatorProfile("parse", 1.0, max_replicas=2)]))
    assert [(each.region, each.why) for each in found.regions] == [("lines", LIMITED)]


def test_reasons_of_a_flow_come_before_those_of_its_profile():
    flow, _ = built(
        """
        s: source a b
        c: timed by a
        out: sink
        """
    )
    clock = OperatorProfile("c", 1.0, state=STATEFUL)
    profile = chain([OperatorProfile("s", 1.0), clock, OperatorProfile("out", 2.0)])
    found = {each.region: each.why for each in serial_of(profile, shape_of(flow)).regions}
    assert found == {"out": Serial.EVENT_TIME.value}
