"""`anabranch simulate`: profiles and applications, plans, scenarios, and what goes wrong."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from anabranch.apps import word_count
from anabranch.cli import simulating
from anabranch.engines.simulator.flows import flow_of
from anabranch.errors import AnabranchError, PlanError, UnknownNameError
from anabranch.planning.plan import Plan
from anabranch.planning.profile import read_profile

PROFILE = {
    "unit": "ms",
    "operators": [
        {"name": "parse", "cost": 1},
        {"name": "count", "cost": 4, "state": "partitioned", "key": ["word"]},
    ],
}
ANSWER = {
    "planner": "hand",
    "regions": [
        {"operators": ["parse"], "replicas": 1, "pipelines": [["parse"]]},
        {"operators": ["count"], "replicas": 2, "pipelines": [["count"]]},
    ],
}


@pytest.fixture
def file(tmp_path):
    """A function that writes a JSON file, and says where."""

    def write(name, data):
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
        return str(path)

    return write


def simulate(*arguments):
    """Call the command; gives what it printed."""
    cli = typer.Typer()
    simulating.register(cli)
    cli.command("other")(lambda: None)  # with one command alone, its name would be left out
    result = CliRunner().invoke(cli, ["simulate", *arguments])
    if isinstance(result.exception, AnabranchError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_profile_alone_runs_in_one_thread_per_region(file):
    told = json.loads(simulate(file("p.json", PROFILE), "--machine", "cores=4", "--json"))
    assert told["rows_in_per_s"] == pytest.approx(200)
    assert told["cores_busy"] == pytest.approx(1.0)
    assert [o["at_s"] for o in told["observations"]] == pytest.approx(list(range(1, 11)))


def test_an_answer_of_a_planner_is_a_plan(file):
    short = file("s.json", {"queue_tuples": 20})
    plan = file("a.json", ANSWER)
    arguments = ("--machine", "cores=4", "--plan", plan, "--scenario", short, "--json")
    told = json.loads(simulate(file("p.json", PROFILE), *arguments))
    assert told["observations"][-1]["rows_in"] == pytest.approx(500, abs=1)
    assert told["threads"] == 3


def test_a_plan_of_the_flow_of_a_profile_is_a_plan(file):
    flow = flow_of(read_profile(json.dumps(PROFILE)))
    plan = Plan.sequential(flow).with_replicas("count", 2).to_json()
    arguments = ("--machine", "cores=4", "--plan", file("plan.json", plan), "--json")
    told = json.loads(simulate(file("p.json", PROFILE), *arguments))
    assert told["rows_in_per_s"] == pytest.approx(400)


def test_a_scenario_changes_the_load(file):
    scenario = {"loads": [{"points": [[0, 50], [5, 300]], "source": "parse.input"}]}
    arguments = ("--scenario", file("s.json", scenario), "--machine", "cores=4", "--json")
    seen = json.loads(simulate(file("p.json", PROFILE), *arguments))["observations"]
    assert seen[2]["rows_in"] == 50
    assert seen[-1]["rows_in"] == pytest.approx(200)
    assert seen[-1]["sources"][0]["backlog_rows"] == pytest.approx(500, abs=1)


def test_people_get_a_table(file):
    text = simulate(file("p.json", PROFILE), "--machine", "cores=4", "--seconds", "30")
    first, *lines = text.splitlines()
    assert first == "profile on cores=4: 30 s of virtual time"
    assert "200 rows/s in" in lines[0]
    assert len([line for line in lines if line.endswith(" -")]) == 10  # every third second
    assert any(line.endswith("parse · count") and "100.0%" in line for line in lines)


def test_an_application_is_profiled_and_simulated():
    arguments = ("--machine", "cores=2", "--seconds", "1", "--json")
    told = json.loads(simulate("word-count", *arguments))
    assert told["name"] == "word-count"
    assert told["rows_in"] > 0
    assert {s["step"] for s in told["observations"][0]["steps"]} >= {"split", "count"}


@pytest.mark.parametrize(
    ("option", "data", "error"),
    [
        ("--scenario", {"noise": "much"}, PlanError),
        ("--plan", {"regions": [{"pipelines": [["parse"]], "replicas": 1}]}, PlanError),
        ("--plan", {"regions": [{"pipelines": [["parse"]], "replicas": 0}]}, PlanError),
        ("--plan", "[", PlanError),
        ("--machine", {"cores": 0}, PlanError),
    ],
)
def test_bad_files_are_errors_that_people_can_mend(file, option, data, error):
    with pytest.raises(error):
        simulate(file("p.json", PROFILE), option, file("bad.json", data))


def test_files_that_are_missing_are_named(file, tmp_path):
    with pytest.raises(UnknownNameError, match="nowhere"):
        simulate(file("p.json", PROFILE), "--scenario", str(tmp_path / "nowhere.json"))


def test_readers_are_in_the_table_of_who_is_busy_as_well(file):
    of_flow = {
        "unit": "us",
        "operators": [
            {"name": "lines", "cost": 2},
            {"name": "split", "cost": 1},
            {"name": "count.combine", "cost": 1},
            {"name": "count", "cost": 1, "state": "partitioned", "key": ["word"]},
            {"name": "out", "cost": 1, "state": "stateful"},
        ],
    }
    plan = Plan.sequential(word_count.build()).with_source("lines", replicas=2)
    arguments = ["--profile", file("p.json", of_flow), "--plan", file("plan.json", plan.to_json())]
    out = simulate("word-count", *arguments, "--machine", "cores=8", "--seconds", "2")
    table = out.partition("pipeline\n")[2].splitlines()
    names = [line.split("  ")[-1] for line in table]
    assert names == ["source lines", "split · count.combine", "count", "out"]
    busy, replicas = table[0].split()[:2]
    assert replicas == "2"
    assert 0 < float(busy.rstrip("%")) <= 100


def test_a_source_of_a_profile_is_there_once(file):
    out = simulate(file("p.json", PROFILE), "--plan", file("a.json", ANSWER), "--seconds", "1")
    assert out.count("parse") == 1
