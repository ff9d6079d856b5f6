"""Pages and numbers of every paper: those made up by hand, and those of `docs/reproduced`."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from papers.command import PAPERS, load
from papers.paper import pictures
from tests.papers.scripted import reproduction
from tests.sampling import thorough

PUBLISHED = Path(__file__).parents[2] / "docs" / "reproduced"
TRAYS_GB_S = {"fd": 2.42, "lr": 2.26}
"""As BriskStream's page has them; the file of its numbers does not hold them."""
every_paper = pytest.mark.parametrize("name", PAPERS)


def published(name):
    return load(name).from_json((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))


@every_paper
def test_a_published_page_follows_from_its_numbers(name):
    page = (PUBLISHED / f"{name}.md").read_text(encoding="utf-8")
    assert load(name).page(published(name)) == page


@every_paper
def test_published_verdicts_follow_from_the_rules_of_today(name):
    found = published(name)
    if name == "briskstream":
        found = replace(found, results=replace(found.results, tray_gb_s=TRAYS_GB_S))
    assert load(name).claims(found.results, found.machine) == found.claims


@every_paper
def test_a_page_and_its_pictures_are_published_together(name):
    drawn = {picture.file for picture in pictures(load(name).tables(published(name)))}
    assert drawn == {path.name for path in PUBLISHED.glob(f"{name}-*.svg")}


@every_paper
def test_numbers_are_read_as_they_were_written(name):
    found = reproduction(name)
    assert load(name).from_json(load(name).to_json(found)) == found


@every_paper
def test_every_row_of_a_table_has_a_cell_for_each_column(name):
    for table in load(name).all_tables(reproduction(name)):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert not any("|" in cell for row in table.rows for cell in row)


@thorough
@every_paper
def test_pictures_are_the_same_whenever_they_are_drawn(name):
    for picture in pictures(load(name).tables(reproduction(name))):
        drawn = picture.svg()
        assert picture.svg() == drawn
        ElementTree.fromstring(drawn)


FISSION, JOKER = (*range(4, 19),), (5, 6, 8, 9, 10, 11, 12, 14, 15, 16, 18, 19, 20)


@pytest.mark.parametrize(
    ("name", "titles", "claimed"),
    [
        ("pipelined-fission", [f"Figure {n}" for n in FISSION], {*FISSION} - {17}),
        ("joker", [*(f"Figure {n}" for n in JOKER), "Figures 22–32"], {*JOKER, 32}),
    ],
)
def test_every_figure_has_a_table_and_a_claim_or_is_an_input(name, titles, claimed):
    found = reproduction(name)
    assert [table.title.partition(":")[0] for table in load(name).tables(found)] == titles
    wheres = {claim.where for claim in found.claims if claim.where.startswith("figure ")}
    assert wheres == {f"figure {n}" for n in claimed}


def test_claims_are_told_in_the_order_of_the_figures():
    claims = reproduction("joker").claims
    singles = [claim.where for claim in claims if claim.where.startswith("figure ")]
    numbers = [int(where.removeprefix("figure ")) for where in singles]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("name", "begins"), [("briskstream", "31 claims: 19 reproduced"), ("stepwise", "26 claims: 22")]
)
def test_the_text_begins_with_the_verdicts(name, begins):
    assert load(name).text(reproduction(name)).startswith(begins)


def test_a_page_says_why_numbers_differ():
    page = load("stepwise").page(reproduction("stepwise"))
    assert "The costs of operators are not published" in page
    assert "Why some claims do not come out" in page
