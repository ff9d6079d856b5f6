"""`anabranch reproduce PAPER`, with results made up by hand."""

import json
import sys
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from anabranch.cli import reproducing
from anabranch.errors import EngineError, UnknownNameError
from anabranch.pictures import plots
from papers import command
from papers.command import PAPERS, load, register
from tests.papers.scripted import RESULTS

ROOT = str(reproducing.REPOSITORY)


@pytest.fixture
def run(monkeypatch):
    """Call the command; `measure` notes the effort, and takes no time."""
    cli = typer.Typer()
    cli.command("other")(lambda: None)
    register(cli)
    efforts = []

    def scripted(name):
        def measure(effort, tell):
            efforts.append(effort)
            tell("figure 0")
            return RESULTS[name]()

        return replace(load(name), measure=measure)

    monkeypatch.setattr(command, "load", scripted)
    return lambda *words: (CliRunner().invoke(cli, ["reproduce", *words]), efforts)


def test_tables_are_printed_and_progress_goes_elsewhere(run):
    result, efforts = run("stretch")
    assert result.exit_code == 0
    assert efforts == [load("stretch").full]
    assert "figure 0" in result.stderr
    assert "figure 0" not in result.stdout
    assert "Figure 4b: without work" in result.stdout
    assert "19 claims: " in result.stdout


def test_json_is_one_object_and_nothing_else(run):
    result, efforts = run("stretch", "--json", "--quick")
    assert efforts == [load("stretch").quick]
    found = json.loads(result.stdout)
    assert found["paper"] == "stretch"
    assert found["claims"][1]["verdict"] == "reproduced"
    assert found["provisioning"]["switch"]["after"] == 2


@pytest.mark.parametrize("paper", PAPERS)
def test_a_folder_gets_numbers_a_page_and_the_pictures_that_it_shows(run, tmp_path, paper):
    folder = tmp_path / "new"
    assert run(paper, "--out", str(folder))[0].exit_code == 0
    assert json.loads((folder / f"{paper}.json").read_text())["paper"] == paper
    page = (folder / f"{paper}.md").read_text()
    shown = {line.split("(")[-1][:-1] for line in page.splitlines() if line.startswith("![")}
    assert shown == {path.name for path in folder.glob("*.svg")}
    assert bool(shown) == load(paper).draws


def test_an_unknown_paper_is_named():
    with pytest.raises(UnknownNameError, match="stretch"):
        load("flink")


def test_pictures_without_matplotlib_are_refused_before_anything_is_measured(
    run, monkeypatch, tmp_path
):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    result, efforts = run("pipelined-fission", "--out", str(tmp_path))
    assert isinstance(result.exception, EngineError)
    assert 'pip install "anabranch[plots]"' in str(result.exception)
    assert efforts == []


def test_without_pictures_matplotlib_is_not_needed(run, monkeypatch, tmp_path):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert "Figure 12" in run("pipelined-fission")[0].stdout
    assert run("stretch", "--out", str(tmp_path))[0].exit_code == 0


def test_a_checkout_is_found_wherever_the_command_is_called(command_line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in ("", ROOT)])
    for module in [name for name in sys.modules if name.partition(".")[0] == "papers"]:
        monkeypatch.delitem(sys.modules, module)
    ran = command_line("reproduce", "jokre")
    assert ran.code == 2
    assert "did you mean 'joker'" in ran.err


def test_without_a_checkout_the_error_says_where_the_papers_are(
    command_line, monkeypatch, tmp_path
):
    monkeypatch.setattr(reproducing, "REPOSITORY", tmp_path)
    ran = command_line("reproduce", "joker")
    assert ran.code == 2
    assert ran.err.startswith("error: package 'papers': expected a checkout of Anabranch's")
    assert "clone the repository, and run there: make reproduce PAPER=joker" in ran.err
