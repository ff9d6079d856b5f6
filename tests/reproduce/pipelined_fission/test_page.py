import json

import pytest
import typer
from typer.testing import CliRunner

from anabranch.errors import EngineError
from anabranch.pictures import plots
from anabranch.reproduce.command import register
from anabranch.reproduce.pipelined_fission import page as fission_page
from anabranch.reproduce.pipelined_fission import reproduction as fission
from tests.reproduce.pipelined_fission.scripted import reproduction
from tests.sampling import thorough

FIGURES = range(4, 19)


@pytest.fixture
def run(monkeypatch):
    cli = typer.Typer()
    cli.command("other")(lambda: None)
    register(cli)
    monkeypatch.setattr(fission, "reproduce", lambda effort, tell: reproduction())
    return lambda *words: CliRunner().invoke(cli, ["reproduce", "pipelined-fission", *words])


def test_every_figure_has_a_table_and_a_claim_or_is_an_input():
    found = reproduction()
    titles = [table.title.partition(":")[0] for table in fission_page.tables(found)]
    assert titles == ["Claims", *(f"Figure {n}" for n in FIGURES)]
    claimed = {claim.where for claim in found.claims}
    assert claimed == {f"figure {n}" for n in FIGURES if n != 17}


def test_every_row_of_a_table_has_a_cell_for_each_column():
    for table in fission_page.tables(reproduction()):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_a_folder_gets_numbers_a_page_and_the_pictures_that_it_shows(run, tmp_path):
    assert run("--out", str(tmp_path)).exit_code == 0
    numbers = json.loads((tmp_path / "pipelined-fission.json").read_text())
    page = (tmp_path / "pipelined-fission.md").read_text()
    pictures = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert numbers["paper"] == "pipelined-fission"
    assert len(pictures) == len(FIGURES) - 1
    assert all(f"({name})" in page for name in pictures)
    assert page.count("](pipelined-fission-") == len(pictures)


@thorough
def test_pictures_are_the_same_whenever_they_are_drawn():
    assert fission_page.pictures(reproduction()) == fission_page.pictures(reproduction())


def test_pictures_without_matplotlib_are_refused_before_anything_is_measured(
    run, monkeypatch, tmp_path
):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    monkeypatch.setattr(fission, "reproduce", lambda effort, tell: pytest.fail("measured"))
    refused = run("--out", str(tmp_path)).exception
    assert isinstance(refused, EngineError)
    assert 'pip install "anabranch[plots]"' in str(refused)


def test_without_a_folder_no_pictures_are_needed(run, monkeypatch):
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert "Figure 12" in run().stdout
