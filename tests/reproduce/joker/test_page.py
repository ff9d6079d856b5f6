import json

import pytest
import typer
from typer.testing import CliRunner

from anabranch.reproduce.command import register
from anabranch.reproduce.joker import page as joker_page
from anabranch.reproduce.joker import reproduction as joker
from anabranch.reproduce.joker.pictures import pictures
from tests.reproduce.joker import scripted
from tests.reproduce.joker.scripted import reproduction
from tests.sampling import thorough

FIGURES = (5, 6, 8, 9, 10, 11, 12, 14, 15, 16, 18, 19, 20)


@pytest.fixture
def run(monkeypatch):
    cli = typer.Typer()
    cli.command("other")(lambda: None)
    register(cli)
    monkeypatch.setattr(joker, "reproduce", lambda effort, tell: reproduction())
    return lambda *words: CliRunner().invoke(cli, ["reproduce", "joker", *words])


def test_every_figure_has_a_table_and_a_claim():
    found = reproduction()
    titles = [table.title.partition(":")[0] for table in joker_page.tables(found)]
    assert titles == ["Claims", *(f"Figure {n}" for n in FIGURES), "Figures 22–32"]
    claimed = {claim.where for claim in found.claims if claim.where.startswith("figure ")}
    assert claimed == {f"figure {n}" for n in (*FIGURES, 32)}


def test_every_row_of_a_table_has_a_cell_for_each_column():
    for table in joker_page.tables(reproduction()):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert not any("|" in cell for row in table.rows for cell in row)


def test_a_folder_gets_numbers_a_page_and_the_pictures_that_it_shows(run, tmp_path):
    assert run("--out", str(tmp_path)).exit_code == 0
    numbers = json.loads((tmp_path / "joker.json").read_text())
    page = (tmp_path / "joker.md").read_text()
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert numbers["paper"] == "joker"
    assert len(drawn) == len(FIGURES) + 1
    assert all(f"({name})" in page for name in drawn)
    assert page.count("](joker-") == len(drawn)


@thorough
def test_pictures_are_the_same_whenever_they_are_drawn():
    assert pictures(reproduction()) == pictures(reproduction())


def test_claims_are_told_in_the_order_of_the_figures(monkeypatch):
    """Everything goes through one call; runs are scripted, since each takes a while."""
    by_figure = {each.figure.replace(" ", "_"): each for each in scripted.curves()}
    for name, curves in by_figure.items():
        monkeypatch.setattr(joker.drawn, name, lambda *efforts, told=curves: told)
    monkeypatch.setattr(joker.drawn, "fission_only_with", lambda buckets, costs: 8.0)
    figures = tuple(lambda told=each: told for each in scripted.traces())
    monkeypatch.setattr(joker, "FIGURES", figures)
    monkeypatch.setattr(joker, "compare", scripted.all_compared)
    told = []
    found = joker.reproduce(joker.QUICK, told.append)
    assert len(told) == 7
    singles = [c.where for c in found.claims if c.where.startswith("figure ")]
    numbers = [int(where.removeprefix("figure ")) for where in singles]
    assert numbers == sorted(numbers)
    assert found.replayed_10[-1].kept
    json.dumps(found.as_object())
