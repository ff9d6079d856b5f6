"""The commands `profile` and `calibrate`."""

import json

import pytest
import typer
from typer.testing import CliRunner

from anabranch.cli import measuring
from anabranch.engines.measuring.calibration import Calibrated
from anabranch.errors import PlanError, UnknownNameError
from anabranch.graph import StateKind
from anabranch.planning.machine import Machine, read_machine, read_spark_costs, with_spark_costs
from anabranch.planning.models.spark import SparkCosts
from anabranch.planning.profile import Overheads, read_profile

SPARK = SparkCosts(0.1, 0.03, 0.02, 150.0, 9.0, 2.0)


@pytest.fixture
def run():
    cli = typer.Typer()
    measuring.register(cli)

    def invoke(*arguments):
        return CliRunner().invoke(cli, [str(each) for each in arguments], catch_exceptions=False)

    return invoke


@pytest.fixture
def measured(monkeypatch):
    """A machine and an engine that are quickly measured."""
    found = Calibrated((30, 40, 50), (1, 2, 3), (50, 60, 70))
    monkeypatch.setattr(measuring, "this_machine", lambda: Machine("here", 1, 2, ghz=2.0))
    monkeypatch.setattr(measuring, "calibrate_local", lambda machine, rows, repeats: found)
    monkeypatch.setattr(measuring, "spark_trials", lambda rounds: [])
    monkeypatch.setattr(measuring, "fit", lambda trials, slots: SPARK)


def test_a_profile_is_shown_and_written(run, tmp_path):
    file = tmp_path / "profiles" / "words.json"
    shown = run("profile", "word-count", "--rows", 2000, "--out", file)
    assert shown.exit_code == 0
    profile = read_profile(file.read_text())
    assert (profile.app, profile.unit) == ("word-count", "us")
    assert profile.by_name["count"].state is StateKind.PARTITIONED
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:7]] == [o.name for o in profile.operators]
    assert "memory traffic is not read" in shown.stdout


def test_a_profile_as_json_is_the_file_and_nothing_else(run):
    shown = run("profile", "word-count", "--rows", 500, "--json")
    assert read_profile(shown.stdout).app == "word-count"


def test_engines_differ_in_the_size_of_jumbo_tuples(run):
    def passed_on(*options):
        shown = run("profile", "word-count", "--rows", 40_000, "--json", *options)
        return read_profile(shown.stdout).by_name["count.combine"].selectivity

    assert passed_on("--batch-rows", 1000) > passed_on() > passed_on("--engine", "spark")


def test_own_files_are_profiled(run, tmp_path):
    (tmp_path / "a.txt").write_text("to be\nor not\n")
    shown = run("profile", "word-count", "--input", tmp_path / "a.txt", "--json")
    assert read_profile(shown.stdout).by_name["split"].selectivity == 2


@pytest.mark.parametrize("command", [("profile", "word-count"), ("calibrate",)])
def test_an_unknown_engine_is_named(run, measured, command):
    with pytest.raises(UnknownNameError, match="flink"):
        run(*command, "--engine", "flink")


def test_calibration_writes_a_machine(run, measured, tmp_path):
    file = tmp_path / "machine.json"
    shown = run("calibrate", "--out", file)
    machine = read_machine(file.read_text())
    assert machine.cores == 2
    assert machine.overheads["local"] == Overheads(40.0, 60.0)
    assert read_spark_costs(file.read_text()) is None
    assert "40 ns a tuple [30 … 50]" in shown.stdout
    assert "16,384 rows; for planners: thread switch 40, replication 60 ns" in shown.stdout
    assert "only 1 and 2 replicas" in shown.stdout


def test_a_second_engine_adds_to_the_file(run, measured, tmp_path):
    file = tmp_path / "machine.json"
    run("calibrate", "--out", file)
    run("calibrate", "--engine", "spark", "--out", file)
    run("calibrate", "--out", file)
    machine = read_machine(file.read_text())
    assert machine.overheads == {"local": Overheads(40.0, 60.0), "spark": Overheads(75.0, 0.0)}
    assert read_spark_costs(file.read_text()) == SPARK


def test_sparks_costs_are_told_with_their_units(run, measured):
    shown = run("calibrate", "--engine", "spark").stdout
    assert "100.0 ms" in shown
    assert "150.0 ns" in shown


def test_a_machine_as_json_is_the_file_and_nothing_else(run, measured):
    assert read_machine(run("calibrate", "--json").stdout).cores == 2


@pytest.mark.parametrize(
    ("spark", "field"),
    [
        ({"stage_s": 0.1}, "batch_s"),
        ({"batch_s": -1}, "batch_s"),
        ({"batch_s": 0.1, "stages_s": 1}, "stages_s"),
    ],
)
def test_bad_costs_of_spark_are_named(spark, field):
    with pytest.raises(PlanError, match=field):
        read_spark_costs(json.dumps({"cores": 2, "spark": spark}))


def test_sparks_costs_read_back():
    assert read_spark_costs(with_spark_costs('{"cores": 2}', SPARK)) == SPARK
