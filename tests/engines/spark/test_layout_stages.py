"""How many stages a micro-batch of each application has: each stage is paid for in every batch."""

from __future__ import annotations

import pytest

from anabranch.apps import APPS
from anabranch.engines.spark.layout import layout, with_ranges
from anabranch.planning.plan import Plan
from anabranch.planning.starting import readers_side_by_side, side_by_side

CORES = 2
STAGES = {
    "word-count": (1, 2, 2),
    "synthetic-word-count": (1, 2, 2),
    "finance": (1, 2, 3),
    "micro": (1, 2, 3),
    "micro-two-regions": (1, 2, 4),
    "micro-tree": (1, 2, 4),
    "micro-reverse-tree": (1, 2, 4),
    "micro-selectivity": (1, 2, 3),
    "micro-joker-chain": (1, 2, 5),
    "micro-linear": (1, 1, 1),
    "micro-diamond": (1, 2, 1),
    "micro-star": (1, 3, 3),
    "log-watch": (1, 2, 4),
    "network-monitoring": (1, 2, 3),
    "band-join": (1, 2, 3),
    "fraud-detection": (1, 2, 3),
    "spike-detection": (1, 2, 3),
    "linear-road": (1, 2, 6),
    "hashtag-sequences": (1, 2, 3),
    "sentiment": (1, 2, 4),
    "nexmark": (1, 2, 3),
    "nexmark-q0": (1, 1, 1),
    "nexmark-q1": (1, 1, 1),
    "nexmark-q2": (1, 1, 1),
    "nexmark-q3": (1, 2, 3),
    "nexmark-q4": (1, 2, 3),
    "nexmark-q5": (1, 2, 3),
    "nexmark-q6": (1, 2, 4),
    "nexmark-q7": (1, 2, 3),
    "nexmark-q8": (1, 2, 4),
    "nexmark-q9": (1, 2, 3),
    "nexmark-q11": (1, 2, 3),
    "nexmark-q12": (1, 2, 5),
    "nexmark-q13": (1, 1, 1),
    "nexmark-q17": (1, 2, 2),
    "nexmark-q18": (1, 2, 2),
    "nexmark-q19": (1, 2, 2),
}
"""By application: with one replica of everything, as a run begins, with two wherever allowed."""


@pytest.mark.parametrize("name", APPS)
def test_an_application_has_as_few_stages_as_its_deals_allow(name):
    flow = APPS[name].build()
    plans = (
        Plan.sequential(flow),
        readers_side_by_side(flow, CORES),
        side_by_side(flow, CORES),
    )
    found = tuple(len(layout(flow, with_ranges(flow, plan)).tasks) for plan in plans)
    assert found == STAGES[name]
