"""What Spark's own pages say of our jobs: the flow, the batch and the regions at work."""

from __future__ import annotations

import json
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.spark.job import LONGEST, description, regions_of
from anabranch.engines.spark.layout import layout
from anabranch.engines.spark.task_inputs import Batch
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from tests.engines.spark.short_lived import environment
from tests.sampling import thorough


def described(flow: Flow, plan: Plan, version: int = 3) -> str:
    batch = Batch(version, "token", plan, {}, {}, frozenset(), {})
    return description(layout(flow, plan), batch)


def test_a_job_says_flow_batch_and_regions():
    flow = word_count.build()
    assert described(flow, Plan.sequential(flow)) == "word-count batch 3: split · count"


def test_a_bar_stands_between_stages():
    flow = word_count.build()
    plan = Plan.sequential(flow).with_replicas("count", 2)
    assert described(flow, plan) == "word-count batch 3: split | count"


def test_a_stage_that_only_reads_names_its_source():
    flow = word_count.build()
    plan = Plan.sequential(flow).with_source("lines", replicas=2).with_replicas("count", 3)
    plan = plan.with_replicas("split", 3)
    assert described(flow, plan) == "word-count batch 3: lines | split | count"


def chain(steps: int) -> Flow:
    flow = Flow("chain")
    schema = pa.schema([("x", pa.int64())])
    stream = flow.source("s", ab.generate(lambda rng, index: {"x": index}, schema, 10))
    for number in range(steps):
        stream = stream.deduplicate(f"without-doubles-{number}", key="x")
        stream = stream.aggregate(f"sum-{number}", x=ab.sum("x"), emit="every")
    stream.sink("out", ab.collect())
    return flow


def test_a_long_flow_is_cut_short():
    flow = chain(30)
    plan = Plan.sequential(flow)
    assert len(" · ".join(regions_of(layout(flow, plan), 0))) > LONGEST
    text = described(flow, plan)
    assert text.startswith("chain batch 3: without-doubles-0 · ")
    assert (len(text), text[-1]) == (LONGEST, "…")


PROGRAM = """
import json
import urllib.request

import pyarrow as pa

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.spark.session import session

spark = session("local[2,4]", app="d", conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
words = word_count.build(rows=400).writing({"out": ab.collect()})
plan = ab.Plan.sequential(words).with_source("lines", batch_rows=100)
ab.run(words, plan=plan, session=spark)
again = word_count.build(rows=100).writing({"out": ab.collect()})
wide = ab.Plan.sequential(again).with_source("lines", replicas=2).with_replicas("count", 3)
ab.run(again, plan=wide.with_replicas("split", 2), session=spark)
bold = ab.Flow("<b>bold</b> & more")
numbers = ab.generate(lambda rng, index: {"x": index}, pa.schema([("x", pa.int64())]), 10)
bold.source("s", numbers).deduplicate("<br/>once", key="x").sink("out", ab.collect())
ab.run(bold, plan=ab.Plan.sequential(bold), session=spark)
context = spark.sparkContext
api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/"
found = {}
for what in ("jobs", "stages", "sql?details=true&length=100"):
    with urllib.request.urlopen(api + what, timeout=30) as answer:
        found[what.split("?")[0]] = json.load(answer)
for page in ("jobs", "stages"):
    with urllib.request.urlopen(f"{context.uiWebUrl}/{page}/", timeout=30) as answer:
        found[f"{page} for people"] = answer.read().decode()
print("found", json.dumps(found))
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Spark's pages know of two runs; in a process of its own, as tests have no pages."""
    program: Path = tmp_path_factory.mktemp("pages") / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program)]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=270, check=False
    )
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("found ")] or [""]
    assert line, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(line.removeprefix("found "))
    return found


def of_spark(test: Any) -> Any:
    """The first of them starts a Spark of its own."""
    group = pytest.mark.xdist_group("spark")
    for mark in (thorough, pytest.mark.spark, group, pytest.mark.timeout(300)):
        test = mark(test)
    return test


def descriptions(told: list[dict[str, Any]]) -> set[str]:
    return {each["description"] for each in told}


@of_spark
@pytest.mark.parametrize("page", ["jobs", "stages"])
def test_sparks_pages_say_flow_batch_and_regions(pages, page):
    expected = {f"word-count batch {batch}: split · count" for batch in range(4)}
    assert expected <= descriptions(pages[page])


@of_spark
@pytest.mark.parametrize("page", ["jobs", "stages"])
def test_names_with_markup_are_shown_as_they_are(pages, page):
    shown = "<b>bold</b> & more batch 0: <br/>once"
    assert f">{escape(shown)}<" in pages[f"{page} for people"]


@of_spark
def test_each_stage_has_the_name_of_its_own_regions(pages):
    told = [s for s in pages["stages"] if s["description"].endswith(": split | count")]
    by_number = sorted(told, key=lambda stage: stage["stageId"])
    assert [stage["name"] for stage in by_number] == ["split", "count"]
    whole = [s["name"] for s in pages["stages"] if s["description"].endswith(": split · count")]
    assert set(whole) == {"split · count"}
    assert ">&lt;br/&gt;once<" in pages["stages for people"]
    assert "<br/>once" not in pages["stages for people"] + pages["jobs for people"]


@of_spark
def test_a_query_can_still_be_cancelled_by_its_job_group(pages):
    of_words = [job for job in pages["jobs"] if "split · count" in job["description"]]
    (group,) = {job["jobGroup"] for job in of_words}
    told = [run["description"] for run in pages["sql"]]
    assert any(f"runId = {group}" in text for text in told)


@of_spark
def test_the_plan_of_a_job_names_the_regions_of_each_stage(pages):
    plans = [run["planDescription"] for run in pages["sql"]]
    assert any("Arguments: split · count(" in plan for plan in plans)
