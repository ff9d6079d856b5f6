"""Profiles and machines, and that their files hold what they say."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.errors import PlanError
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine, machine_text, read_machine
from anabranch.planning.profile import (
    OperatorProfile,
    Overheads,
    Profile,
    StreamProfile,
    profile_text,
    read_profile,
)
from papers.pipelined_fission.random_profiles import TABLE_1, random_graph


def operator(name: str, cost: float = 1.0, selectivity: float = 1.0) -> OperatorProfile:
    return OperatorProfile(name, cost, selectivity)


DIAMOND = Profile(
    (operator("join"), operator("left", 2.0), operator("right", 3.0), operator("source", 4.0)),
    (
        StreamProfile("source", "left", 0.5),
        StreamProfile("source", "right", 2.0),
        StreamProfile("left", "join", 1.0),
        StreamProfile("right", "join", 0.25),
    ),
)


def test_operators_stand_behind_their_producers():
    assert [o.name for o in DIAMOND.operators] == ["source", "left", "right", "join"]


def test_tuples_that_reach_an_operator_are_those_of_all_its_streams():
    assert DIAMOND.visits == {"source": 1.0, "left": 0.5, "right": 2.0, "join": 1.0}
    assert DIAMOND.work == 4.0 + 0.5 * 2.0 + 2.0 * 3.0 + 1.0


def test_chains_end_where_ways_part_or_meet():
    assert set(DIAMOND.chains) == {("source",), ("left",), ("right",), ("join",)}
    line = Profile(
        (operator("a"), operator("b"), operator("c"), operator("d")),
        (
            StreamProfile("a", "b", 1.0),
            StreamProfile("b", "c", 1.0),
            StreamProfile("b", "d", 1.0),
        ),
    )
    assert set(line.chains) == {("a", "b"), ("c",), ("d",)}


def test_a_source_counts_with_its_rate():
    two = Profile(
        (replace(operator("a"), rate=3.0), operator("b"), operator("both")),
        (StreamProfile("a", "both", 1.0), StreamProfile("b", "both", 1.0)),
    )
    assert two.visits["both"] == 4.0


def test_costs_of_nothing_are_refused():
    with pytest.raises(PlanError, match="a cost above 0 somewhere"):
        Profile((operator("a", 0.0),))


@given(seed=st.integers(0, 10_000), operators=st.integers(1, 9))
def test_a_profile_is_what_its_file_says(seed: int, operators: int):
    settings = replace(TABLE_1, operators=operators, keys=3, most_replicas=5)
    profile = random_graph(np.random.default_rng(seed), settings)
    assume(profile.streams or operators == 1)  # no edges in a file mean a chain
    assert read_profile(profile_text(profile)) == profile


def test_everything_that_is_known_of_an_operator_is_kept():
    known = OperatorProfile(
        "count", 2.0, 0.5, StateKind.PARTITIONED, ("a", "b"), 7, 40.0, 80.0, 1.0, 9.0, 1000, 0.2
    )
    profile = Profile((known,), (), Overheads(1.0, 2.0), "us", 1.2, "word-count")
    assert read_profile(profile_text(profile)) == profile


def test_a_machine_is_what_its_file_says():
    latency, bandwidth = ((0.0, 120.0), (130.0, 0.0)), ((9e3, 4e3), (5e3, 8e3))
    machine = Machine(
        "m",
        2,
        4,
        2.4,
        128,
        latency,
        bandwidth,
        2,
        50.0,
        1000.0,
        0.9,
        {"local": Overheads(100.0, 7.0)},
    )
    assert read_machine(machine_text(machine)) == machine


def test_memory_of_a_socket_itself_takes_no_detour():
    machine = Machine("m", 2, 4, latency_ns=((50.0, 120.0), (130.0, 50.0)))
    assert (machine.latency(0, 0), machine.latency(0, 1), machine.latency(1, 0)) == (
        0.0,
        120.0,
        130.0,
    )
    assert machine.bandwidth(0, 1) == float("inf")


def test_sockets_are_spread_over_nodes_in_order():
    machine = Machine("m", 6, 1, nodes=3)
    assert [machine.node_of(socket) for socket in range(6)] == [0, 0, 1, 1, 2, 2]


def test_one_core_has_nothing_to_share():
    assert replace(Machine.of_cores(1), parallel_share=0.5).capacity == 1.0
    assert replace(Machine.of_cores(4), parallel_share=0.9).capacity == pytest.approx(3.6)


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        ({"operators": [{"nme": "a", "cost": 1}]}, "name"),
        ({"operators": [{"name": "a", "cost": 1, "state": "statefull"}]}, "stateful"),
        ({"operators": [{"name": "a", "cost": 1}], "unit": "nss"}, "ns"),
        ({"operators": [{"name": "a", "cost": 1}], "overheads": {"replicaton": 1}}, "replication"),
    ],
)
def test_a_misspelt_name_or_word_is_answered_with_the_nearest(data: object, meant: str):
    with pytest.raises(PlanError) as caught:
        read_profile(json.dumps(data))
    assert caught.value.remedy == f"did you mean {meant!r}?"


def test_a_field_that_is_null_is_a_field_that_is_left_out():
    plain = read_profile('{"operators": [{"name": "a", "cost": 1}]}')
    text = '{"operators": [{"name": "a", "cost": 1, "rate": null}], "overheads": null}'
    assert read_profile(text) == plain
