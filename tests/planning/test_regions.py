"""Joker's rules (§3.2), as text in `fixtures/` and where a tree does not say enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.planning.regions import Edge, Region, RegionKind, Serial, region_edges, regions
from tests.planning.described_flows import built, read_fixtures

CASES = list(read_fixtures(Path(__file__).parent / "fixtures"))


@pytest.mark.parametrize(("flow", "tree"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_tree_of_a_flow_is_the_one_in_the_fixture(flow, tree):
    _, plan = built(flow)
    assert repr(plan) == tree


def by_name(text: str) -> dict[str, Region]:
    flow, _ = built(text)
    return {region.name: region for region in regions(flow)}


def test_the_key_of_a_region_is_that_of_its_first_keyed_step():
    found = by_name(
        """
        s: source a b
        m: filter
        p: partitioned by a carries b
        q: partitioned by a b
        out: sink
        """
    )
    assert found["p"].key == ("a",)


def test_kinds_say_who_may_be_replicated():
    found = by_name(
        """
        s: source a b
        m: map makes a b
        p: partitioned by a
        g: stateful
        x: shared
        out: sink
        """
    )
    assert {name: region.replicable for name, region in found.items()} == {
        "s": True,
        "m": True,
        "p": True,
        "g": False,
        "x": True,
        "out": True,
    }


def test_a_clock_may_be_replicated_where_it_gets_runs_of_one_sources_rows():
    def clock(*steps: str) -> Region:
        return by_name("\n".join(["s: source a b", *steps, "t: timed by a", "out: sink"]))["t"]

    behind_one = [clock(), clock("m: map makes a b", "f: filter")]
    behind_others = [
        clock("r: source a b", "u: union s r"),
        clock("m: map makes a b", "u: union s m"),
        clock("p: partitioned by a carries b"),
    ]
    assert [(c.kind, c.replicable) for c in behind_one] == [(RegionKind.CLOCK, True)] * 2
    assert [(c.kind, c.replicable) for c in behind_others] == [(RegionKind.STATEFUL, False)] * 3


def test_buckets_are_the_flows_for_keys_one_for_global_state_and_its_own_for_shared():
    found = by_name(
        """
        s: source a b
        m: map makes a b
        p: partitioned by a
        g: stateful
        x: shared
        out: sink
        """
    )
    assert {n: r.buckets for n, r in found.items() if n not in ("s", "out")} == {
        "m": 0,
        "p": 12,
        "g": 1,
        "x": 6,
    }


def test_only_stateless_regions_take_tuples_in_any_order():
    found = by_name(
        """
        s: source a b
        m: map makes a b
        p: partitioned by a
        g: stateful
        x: shared
        out: sink
        """
    )
    assert [n for n, r in found.items() if not r.ordered] == ["s", "m"]


def test_a_sink_under_key_order_takes_tuples_as_they_come():
    flow = Flow("f", order="key")
    flow.source("s", memory([{"a": 1}])).sink("out", collect())
    expected = Region("out", RegionKind.SINK, ("out",), ordered=False, serial=Serial.KEY_ORDER)
    assert regions(flow)[-1] == expected


def test_a_sink_behind_a_clock_has_one_replica_and_its_late_tuples_may_have_several():
    found = by_name(
        """
        s: source a b
        c: timed by a
        out: sink <- c
        late: sink <- c.late
        """
    )
    assert (found["out"].replicable, found["late"].replicable) == (False, True)


def test_a_sink_of_a_changelog_has_one_replica():
    flow = Flow("f")
    source = flow.source("s", memory([{"k": 1}]))
    source.aggregate("count", key="k", n=count(), emit="changes").sink("out", collect())
    assert not regions(flow)[-1].replicable


def test_every_step_is_in_exactly_one_region():
    for _, text, _ in CASES:
        flow, _ = built(text)
        placed = [step for region in regions(flow) for step in region.steps]
        assert sorted(placed) == sorted(flow.graph.steps)


def test_regions_come_upstream_first():
    for _, text, _ in CASES:
        flow, _ = built(text)
        order = flow.resolve().order
        firsts = [order.index(region.steps[0]) for region in regions(flow)]
        assert firsts == sorted(firsts)


def test_edges_name_the_stream_the_region_entered_and_its_port():
    flow, _ = built(
        """
        s: source a b
        t: source a b
        c: timed by a <- s
        u: union t c.late
        p: partitioned by a
        out: sink
        """
    )
    assert region_edges(flow, regions(flow)) == [
        Edge(0, "s", 0, "c", 0),
        Edge(1, "t", 0, "p", 0),
        Edge(2, "c", 1, "p", 1),
        Edge(3, "p", 0, "out", 0),
    ]


def test_a_sink_restores_the_order_of_a_key_behind_dealt_out_replicas():
    flow = Flow("f", order="key")
    source = flow.source("s", memory([{"k": 1}]))
    counted = source.aggregate("count", key="k", n=count())
    counted.sink("direct", collect())
    counted.map("mapped", lambda b: {}, keeps="*").sink("behind", collect())
    ordered = {r.name: r.ordered for r in regions(flow)}
    assert (ordered["direct"], ordered["behind"]) == (False, True)
