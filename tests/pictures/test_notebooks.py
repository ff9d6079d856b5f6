"""Flows and plans show themselves in notebooks."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from anabranch.apps import word_count
from anabranch.errors import PlanError
from anabranch.flow import Flow
from anabranch.io import memory
from anabranch.operators.row_wise.union import Union
from anabranch.planning.plan import Plan
from anabranch.planning.regions import shape_of


def test_a_flow_shows_its_steps():
    picture = word_count.build()._repr_svg_()
    assert ElementTree.fromstring(picture)[0].text == "word-count"
    assert "count.combine" in picture
    assert "ab-region" not in picture.split("</style>")[1]


def test_an_unfinished_flow_is_printed_instead():
    flow = Flow("open")
    flow.source("in", memory([{"a": 1}]))
    flow.add("both", Union(2))
    assert flow._repr_svg_() is None


def test_a_plan_shows_how_it_runs_a_flow():
    plan = Plan.sequential(word_count.build())
    before = plan._repr_svg_()
    assert "plan for word-count" in before
    assert "×3" not in before
    assert "×3" in plan.with_replicas("count", 3)._repr_svg_()
    assert "×2" in plan.with_source("lines", replicas=2)._repr_svg_()
    assert plan.with_pipelines("split", 1, 1)._repr_svg_() != before


def test_what_a_flow_looks_like_is_not_part_of_a_plan():
    flow = word_count.build()
    plan = Plan.sequential(flow)
    read = Plan.from_json(plan.to_json())
    assert "shape" not in plan.to_json()
    assert (read, hash(read)) == (plan, hash(plan))
    assert read._repr_svg_() is None
    with pytest.raises(PlanError, match="one from a file"):
        read.svg()
    assert replace(read, shape=shape_of(flow)).svg() == plan.svg()
