from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.apps import APPS, app, micro
from anabranch.apps.micro.operators import (
    CountAll,
    count_and_multiply,
    multiplied,
    multiply,
    passed_on,
    wait,
)
from anabranch.errors import UnknownNameError
from anabranch.graph import Role, StateKind
from anabranch.planning.regions import regions
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import cases
from tests.sampling import thorough

VARIANTS = [name for name in APPS if name.startswith("micro")]
EDGES = [0, 1, -1, 2**63 - 1, -(2**63)]


def numbers(values, **columns):
    given = {name: [0] * len(values) for name in micro.KEYS} | columns
    return ab.memory(
        [
            dict(zip([*given, "value"], row, strict=True))
            for row in zip(*given.values(), values, strict=True)
        ],
        micro.NUMBERS,
    )


def through(operator, source):
    flow = ab.Flow("through")
    flow.source("source", source).apply("step", operator).sink("out", ab.collect())
    return flow


def values(flow, sink="out"):
    return [row["value"] for row in run_sequential(flow).rows(sink)]


def collected(flow):
    """What every sink gets, in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    steps = flow.graph.steps
    return {name: steps[name].body.sink.table() for name in flow.names(Role.SINK)}, run.result()


def generated(rows, source="source", **config):
    flow = micro.build(rows=rows, **config)
    return flow.graph.steps[source].body.source.read("generated", 0, rows).batch


# --- operators --------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2, 256])
def test_a_number_is_mixed_with_a_power_of_itself(times):
    found = multiplied(np.array(EDGES), times).tolist()
    expected = [n ^ pow(n | 1, times + 1, 2**64) for n in EDGES]
    assert [n % 2**64 for n in found] == [n % 2**64 for n in expected]


def test_work_grows_with_the_multiplications():
    given = np.arange(1 << 16)

    def seconds(times):
        start = time.thread_time()
        multiplied(given, times)
        return time.thread_time() - start

    few, many = (min(seconds(times) for _ in range(3)) for times in (50, 500))
    assert many > 4 * few


@pytest.mark.parametrize("selectivity", [0.0, 0.25, 0.9, 1.0, 2.25, 4.0])
def test_as_many_are_passed_on_as_the_selectivity_says(selectivity):
    given = np.arange(20_000)
    passed, parents = passed_on(given, selectivity, salt=1)
    assert len(passed) / len(given) == pytest.approx(selectivity, abs=0.02)
    copies = np.bincount(parents, minlength=len(given))
    assert copies.max() - copies.min() <= 1
    assert (np.diff(parents) >= 0).all()


def test_operators_choose_independently():
    given = np.arange(20_000)
    both = set(passed_on(given, 0.5, 1)[0].tolist()) & set(passed_on(given, 0.5, 2)[0].tolist())
    assert len(both) / len(given) == pytest.approx(0.25, abs=0.02)


def test_a_partitioned_operator_counts_each_key_apart():
    source = numbers([0] * 5, key1=[1, 2, 1, 1, 2])
    assert values(through(count_and_multiply("key1", 0), source)) == [0, 0, 1, 2, 1]


def test_a_stateful_operator_counts_all():
    source = numbers([0] * 5, key1=[1, 2, 1, 1, 2])
    assert values(through(CountAll(0), source)) == [0, 1, 2, 3, 4]


@thorough
@pytest.mark.parametrize("selectivity", [1.0, 0.6, 1.5])
def test_it_does_not_matter_how_a_stateful_operator_is_run(selectivity):
    source = numbers(list(range(40)))
    report = ab.check(through(CountAll(3, selectivity), source), cases=12, rows=40, processes=0)
    assert report.ok, report


def test_values_at_the_edge_of_their_type_pass_every_operator():
    for operator in (multiply(3), multiply(3, 1.5), count_and_multiply("key1", 3), CountAll(3)):
        flow = through(operator, numbers(EDGES * 2))
        assert len(values(flow)) >= 10
        assert collected(flow)[0]["out"]["value"].to_pylist() == values(flow)


def test_waiting_takes_its_time_for_every_tuple():
    start = time.perf_counter()
    collected(through(wait(2.0), numbers([1] * 30)))
    assert time.perf_counter() - start >= 0.06


# --- shapes -----------------------------------------------------------------------------------


def kinds(flow):
    return [
        [flow.graph.steps[step].body.state for step in region.steps]
        for region in regions(flow)
        if flow.graph.steps[region.steps[0]].role is Role.OPERATOR
    ]


PARTITIONED, STATELESS = StateKind.PARTITIONED, StateKind.STATELESS


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("single-region", [[PARTITIONED, STATELESS, STATELESS, STATELESS]]),
        ("two-regions", [[PARTITIONED], [PARTITIONED]]),
        ("tree", [[PARTITIONED]] * 3),
        ("selectivity", [[PARTITIONED] + [STATELESS] * 6]),
        (
            "joker-chain",
            [
                [PARTITIONED, STATELESS, STATELESS],
                [StateKind.STATEFUL],
                [PARTITIONED, STATELESS, STATELESS],
            ],
        ),
    ],
)
def test_regions_are_those_of_the_paper(shape, expected):
    assert kinds(micro.build(shape=shape)) == expected


def test_reverse_trees_and_stars_have_two_sources():
    for shape in ("reverse-tree", "star"):
        assert len(micro.build(shape=shape).names(Role.SOURCE)) == 2


def test_the_papers_numbers_are_the_defaults():
    shapes = micro.SHAPES
    assert shapes["single-region"].work.operators == 4
    assert (shapes["linear"].work.operators, shapes["linear"].work.multiplications) == (3, 10_000)
    assert micro.OperatorWork().wait_ms == 5.0


def test_all_shapes_are_applications():
    assert set(micro.SHAPES) == {"single-region", *(n.removeprefix("micro-") for n in VARIANTS[1:])}
    for name in VARIANTS[1:]:
        assert app(name).build(rows=1).name == name


def test_an_unknown_shape_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="'ring'"):
        micro.build(shape="ring")


def test_selectivities_are_those_of_figure_10():
    found, _ = collected(micro.build(shape="selectivity", rows=20_000))
    assert found["out"].num_rows / 20_000 == pytest.approx(4 * 0.25 * 0.5, rel=0.05)


def test_selectivities_of_the_chain_are_multiplied_with_a_factor():
    found, _ = collected(micro.build(shape="joker-chain", rows=50_000, selectivity=0.8))
    assert found["out"].num_rows / 50_000 == pytest.approx((0.9 * 0.8) ** 7, rel=0.1)


@thorough
@pytest.mark.parametrize("name", VARIANTS)
def test_it_does_not_matter_how_it_is_run(name):
    flow = app(name).build(**{**cases()[name].small, "rows": 30, "keys": 3})
    report = ab.check(flow, cases=12, rows=30, processes=0)
    assert report.ok, report


def test_one_giant_key_counts_like_any_other():
    key = [0 if n % 10 else n for n in range(3000)]
    flow = through(count_and_multiply("key1", 0), numbers([0] * 3000, key1=key))
    seen = collected(flow)[0]["out"].to_pylist()
    assert [row["value"] for row in seen if row["key1"] == 0] == list(range(key.count(0)))


# --- data -------------------------------------------------------------------------------------


def test_keys_come_equally_often():
    rows = generated(20_000, keys=10)
    for name in micro.KEYS:
        counts = np.bincount(rows[name].to_numpy())
        assert len(counts) == 10
        assert abs(counts - 2000).max() < 250


def test_payloads_are_objects_of_about_the_wanted_length():
    rows = generated(50, "op1", shape="linear", payload_bytes=300)
    parsed = [json.loads(text) for text in rows["payload"].to_pylist()]
    assert all(300 <= len(text) < 400 for text in rows["payload"].to_pylist())
    assert len({each["value"] for each in parsed} | set(rows["value"].to_pylist())) == 100


@pytest.mark.parametrize("shape", ["single-region", "star"])
def test_the_data_follow_from_the_seed(shape):
    source = micro.SHAPES[shape].sources[-1]
    one, same, other = (generated(2000, source, shape=shape, seed=n) for n in (1, 1, 2))
    assert one == same != other
    assert generated(1500, source, shape=shape, seed=1) == one.slice(0, 1500)


def test_the_sources_of_a_shape_differ():
    flow = micro.build(shape="reverse-tree", rows=10)
    left, right = (
        flow.graph.steps[n].body.source.read("generated", 0, 10) for n in ("left", "right")
    )
    assert left.batch != right.batch


# --- the user's files -------------------------------------------------------------------------


def write(path, batch):
    table = pa.Table.from_batches([batch])
    if path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return str(path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("shape", ["single-region", "reverse-tree", "diamond"])
def test_files_give_what_the_same_rows_give_otherwise(tmp_path, shape, suffix):
    config = {"shape": shape, "wait_ms": 0.0, "rate_per_s": 1e9}
    sources = micro.SHAPES[shape].sources
    files = {
        name: write(tmp_path / f"{name}{suffix}", generated(200, name, **config))
        for name in sources
    }
    expected, _ = collected(micro.build(rows=200, **config))
    given = files if len(files) > 1 else files[sources[0]]
    found, _ = collected(micro.build(input=given, **config))
    assert expected["out"].num_rows >= 200
    assert found["out"].to_pylist() == expected["out"].to_pylist()


def test_rows_that_do_not_parse_are_counted_and_set_aside(tmp_path):
    (tmp_path / "n.csv").write_text("key1,key2,key3,value\n1,2,3,4\n1,2,3\n1,2,3,x\n1,2,,4\n")
    found, result = collected(micro.build(input=str(tmp_path / "n.csv")))
    assert found["out"].num_rows == 1
    assert found["source.bad"].num_rows == 3
    assert result.skipped == {"source.parse": 3}


def test_payloads_that_do_not_parse_are_counted(tmp_path):
    texts = ['{"value": 7}', '{"value": null}', "{}", "no", '{"value": 9, "more": [1]}']
    rows = [{"value": 0, "payload": text} for text in texts]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"op1": str(tmp_path / "p.jsonl"), "op2": str(tmp_path / "p.jsonl")}
    found, result = collected(micro.build(shape="star", input=given))
    assert found["out"]["value"].to_pylist() == [7, 7, 9, 9]
    assert result.skipped == {"op3": 6}


def test_an_empty_file_gives_nothing(tmp_path):
    (tmp_path / "n.csv").write_text("")
    found, _ = collected(micro.build(input=str(tmp_path / "n.csv")))
    assert found["out"].num_rows == 0
    assert str(micro.Summary.of(found)) == "out: 0 tuples, all values together 0"


def test_the_summary_names_every_sink():
    found, _ = collected(micro.build(shape="tree", rows=50))
    lines = str(micro.Summary.of(found)).splitlines()
    assert [line.split(",")[0] for line in lines] == ["out: 50 tuples", "c.out: 50 tuples"]
