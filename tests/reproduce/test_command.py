import json

import pytest
import typer
from typer.testing import CliRunner

from anabranch.errors import UnknownNameError
from anabranch.reproduce.command import register
from anabranch.reproduce.stretch import page as stretch_page
from anabranch.reproduce.stretch import reproduction as stretch
from tests.reproduce.stretch.scripted import reproduction
from tests.sampling import thorough

TINY = stretch.Effort(
    rows=2000,
    repeats=1,
    threads_4=(1, 2),
    threads_5=(1, 2),
    switches=(1, 2),
    window_s=0.2,
    seconds=0.2,
    hold_s=0.1,
)


@pytest.fixture
def run(monkeypatch):
    cli = typer.Typer()
    cli.command("other")(lambda: None)
    register(cli)
    efforts = []

    def scripted(effort, tell):
        efforts.append(effort)
        tell("figure 0")
        return reproduction()

    monkeypatch.setattr(stretch, "reproduce", scripted)
    return lambda *words: (CliRunner().invoke(cli, ["reproduce", *words]), efforts)


def test_tables_are_printed_and_progress_goes_elsewhere(run):
    result, efforts = run("stretch")
    assert result.exit_code == 0
    assert efforts == [stretch.FULL]
    assert "figure 0" in result.stderr
    assert "figure 0" not in result.stdout
    assert "Figure 4b: without work" in result.stdout
    assert "2 claims: 2 reproduced." in result.stdout


def test_json_is_one_object_and_nothing_else(run):
    result, efforts = run("stretch", "--json", "--quick")
    assert efforts == [stretch.QUICK]
    found = json.loads(result.stdout)
    assert found["paper"] == "stretch"
    assert found["claims"][1]["verdict"] == "reproduced"
    assert found["provisioning"]["switch"]["after"] == 2


def test_a_folder_gets_the_numbers_and_a_page(run, tmp_path):
    run("stretch", "--out", str(tmp_path / "new"))
    numbers = json.loads((tmp_path / "new" / "stretch.json").read_text())
    page = (tmp_path / "new" / "stretch.md").read_text()
    assert len(numbers["claims"]) == 2
    assert page.startswith("# STRETCH, reproduced\n")
    assert "| table 2 |" in page


def test_an_unknown_paper_is_named(run):
    result, _ = run("flink")
    assert isinstance(result.exception, UnknownNameError)
    assert "stretch" in str(result.exception)


def test_every_row_of_a_table_has_a_cell_for_each_column():
    for table in stretch_page.tables(reproduction()):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}


@thorough
def test_everything_is_measured_in_one_go():
    told = []
    found = stretch.reproduce(TINY, told.append)
    assert len(told) == 7
    assert {claim.where for claim in found.claims} == {
        "figure 3",
        "table 2",
        "figure 4a",
        "figure 4b",
        "figure 5",
    }
    assert [one.threads for one in found.intra] == [1, 2]
    json.dumps(found.as_object())
    assert "not comparable" in stretch_page.page(found)
