"""Pages of `docs/reproduced` say what the rules of today say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reproduce.joker import scripted as joker
from tests.reproduce.stepwise import scripted as stepwise

PAGES = Path(__file__).parents[2] / "docs" / "reproduced"
HAND_MADE = {"joker": joker.reproduction, "stepwise": stepwise.reproduction}


def told(claims):
    """What does not depend on runs: claims, what is compared at all, and by which rule."""
    return sorted((c["where"], c["paper"], c["verdict"] == "not comparable", c["rule"])
                  for c in claims)  # fmt: skip


@pytest.mark.parametrize("paper", HAND_MADE)
def test_a_page_was_written_by_the_rules_of_today(paper):
    page = json.loads((PAGES / f"{paper}.json").read_text(encoding="utf-8"))
    assert told(page["claims"]) == told(HAND_MADE[paper]().as_object()["claims"])
