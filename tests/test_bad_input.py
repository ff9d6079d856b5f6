"""Bad input, one test each: the message names step, expected, got and remedy; nothing is lost."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import anabranch as ab
import anabranch.errors
from anabranch.apps import app
from anabranch.cli.finding import read_plan
from anabranch.cli.planning import find_machine
from anabranch.cli.running import spark_settings
from anabranch.engines.simulator.scenario import read_scenario
from anabranch.errors import About, AnabranchError, Subject
from anabranch.io.reading_back import read_back
from anabranch.planning.machine import Machine
from anabranch.planning.profile import read_profile
from anabranch.testing.sequential import run_sequential
from anabranch.view.web.server import serve

ROWS = [{"word": w, "n": i} for i, w in enumerate("abcd")]


def message(
    action: Callable[[], object], about: About, expected: str, got: str, remedy: str
) -> AnabranchError:
    """The error of an action, after looking for its four parts in the message."""
    with pytest.raises(AnabranchError) as caught:
        action()
    error = caught.value
    assert error.subject == (Subject("step", about) if isinstance(about, str) else about)
    assert expected in error.expected
    assert got in error.got
    assert remedy in error.remedy
    for part in (str(error.subject), error.expected, error.got, error.remedy):
        assert part in str(error)
    return error


def words(name: str = "f") -> ab.Stream:
    return ab.Flow(name).source("words", ab.memory(ROWS))


def test_a_key_that_is_not_in_the_schema():
    count = ab.partitioned(key="wrd", out="n: int64")(lambda ctx: None)
    message(
        lambda: words().apply("count", count),
        "count",
        "columns among ['word', 'n']",
        "'wrd'",
        "did you mean 'word'?",
    )


def test_a_cycle():
    stream = words()
    flow = stream.flow
    both = flow.add("both", ab.stateful(in_ports=2, out="word: string, n: int64")(lambda c: None))
    flow.connect(stream, both, 0)
    flow.connect(both.filter("again", lambda b: []), both, 1)
    message(
        flow.resolve,
        "both",
        "a graph without cycles",
        "a cycle through ",
        "operator state instead",
    )


def test_an_unconnected_port():
    stream = words()
    stream.apply("both", ab.stateful(in_ports=2, out="n: int64")(lambda ctx: None))
    message(
        stream.flow.resolve,
        "both",
        "input port 1 connected",
        "nothing on it",
        "connect a stream to it or remove the step",
    )


def test_two_steps_of_one_name():
    stream = words()
    stream.filter("few", lambda b: [])
    message(
        lambda: stream.filter("few", lambda b: []),
        "few",
        "a name used once",
        "a second step called 'few'",
        "rename one of the two",
    )


def test_a_batch_operator_that_returns_a_wrong_number_of_rows():
    stream = words()
    stream.map("m", lambda b: {"n": [1, 2, 3]}, out="n: int64").sink("out", ab.collect())
    message(
        lambda: run_sequential(stream.flow),
        "m",
        "1 rows, as many as came in",
        "3 rows",
        "use filter or expand",
    )


def test_streams_of_different_schemas():
    stream = words()
    other = stream.flow.source("numbers", ab.memory([{"word": 1, "n": 1}]))
    message(
        lambda: stream.union("all", other),
        "all",
        "word: string, n: int64",
        "word: int64, n: int64 on port 1",
        "map the streams to one schema first",
    )


def test_a_column_of_a_wrong_type():
    stream = words()
    stream.map("m", lambda b: {"n": b["word"]}, out="n: int64").sink("out", ab.collect())
    message(
        lambda: run_sequential(stream.flow),
        "m",
        "column 'n' of type int64",
        "string",
        "cast it, or declare n: string",
    )


# --- an operator that raises on a tuple ----------------------------------------------------------


def no_c(batch):
    if "c" in batch["word"].to_pylist():
        raise ValueError("no c")
    return {}


def test_raising_under_fail_names_the_tuple():
    stream = words()
    stream.map("m", no_c, keeps="*").sink("out", ab.collect())
    message(
        lambda: run_sequential(stream.flow),
        "m",
        "a result for every tuple",
        "ValueError: no c on {'word': 'c', 'n': 2}",
        "on_error='skip' or 'side'",
    )


def test_raising_under_skip_is_counted_and_the_others_go_on():
    stream = words()
    stream.map("m", no_c, keeps="*", on_error="skip").sink("out", ab.collect())
    result = run_sequential(stream.flow)
    assert result.rows("out") == [ROWS[0], ROWS[1], ROWS[3]]
    assert result.counters["m"].skipped == len(ROWS) - 3


def test_raising_under_side_loses_nothing():
    stream = words()
    risky = stream.map("m", no_c, keeps="*", on_error="side")
    risky.sink("out", ab.collect())
    risky.errors.sink("errors", ab.collect())
    result = run_sequential(stream.flow)
    assert result.rows("out") == [ROWS[0], ROWS[1], ROWS[3]]
    assert result.rows("errors") == [{**ROWS[2], "error": "ValueError: no c"}]


# --- files ---------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path):
    missing = str(tmp_path / "nowhere.parquet")
    with pytest.raises(AnabranchError) as caught:
        ab.Flow("f").source("s", ab.files(missing))
    assert missing in str(caught.value)
    assert caught.value.remedy


def three_files(folder) -> str:
    for name in ("a", "c"):
        pq.write_table(pa.table({"name": [name]}), folder / f"{name}.parquet")
    (folder / "b.parquet").write_bytes(b"this is no parquet")
    return str(folder / "*.parquet")


def test_an_unreadable_file_among_good_ones_is_named(tmp_path):
    pattern = three_files(tmp_path)

    def run():
        flow = ab.Flow("f")
        flow.source("s", ab.files(pattern)).sink("out", ab.collect())
        return run_sequential(flow)

    with pytest.raises(AnabranchError) as caught:
        run()
    assert "b.parquet" in str(caught.value)
    assert caught.value.remedy


def test_an_unreadable_file_can_be_skipped_without_losing_the_others(tmp_path):
    flow = ab.Flow("f")
    source = ab.files(three_files(tmp_path), on_bad_file="skip")
    flow.source("s", source).sink("out", ab.collect())
    assert run_sequential(flow).rows("out") == [{"name": "a"}, {"name": "c"}]


# --- plans and names -----------------------------------------------------------------------------


def test_a_plan_for_another_flow():
    flow, other = words("mine").sink("out", ab.collect()), words("other").sink("o", ab.collect())
    message(
        lambda: ab.plan(other).validate(flow),
        Subject("flow", "mine"),
        f"a plan for flow 'mine' ({flow.fingerprint()})",
        f"one for 'other' ({other.fingerprint()})",
        "plan again",
    )


def flow() -> ab.Flow:
    return words().sink("out", ab.collect())


ABOUT: dict[str, Callable[[Path], object]] = {
    "address '127.0.0.1:99999'": lambda _: serve(port=99999),
    "application 'wrod-count'": lambda _: app("wrod-count"),
    "argument 'flow'": lambda _: ab.plan("words"),
    "checkpoint": lambda _: ab.rollback(flow(), "nowhere://there", 1),
    "checkpoint '{}'": lambda folder: ab.rollback(flow(), folder, 1),
    "decorator 'map'": lambda _: ab.map("n: int64"),
    "directory '{}'": read_back,
    "engine 'flink'": lambda _: ab.run(flow(), engine="flink"),
    "engine 'local'": lambda _: ab.run(flow(), engine="local", master="local[2]"),
    "field machine.nodes": lambda _: Machine("m", 3, 1, nodes=2),
    "field operators[0] 'a'": lambda _: read_profile('{"operators": [{"name": "a"}]}'),
    "file '{}/no.json'": lambda folder: read_plan(folder / "no.json"),
    "flow 'f'": lambda _: ab.Flow("f", buckets=0),
    "machine 'cores=none'": lambda _: find_machine("cores=none"),
    "operator 'parse_csv'": lambda _: ab.parse_csv("line", "n: int64", separator="xx"),
    "operator 'parse_json'": lambda _: ab.parse_json("line", "n: int64", on_error="x"),
    "operator 'no_c'": lambda _: ab.map(out="n: integer64")(no_c),
    "option '--conf'": lambda _: spark_settings("spark", ["x"]),
    "plan": lambda _: ab.Plan.from_json("{}"),
    "plan 'f'": lambda _: ab.plan(flow()).with_replicas("nowhere", 2),
    "planner 'luck'": lambda _: ab.plan(flow(), planner="luck"),
    "policy 'luck'": lambda _: ab.start(flow(), engine="local", policy="luck"),
    "profile 'mine'": lambda _: read_profile("[]", "mine"),
    "region 'out'": lambda _: ab.plan(flow()).with_replicas("out", 0),
    "scenario 'mine'": lambda _: read_scenario("[]", "mine"),
    "sink collect": lambda _: ab.collect().table(),
    "source files '{}/*.csv'": lambda folder: ab.files(folder / "*.csv").schema,
    "step 'count'": lambda _: words().aggregate("count", key="word", emit="x"),
}


@pytest.mark.parametrize("about", sorted(ABOUT))
def test_an_error_begins_with_what_it_is_about(about, tmp_path):
    (tmp_path / "something").touch()
    with pytest.raises(AnabranchError) as caught:
        ABOUT[about](tmp_path)
    error = caught.value
    assert str(error).startswith(about.format(tmp_path) + ": expected ")
    assert error.step == ("count" if error.subject.kind == "step" else None)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.subject) == (type(error), str(error), error.subject)


def test_no_error_takes_a_text_of_ours_for_the_name_of_a_step():
    """Steps have the names that users give them, so no such name stands in the library itself."""
    errors = "|".join(each for each in vars(anabranch.errors) if each.endswith("Error"))
    literal = re.compile(rf"(?<!>>> )(?<!\.\.\. )raise ({errors})\(\s*f?[\"']")
    for file in Path(anabranch.errors.__file__).parent.rglob("*.py"):
        assert not literal.search(file.read_text(encoding="utf-8")), file


def test_an_unknown_app_on_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli", "check", "wrod-count"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: application 'wrod-count': expected an application, got")
    assert "see `anabranch apps`" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_refused_when_built_can_be_mended_in_place():
    stream = words()
    with pytest.raises(AnabranchError):
        stream.map("m", lambda b: {}, keeps="wrd")
    stream.map("m", lambda b: {"n": pc.add(b["n"], 1)}, out="n: int64", keeps="word").sink(
        "out", ab.collect()
    )
    assert [row["n"] for row in run_sequential(stream.flow).rows("out")] == [1, 2, 3, 4]
