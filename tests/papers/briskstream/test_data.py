"""The applications' files, and the functions that they were measured with."""

import json

import pytest

from anabranch.errors import UnknownNameError
from anabranch.graph import StateKind
from papers.briskstream import operators as ops
from papers.briskstream.inputs import SERVERS, application, server
from papers.briskstream.measure import (
    Measured,
    Outbox,
    measure,
    scale,
    tuple_bytes,
    write,
)
from papers.briskstream.operators import APPLICATIONS, PUBLISHED_BYTES, PUBLISHED_NS
from papers.briskstream.samples import SAMPLES, road_events


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_file_holds_the_graph_that_was_measured(name):
    profile, described = application(name), APPLICATIONS[name]
    assert {o.name for o in profile.operators} == {step.name for step in described.steps}
    assert [(s.producer, s.consumer, s.selectivity) for s in profile.streams] == [
        (e.producer, e.consumer, e.selectivity) for e in described.edges
    ]
    for step in described.steps:
        found = profile.by_name[step.name]
        assert found.cost > 0
        assert found.tuple_bytes > 0
        assert found.key == step.key
        assert (found.state is StateKind.PARTITIONED) == bool(step.key)


def test_word_count_stands_as_published():
    profile = application("wc")
    for name in PUBLISHED_NS:
        operator = profile.by_name[name]
        assert (operator.cost, operator.tuple_bytes) == (PUBLISHED_NS[name], PUBLISHED_BYTES[name])
    assert profile.visits["sink"] == 10


def test_linear_road_has_the_selectivities_of_table_8():
    visits = application("lr").visits
    assert visits["avg_speed"] == visits["accident_notify"] == 0.99
    assert visits["toll_notify"] == visits["sink"] == pytest.approx(3 * 0.99)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_has_two_trays(name):
    machine = server(name)
    near = max(machine.latency(a, b) for a in range(4) for b in range(4))
    far = min(machine.latency(a, b) for a in range(4) for b in range(4, 8))
    assert near < far


def test_what_does_not_exist_is_named():
    with pytest.raises(UnknownNameError, match="server-a"):
        server("server-c")
    with pytest.raises(UnknownNameError, match="wc"):
        application("word-count")


def test_sizes_follow_the_rule_that_gives_the_published_ones():
    assert tuple_bytes(("", 1, (2, 3.0))) == 16 + 8 + 16
    sentence = SAMPLES["wc"](1)[0]
    assert tuple_bytes((sentence,)) == PUBLISHED_BYTES["splitter"]
    assert {tuple_bytes((word,)) for word in sentence.split()} == {PUBLISHED_BYTES["counter"]}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_operators_emit_as_often_as_their_profile_says(name):
    rows, described = 400, APPLICATIONS[name]
    fed = {described.steps[0].name: [(line,) for line in SAMPLES[name](rows)]}
    for step in described.steps:
        outbox, state = Outbox(), dict(step.memory)
        for values in fed[step.name]:
            step.run(values, state, outbox)
        for edge in described.edges:
            if edge.producer == step.name:
                sent = outbox.streams[edge.stream]
                fed.setdefault(edge.consumer, []).extend(sent)
                assert len(sent) / len(fed[step.name]) == pytest.approx(edge.selectivity, abs=0.02)


def test_events_on_the_road_are_positions_but_for_some_questions():
    kinds = [line.split(",")[0] for line in road_events(2000)]
    assert kinds.count("0") / 2000 == pytest.approx(0.99, abs=0.01)
    assert set(kinds) == {"0", "2", "3"}


def test_the_mean_of_a_device_is_over_its_last_thousand_values():
    outbox, state = Outbox(), {}
    for value in [5000.0] + [1.0] * ops.MOVING_WINDOW:
        ops.moving_average(("d", "t", value), state, outbox)
    assert outbox.tuples[-2][1] > 5
    assert outbox.tuples[-1][1] == pytest.approx(1.0)


def test_cars_are_warned_of_an_accident_ahead_but_not_behind():
    outbox, state = Outbox(), {}
    ops.accident_notify(((0, 0, 7), 100), state, outbox)
    for segment in (2, 3, 7, 8):
        ops.accident_notify((0, 1, 50, (0, 0, segment), 1, 5), state, outbox)
    assert [segment for _, segment in outbox.tuples] == [3, 7]


def test_an_accident_lifts_the_toll():
    outbox, state = Outbox(), {}
    for values in (("s", 1, 60), ("s", 1, 30.0), ("s", 9), (60, 7, 30, "s", 1, 5)):
        ops.toll_notify(values, state, outbox)
    assert [toll for _, toll in outbox.tuples] == [0, 200, 0]


def test_the_factor_is_the_geometric_mean_over_both_published_operators():
    by = {"splitter": 2, "counter": 8}
    ours = {name: Measured(ns / by[name], 1, 1) for name, ns in PUBLISHED_NS.items()}
    assert scale(ours) == pytest.approx(4)


def test_a_measurement_knows_every_operator():
    found = measure(APPLICATIONS["lr"], rows=400)
    assert set(found) == {step.name for step in APPLICATIONS["lr"].steps}
    assert all(one.cost_ns > 0 for one in found.values())
    assert found["accident_detect"].bytes_out == 0


def test_files_can_be_made_again(tmp_path):
    write(tmp_path, rows=400, rounds=1)
    made = json.loads((tmp_path / "wc.json").read_text())
    assert [o["cost"] for o in made["operators"][2:4]] == list(PUBLISHED_NS.values())
    assert "splitter" in made["measured"]
    assert {path.stem for path in tmp_path.iterdir()} == set(APPLICATIONS)
