"""`anabranch run`: what it refuses, what it starts, what it prints; and once on real Spark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyspark
import pytest

import anabranch.cli.running
from anabranch.apps import word_count
from anabranch.cli.running import Watchers
from anabranch.engines.handle import Result
from anabranch.engines.spark.java import ensure_java
from anabranch.errors import OperatorError
from anabranch.graph import Role
from anabranch.io.reading_back import read_back
from anabranch.planning.plan import Plan
from tests.engines.spark import short_lived
from tests.engines.spark.conftest import spark
from tests.sampling import thorough

__all__ = ["spark"]  # a fixture: one session for all tests of a worker

REPOSITORY = Path(__file__).resolve().parents[2]
PLAN = Plan.sequential(word_count.build())
TWO_SINKS = """
from anabranch import Flow, collect, memory


def build():
    flow = Flow("mine")
    stream = flow.source("s", memory([{"x": 1}]))
    stream.sink("left", collect())
    stream.sink("right", collect())
    return flow
"""


@pytest.fixture
def run(command_line):
    return partial(command_line, "run")


class FakeRun:
    """A run that is over at once, or ends as it is told."""

    def __init__(self, flow, end: BaseException | None, **options) -> None:
        self.flow, self.options, self._end = flow, options, end
        self.seconds: float | None = None
        self.stopped = False
        for name in flow.names(Role.SINK):
            flow.graph.steps[name].body.sink.open(flow.contexts()[name].inputs[0].schema)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        self.seconds = timeout_s
        print("a sink that prints")
        if self._end is not None:
            raise self._end
        return True

    def stop(self) -> None:
        self.stopped = True

    def result(self) -> Result:
        return Result("word-count", "spark", 10, 5, 2.0, 1.0, 2.0, (), PLAN, ended=True)


@pytest.fixture
def started(monkeypatch):
    """The runs that the command line starts, without an engine."""
    runs: list[FakeRun] = []
    ends: list[BaseException] = []

    def start(flow, **options) -> FakeRun:
        runs.append(FakeRun(flow, ends.pop() if ends else None, **options))
        return runs[-1]

    monkeypatch.setattr(anabranch.cli.running, "start", start)
    start.runs, start.ends = runs, ends
    return start


# --- what is refused --------------------------------------------------------------------------


REFUSED = {
    ("word-cuont",): "got 'word-cuont'; did you mean 'word-count'?",
    (
        "word-count",
        "--engine",
        "sprak",
    ): "expected an engine among ['spark', 'local', 'simulator'], got 'sprak'",
    ("word-count", "--engine", "local", "--master", "local[2]"): "got master='local[2]'; leave",
    ("word-count", "--conf", "spark.ui.enabled"): "NAME=VALUE with a name of Spark's",
    ("word-count", "--conf", "ui.enabled=true"): "got 'ui.enabled=true'; give the whole name",
    ("word-count", "--conf", "spark.=true"): "NAME=VALUE with a name of Spark's",
    (
        "word-count",
        "--engine",
        "local",
        "--conf",
        "spark.ui.enabled=true",
    ): "option '--conf': expected the engine spark, got local; leave --conf out",
    (
        "word-count",
        "--engine",
        "simulator",
        "--conf",
        "spark.ui.enabled=true",
    ): "expected the engine spark, got simulator",
    ("word-count", "--policy", "atuo"): "expected a policy among ['auto', 'organic',",
    ("word-count", "--rows", "-1"): "--rows",
    ("word-count", "--seconds", "-1"): "--seconds",
    ("word-count", "--rows", "5", "--seconds", "5"): "give --rows or --seconds, not both",
    ("word-count", "--plan", "nowhere.json"): "a readable file with a plan",
    ("word-count", "--plan", "broken.json"): "JSON with flow, fingerprint, regions and sources",
    ("word-count", "--plan", "other.json"): "a plan for flow 'word-count'",
    ("two_sinks:build", "--input", "x.txt"): "a function with an argument `input`",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "broken.json").write_text("{")
    other = json.loads(PLAN.to_json()) | {"fingerprint": "0"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    (tmp_path / "two_sinks.py").write_text(TWO_SINKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield tmp_path
    sys.modules.pop("two_sinks", None)


@pytest.mark.parametrize("arguments", sorted(REFUSED), ids=" ".join)
def test_what_cannot_run_is_refused_before_anything_starts(run, folder, arguments):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert REFUSED[arguments] in " ".join(ran.err.split())
    assert "Traceback" not in ran.err


# --- what is started --------------------------------------------------------------------------


def test_options_reach_the_engine(run, started, tmp_path):
    plan = PLAN.with_replicas("count", 2)
    (tmp_path / "plan.json").write_text(plan.to_json())
    where = tmp_path / "checkpoint"
    run("word-count", "--plan", tmp_path / "plan.json", "--rows", 7, "--checkpoint", where)
    (made,) = started.runs
    assert made.options["plan"] == plan
    assert made.options["rows"] == 7
    assert made.options["checkpoint"] == str(where)
    assert made.options["policy"] is None


def test_settings_of_spark_reach_the_engine(run, started):
    run(
        "word-count",
        "--conf",
        "spark.ui.enabled=true",
        "--conf",
        "spark.x=a=b",
        "--conf",
        "spark.y=",
    )
    settings = {"spark.ui.enabled": "true", "spark.x": "a=b", "spark.y": ""}
    assert started.runs[0].options["conf"] == settings


def test_a_policy_is_chosen_by_name(run, started):
    run("word-count", "--policy", "organic")
    assert started.runs[0].options["policy"] == "organic"


def lines_of(made: FakeRun):
    return made.flow.graph.steps["lines"].body.source


@pytest.mark.parametrize(("given", "controls"), [((), True), (("--no-controls",), False)])
def test_whether_the_page_may_change_the_run_is_passed_on(
    run, started, monkeypatch, given, controls
):
    asked = []

    @contextmanager
    def watching(wanted, *listeners):
        asked.append(wanted)
        yield Watchers(list(listeners))

    monkeypatch.setattr(anabranch.cli.running, "watching", watching)
    run("word-count", "--dashboard", 0, *given)
    assert [wanted.controls for wanted in asked] == [controls]


def test_generated_words_end_by_themselves(run, started):
    run("word-count")
    source = lines_of(started.runs[0])
    assert source.bounded
    assert source.extent("generated").rows * word_count.WORDS_A_LINE == 2_000_000


@pytest.mark.parametrize("limit", ["--rows", "--seconds"])
def test_generated_words_last_as_long_as_the_user_asks(run, started, limit):
    run("word-count", limit, 5)
    assert not lines_of(started.runs[0]).bounded


def test_seconds_are_waited_for_and_then_the_run_is_stopped(run, started):
    run("word-count", "--seconds", 2.5)
    assert (started.runs[0].seconds, started.runs[0].stopped) == (2.5, True)


def test_input_names_the_users_files(run, started, tmp_path):
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("to be\n")
    run("word-count", "--input", tmp_path / "a.txt", "--input", tmp_path / "b.txt")
    assert [Path(part).name for part in lines_of(started.runs[0]).parts()] == ["a.txt", "b.txt"]


def test_out_replaces_the_only_sink(run, started, tmp_path):
    run("word-count", "--out", tmp_path / "out")
    assert list(read_back(tmp_path / "out").schema.names) == ["word", "n"]


def test_out_gives_each_of_several_sinks_a_folder(run, started, folder):
    run("two_sinks:build", "--out", "out")
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["left", "right"]


# --- what is printed --------------------------------------------------------------------------


def test_the_summary_has_rate_and_plan(run, started):
    ran = run("word-count")
    assert ran.code == 0
    assert "word-count on spark: 5 rows a second" in ran.out
    assert repr(PLAN) in ran.out
    assert ran.err == ""


def test_json_is_one_object_even_when_sinks_print(run, started):
    ran = run("word-count", "--json")
    told = json.loads(ran.out)
    assert (told["app"], told["rows_in"], told["rate_per_s"]) == ("word-count", 10, 5.0)
    assert "a sink that prints" in ran.err


def test_an_interrupt_stops_the_run_and_says_how_to_go_on(run, started):
    started.ends.append(KeyboardInterrupt())
    ran = run("word-count", "--checkpoint", "my checkpoint")
    assert (ran.code, started.runs[0].stopped) == (130, True)
    assert "go on with: anabranch run word-count --checkpoint 'my checkpoint'" in ran.err
    assert "word-count on spark" in ran.out


def test_an_interrupt_without_a_checkpoint_says_what_would_have_helped(run, started):
    started.ends.append(KeyboardInterrupt())
    ran = run("word-count")
    assert ran.code == 130
    assert "with --checkpoint DIR it could go on" in ran.err


def test_an_error_of_the_run_is_a_line_on_stderr(run, started):
    started.ends.append(OperatorError("split", "a column", "nothing", "return one"))
    ran = run("word-count")
    assert ran.code == 1
    assert ran.err == "error: step 'split': expected a column, got nothing; return one\n"


# --- on Spark ---------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path) -> Path:
    lines = [f"w{i % 7} w{i % 5} x" for i in range(200)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "text.txt"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_files_are_counted_on_spark_and_a_checkpoint_is_gone_on_from(run, text, tmp_path):
    arguments = ["word-count", "--input", text, "--out", tmp_path / "out"]
    plan = PLAN.with_source("lines", batch_rows=80).with_replicas("count", 2)
    (tmp_path / "plan.json").write_text(plan.to_json())
    arguments += ["--plan", tmp_path / "plan.json", "--checkpoint", tmp_path / "checkpoint"]
    told = json.loads(run(*arguments, "--json").out)
    assert (told["rows_in"], told["ended"]) == (200, True)
    assert told["plan"] == json.loads(plan.to_json())
    again = run(*arguments)
    expected = Counter(text.read_text().split())
    assert f"top words of {len(expected)}:\n  x   200\n" in again.out
    counted = {row["word"]: row["n"] for row in read_back(tmp_path / "out").to_pylist()}
    assert counted == expected


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_an_interrupt_does_not_cancel_the_jobs_of_a_session_that_we_start():
    handler = signal.getsignal(signal.SIGINT)
    assert not getattr(handler, "__module__", "").startswith("pyspark")


@thorough
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(240)
def test_the_example_runs_through_spark_submit(text):
    home = Path(pyspark.__file__).parent
    environment = short_lived.environment() | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
    }
    ensure_java(environment)
    done = subprocess.run(
        [home / "bin" / "spark-submit", "--master", "local[2]", "examples/word_count.py", text],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = Counter(text.read_text().split())
    top = sorted(expected.items(), key=lambda each: (-each[1], each[0]))[:10]
    *counts, rate = done.stdout.splitlines()
    assert counts == [f"{word} {n}" for word, n in top]
    assert rate.startswith("200 lines, ")
