"""The command line on the local engine: no Spark, no Java, the same words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from anabranch.apps import word_count
from anabranch.planning.plan import Plan
from tests.processes import start_process
from tests.sampling import thorough

PATIENCE_S = 60

WITHOUT_SPARK = """
import sys

from anabranch.cli import cli

try:
    cli()
finally:
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j"))
    assert not loaded, loaded
"""


def command(*arguments: object, program: str = "from anabranch.cli import main; main()") -> list:
    return [sys.executable, "-c", program, *map(str, arguments)]


@pytest.fixture
def no_java(tmp_path) -> dict[str, str]:
    """An environment in which no Java can be found."""
    kept = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")}
    return kept | {"PATH": str(tmp_path)}


def done(*arguments: object, env: dict[str, str], program: str = WITHOUT_SPARK):
    return subprocess.run(
        command(*arguments, program=program),
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture
def text(tmp_path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(f"w{i % 7} w{i % 5} x" for i in range(200)) + "\n")
    return tmp_path / "text.txt"


def test_words_are_counted_without_java_and_without_importing_spark(no_java, text):
    ran = done("run", "word-count", "--engine", "local", "--input", text, env=no_java)
    assert (ran.returncode, ran.stderr) == (0, "")
    expected = Counter(text.read_text().split())
    assert f"top words of {len(expected)}:\n  x   200\n" in ran.stdout
    assert "word-count on local: " in ran.stdout
    assert "  200 rows in, " in ran.stdout
    assert "; all sources have ended\n  latency " in ran.stdout
    assert ran.stdout.endswith("no plan changes\n")


def test_json_is_one_object_and_rows_are_limited(no_java, tmp_path):
    plan = Plan.sequential(word_count.build()).with_replicas("count", 2)
    (tmp_path / "plan.json").write_text(plan.to_json())
    arguments = ["run", "word-count", "--engine", "local", "--rows", 300, "--json"]
    ran = done(*arguments, "--plan", tmp_path / "plan.json", env=no_java)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["engine"], told["rows_in"], told["ended"]) == ("local", 300, True)
    assert told["plan"] == json.loads(plan.to_json())
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"]


def test_seconds_end_an_endless_run(no_java):
    ran = done("run", "word-count", "--engine", "local", "--seconds", 0.2, "--json", env=no_java)
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["ended"]) == (0, False)
    assert 0.2 <= told["seconds"] < PATIENCE_S


@thorough
def test_check_runs_on_threads_without_spark(no_java):
    arguments = ["check", "word-count", "--engine", "local", "--cases", 3, "--rows", 30]
    ran = done(*arguments, "--processes", 0, env=no_java)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (
        "word-count: 4 random plans, batchings and plan changes on local over 30 rows "
        "agree with the sequential run\n"
    )


def test_an_unknown_engine_to_check_on_says_which_there_are(no_java):
    program = "from anabranch.cli import main; main()"
    ran = done("check", "word-count", "--engine", "loacl", env=no_java, program=program)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "error: engine 'loacl': expected an engine among ['spark', 'local'], got 'loacl'; "
        "did you mean 'local'?\n"
    )


SAYS_WHEN_IT_READS = """
import sys

import pyarrow as pa

import anabranch as ab


def build():
    def make(rng, index):
        if index[0] == 1024:  # a second after the start; one write, as two readers may pass here
            sys.stdout.write("reading\\n")
            sys.stdout.flush()
        return {"x": index}

    flow = ab.Flow("endless")
    source = ab.generate(make, pa.schema([("x", pa.int64())]), rows=None, rate_per_s=1000)
    flow.source("s", source).sink("out", ab.collect())
    return flow
"""


def test_an_interrupt_shows_what_came_so_far(tmp_path):
    (tmp_path / "endless.py").write_text(SAYS_WHEN_IT_READS)
    with start_process(
        command("run", "endless:build", "--engine", "local"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "reading\n"
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode == 130
    assert "endless on local: " in out
    assert "stopped before the end of its sources" in out
    assert "finishing what is under way; Ctrl-C again to give up\n" in err
    assert "Traceback" not in err
