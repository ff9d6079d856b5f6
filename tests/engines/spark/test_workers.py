"""Python workers of Spark: which Python they run in a session of the user, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.engines.spark.bare_python import bare_python
from tests.engines.spark.short_lived import environment
from tests.sampling import thorough

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("workers"),
    pytest.mark.timeout(240),
]

STOPPING, STOPPED = "the run is stopped now", "the run has stopped"

OWN_SESSION = (
    f"STOPPING, STOPPED = {STOPPING!r}, {STOPPED!r}"
    + """
import json, logging, sys
from pathlib import Path

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engines.spark.java import ensure_java
from anabranch.events import Observed

logging.basicConfig()
ensure_java()
settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

Path("in").mkdir()
Path("in/lines.txt").write_text("1\\n2\\n3\\n")
lines = spark.readStream.text("in").selectExpr("int(value) as number")
flow = ab.Flow("numbers")
bare = lambda batch: {"bare": [bool(__import__("sys").flags.no_site)] * batch.num_rows}
rows = flow.source("rows", ab.dataframe(lines, order="number"))
rows.map("bare", bare, out="bare: bool", keeps="number").sink("out", ab.collect())

batches = []
hear = lambda event: isinstance(event, Observed) and batches.append(event.observation)
run = ab.start(flow, session=spark, listener=hear)
facts = {"caught up": run.process_all_available(120)}
print(STOPPING, file=sys.stderr, flush=True)
run.stop()
print(STOPPED, file=sys.stderr, flush=True)
told = run.result()
facts |= {
    "rows": flow.graph.steps["out"].body.sink.table().to_pylist(),
    "error": told.error,
    "progress": [run.last_progress.batch, run.last_progress.rows_in],
    "batches": [[each.batch, each.rows_in] for each in batches],
    "own job": spark.sparkContext.parallelize([0], 1).map(
        lambda _: bool(__import__("sys").flags.no_site)
    ).collect(),
}
print(json.dumps(facts))
"""
)


@pytest.fixture(scope="module")
def own_session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run on a DataFrame in a session of the user's, with another `python3` first on PATH."""
    folder = tmp_path_factory.mktemp("own-session")
    bare_python(folder / "python3")
    variables = {name: v for name, v in environment().items() if name != "PYSPARK_PYTHON"}
    ran = subprocess.run(
        [sys.executable, "-c", OWN_SESSION],
        env=variables | {"PATH": str(folder) + os.pathsep + os.environ["PATH"]},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    stop = ran.stderr.partition(STOPPING + "\n")[2].partition(STOPPED + "\n")[0]
    return json.loads(ran.stdout) | {"stop": stop}


@thorough
def test_a_flow_runs_with_this_python_whatever_path_has(own_session: dict[str, Any]) -> None:
    assert own_session["error"] is None
    assert own_session["rows"] == [{"bare": False, "number": each} for each in (1, 2, 3)]


@thorough
def test_other_jobs_of_the_session_keep_their_python(own_session: dict[str, Any]) -> None:
    assert own_session["own job"] == [True]


@thorough
def test_a_stop_prints_nothing(own_session: dict[str, Any]) -> None:
    assert own_session["caught up"]
    assert own_session["stop"] == ""


@thorough
def test_progress_on_a_dataframe_is_that_of_the_last_batch_with_rows(
    own_session: dict[str, Any],
) -> None:
    batches = own_session["batches"]
    assert batches[-1][1] == 0
    assert own_session["progress"] == [each for each in batches if each[1]][-1]
    assert own_session["progress"][1] == 3


IDLE_WORKER = """
import socket, struct, sys

from pyspark import daemon

from anabranch.engines.spark.workers import end_quietly

sys.modules["__main__"] = daemon  # as in a worker that the daemon has forked
with socket.create_server(("127.0.0.1", 0)) as server:
    spark = socket.create_connection(server.getsockname())
    worker, _ = server.accept()
if sys.argv[1] == "reset":
    spark.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
end_quietly()
spark.close()
daemon.worker(worker, True)
"""


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_worker_whose_connection_ends_between_tasks_ends_without_a_word(how: str) -> None:
    variables = os.environ | {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", IDLE_WORKER, how],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
