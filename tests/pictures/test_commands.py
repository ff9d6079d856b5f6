"""What the command line writes as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from anabranch.adapt.policy import Cadence
from anabranch.apps import word_count
from anabranch.cli import finding, measuring, tuning
from anabranch.cli.plotting import profile_plot, tune_plot
from anabranch.errors import EngineError
from anabranch.events import BatchTimes, Observation, Observed, Reconfiguration, RunStarted
from anabranch.pictures import plots
from anabranch.planning.plan import Plan
from anabranch.planning.planners.registry import PLANNERS
from anabranch.planning.profile import OperatorProfile, chain
from anabranch.view.tuning_report import Rounds

PROFILE: dict[str, Any] = {
    "operators": [
        {"name": "read", "state": "stateful", "cost": 10, "selectivity": 1},
        {"name": "count", "state": "partitioned", "key": ["k"], "cost": 20, "selectivity": 0.5},
    ]
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(command_line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PROFILE), encoding="utf-8")
    return command_line


def written(picture: str) -> list[str]:
    """The texts of a picture."""
    return [
        (each.text or "").strip() for each in ElementTree.fromstring(picture).iter(f"{SVG}text")
    ]


def in_file(name: str) -> list[str]:
    return written(Path(name).read_text(encoding="utf-8"))


def test_a_plan_is_drawn_beside_being_shown(run):
    ran = run("plan", "word-count", "--svg", "pictures/plan.svg")
    assert (ran.code, "plan for word-count" in ran.out) == (0, True)
    assert {"lines", "split", "count.combine", "count", "out"} <= set(in_file("pictures/plan.svg"))


@pytest.mark.parametrize("place", ["a-file/plan.svg", "."])
def test_a_picture_that_cannot_be_written_is_said_in_a_line(run, place):
    Path("a-file").touch()
    ran = run("plan", "word-count", "--svg", place)
    assert ran.code == 2
    assert "expected a file that can be written" in ran.err
    assert "Traceback" not in ran.err


def test_a_plan_from_a_file_is_drawn_as_it_is_there(run):
    plan = Plan.sequential(word_count.build()).with_replicas("count", 5)
    Path("plan.json").write_text(plan.to_json())
    assert run("plan", "word-count", "--plan", "plan.json", "--svg", "plan.svg").code == 0
    assert "×5" in in_file("plan.svg")


def test_what_a_planner_found_is_drawn(run):
    assert run("profile", "word-count", "--rows", 500, "--out", "words.json").code == 0
    wishes = ("--profile", "words.json", "--machine", "cores=16", "--planner", "fission")
    assert run("plan", "word-count", *wishes, "--svg", "plan.svg", "--save", "plan.json").code == 0
    planned = Plan.from_json(Path("plan.json").read_text())
    most = max(r.replicas for r in (*planned.regions, *planned.sources))
    assert most > 1
    assert f"×{most}" in in_file("plan.svg")


def test_the_plan_of_a_profile_is_not_drawn(run):
    ran = run("plan", "p.json", "--svg", "plan.svg")
    assert ran.code == 2
    assert "--svg draws the plan of an application" in " ".join(ran.err.split())
    assert not Path("plan.svg").exists()


def test_a_profile_is_plotted(run):
    assert run("profile", "word-count", "--rows", 500, "--plot", "new/profile.svg").code == 0
    words = in_file("new/profile.svg")
    assert {"split", "count", "µs per tuple in", "tuples out per tuple in"} <= set(words)


def test_what_a_step_costs_and_passes_on_is_written_at_its_bars():
    profile = chain([OperatorProfile("a $x$ <b>", 1.5, 0.25), OperatorProfile("b", 2.0)], unit="us")
    words = written(profile_plot("app", profile))
    # The second step gets a quarter of the tuples: 0.5 of 2 µs in all.
    assert {"a $x$ <b>", "1.5", "2", "75", "25", "0.25"} <= set(words)


def test_planners_are_plotted_side_by_side(run):
    ran = run("compare", "p.json", "--machine", "cores=4", "--plot", "planners.svg", "--json")
    told = json.loads(ran.out)
    words = in_file("planners.svg")
    for answer in told:
        name = answer["planner"]
        assert (f"{name}: no plan" if "error" in answer else name) in words
    assert [answer["planner"] for answer in told] == list(PLANNERS)


def observed(at_s: float, rows: int) -> Observed:
    times = BatchTimes(1.0, 0, 0, 0, 0, 0, 0)
    return Observed(Observation(at_s, 0, rows, rows, times, 1.0, 2.0))


def test_rounds_are_plotted_and_changes_of_plan_marked():
    narrow = Plan.sequential(word_count.build())
    wide = narrow.with_replicas("count", 2).with_replicas("split", 2)
    rounds = Rounds(Cadence(settle=0, periods=1))
    rounds.hear(RunStarted("word-count", "local", narrow.to_json(), -1))
    rounds.hear(observed(1.0, 1000))
    rounds.hear(Reconfiguration(1.5, 1, 0.0, (), 0, narrow.to_json(), wide.to_json()))
    rounds.hear(observed(2.5, 3000))
    words = written(tune_plot("tuned", rounds))
    assert "1: 1 → 2 replicas of region split and 1 more" in words
    assert {"tuned", "seen", "thousand tuples/s"} <= set(words)


def test_a_run_in_which_nothing_was_seen_is_plotted_too():
    rounds = Rounds(Cadence(settle=0, periods=1))
    assert "nothing" in written(tune_plot("nothing", rounds))


def test_a_tuned_run_is_plotted(run):
    Path("text.txt").write_text("to be or not to be\n" * 10)
    ran = run("tune", "word-count", "--engine", "local", "--input", "text.txt", "--plot", "t.svg")
    assert ran.code == 0
    assert "word-count on local, tuned by auto" in in_file("t.svg")


@pytest.mark.parametrize(
    ("command", "module", "name"),
    [
        (("profile", "word-count"), measuring, "measure_flow"),
        (("compare", "word-count"), finding, "take_profile"),
        (("tune", "word-count"), tuning, "start"),
    ],
)
def test_without_matplotlib_plots_are_refused_before_anything_is_measured(
    run, monkeypatch, command, module, name
):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    monkeypatch.setattr(module, name, lambda *given, **more: pytest.fail("measured"))
    ran = run(*command, "--plot", "p.svg")
    assert ran.code
    assert 'pip install "anabranch[plots]", or leave out --plot' in " ".join(ran.err.split())


def test_many_marks_have_numbers_only():
    marks = [(float(n), f"change {n}") for n in range(1, 31)]
    words = written(plots.lines("t", "x", "y", {"a": [(0, 1), (31, 1)]}, marks=marks))
    assert "change 1" not in words
    assert "29" in words


def test_a_plot_without_matplotlib_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match="matplotlib"):
        plots.lines("t", "x", "y", {"a": [(0, 1)]})
