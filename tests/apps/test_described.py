"""What applications say of themselves: results, settings, and where they differ from others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from anabranch.apps import APPS
from anabranch.cli.finding import as_value
from anabranch.cli.listing import as_text, settings_of, what_comes_out
from anabranch.testing.sequential import run_sequential
from tests.apps.nexmark_rows import at, auction, bid, fed

HOOKS = Path(__file__).resolve().parents[2] / "docs" / "hooks"


@pytest.mark.parametrize("name", sorted(APPS))
def test_each_default_is_shown_as_the_command_line_takes_it(name):
    for parameter in APPS[name].parameters.values():
        if parameter.default is not None:
            given = as_value(name, parameter, as_text(parameter.default))
            assert (given, type(given)) == (parameter.default, type(parameter.default))


@pytest.mark.parametrize("name", sorted(APPS))
def test_each_setting_is_described(name):
    assert [each.name for each in settings_of(APPS[name]) if not each.about] == []


def test_the_last_row_of_each_key_of_a_changelog_counts():
    flow = APPS["word-count"].build(text="to be or not to be")
    [out] = what_comes_out(flow)
    assert out.key == ("word",)
    last = {row["word"]: row["n"] for row in run_sequential(flow).rows("out")}
    assert last == Counter(["to", "be", "or", "not", "to", "be"])


FLINK_WOULD_TAKE = {
    "q3": {
        "person": [{"dateTime": at(30), "id": 9}, {"dateTime": at(0)}],
        "auction": [auction(30, 90)],
    },
    **{
        query: {"auction": [auction(0, 90)], "bid": [bid(30, auction=8), bid(1)]}
        for query in ("q4", "q6", "q9")
    },
}


@pytest.mark.parametrize("query", FLINK_WOULD_TAKE)
def test_a_query_that_sets_aside_what_flinks_join_would_take_declares_it(query):
    result = run_sequential(fed(query, **FLINK_WOULD_TAKE[query]))
    sink = "person.late" if query == "q3" else "bid.late"
    assert (len(result.rows(sink)), result.rows("out")) == (1, [])
    said = " ".join(APPS[f"nexmark-{query}"].description.split())
    assert "Differs from Flink's SQL" in said
    assert "join takes rows however late they come" in said
    assert "further behind than `lateness` goes to the sink" in said
    assert f"`{sink}`" in said


def test_the_page_of_an_application_has_the_whole_description_of_each_variant(monkeypatch):
    monkeypatch.syspath_prepend(str(HOOKS))
    from application_pages import application_pages

    page = dict(application_pages())["apps/nexmark.md"]
    for query in FLINK_WOULD_TAKE:
        assert APPS[f"nexmark-{query}"].description in page
    assert "`avg_price: double` | a changelog: the last row of each category counts |" in page
    assert "Share of generated events that come late, by up to three seconds. | `0.1` |" in page
