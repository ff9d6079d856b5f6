import json
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from anabranch.reproduce.briskstream import page as brisk_page
from anabranch.reproduce.briskstream import reproduction as briskstream
from anabranch.reproduce.briskstream.pictures import pictures
from anabranch.reproduce.command import register
from tests.reproduce.briskstream.scripted import dealt_out, reproduction
from tests.sampling import thorough

QUICKER = (
    ("briskstream.planning", "rlas"),
    ("briskstream.model", "rlas"),
    ("briskstream.placements", "rlas"),
    ("briskstream.placements", "rlas_fix_l"),
    ("briskstream.placements", "rlas_fix_u"),
)
TINY = briskstream.Effort(
    sockets=(1, 4, 8), ratios=(5,), simulated_s=0.02, random_plans=20, factor_s=0.001, repeats=1
)


@pytest.fixture
def run(monkeypatch):
    cli = typer.Typer()
    cli.command("other")(lambda: None)
    register(cli)
    efforts = []

    def scripted(effort, tell):
        efforts.append(effort)
        return reproduction()

    monkeypatch.setattr(briskstream, "reproduce", scripted)
    return lambda *words: (CliRunner().invoke(cli, ["reproduce", *words]), efforts)


def test_the_command_knows_the_paper(run):
    result, efforts = run("briskstream", "--json", "--quick")
    assert efforts == [briskstream.QUICK]
    found = json.loads(result.stdout)
    assert found["paper"] == "briskstream"
    assert found["scaling"][0]["throughput_k"]["4"] == 3.8


def test_a_folder_gets_the_page_and_every_picture_that_it_shows(run, tmp_path):
    result, efforts = run("briskstream", "--out", str(tmp_path))
    assert result.exit_code == 0
    assert efforts == [briskstream.FULL]
    page = (tmp_path / "briskstream.md").read_text()
    shown = {line.split("(")[-1][:-1] for line in page.splitlines() if line.startswith("![")}
    assert shown == {path.name for path in tmp_path.glob("*.svg")} != set()


@thorough
def test_pictures_are_the_same_each_time():
    first, second = pictures(reproduction()), pictures(reproduction())
    assert first == second
    for picture in first.values():
        ElementTree.fromstring(picture)


def test_every_row_of_a_table_has_a_cell_for_each_column():
    for table in brisk_page.tables(reproduction()):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_the_text_begins_with_the_verdicts():
    found = reproduction()
    assert brisk_page.text(found).startswith(f"{len(found.claims)} claims: 19 reproduced")


def test_everything_is_computed_in_one_go(monkeypatch):
    """With a planner that thinks less."""
    for module, name in QUICKER:
        monkeypatch.setattr(f"anabranch.reproduce.{module}.{name}", dealt_out)
    told = []
    found = briskstream.reproduce(TINY, told.append)
    assert len(told) == 6
    assert [one.app for one in found.accuracy] == ["wc", "fd", "sd", "lr"]
    assert {one.where for one in found.claims} == {one.where for one in reproduction().claims}
