"""Changes by hand, on an engine that takes its time."""

from __future__ import annotations

import pytest

from anabranch.planning.plan import Plan, RegionPlan, SourcePlan
from anabranch.view.web.controls import Controls


class Slow:
    """A run whose plan stays in force until `take_up`."""

    cores, seconds, is_active, adapting = 2, 1.0, True, None

    def __init__(self):
        steps = ("a", "b", "c")
        self.plan = Plan("slow", "f", (RegionPlan("a", (steps,)),), (SourcePlan("s"),))
        self.engine, self.wished, self.heard = self, None, []

    def reconfigure(self, plan):
        self.wished = plan

    def hear(self, event):
        self.heard.append(event)

    def take_up(self):
        self.plan = self.wished

    @property
    def wish(self):
        return self.wished.region("a").pipelines


@pytest.fixture
def slow():
    run = Slow()
    return run, Controls(run)


def test_two_splits_in_a_row_are_both_made(slow):
    run, controls = slow
    controls.change({"region": "a", "split_before": "b"})
    told = controls.change({"region": "a", "split_before": "c"})
    assert run.wish == (("a",), ("b",), ("c",))
    assert told["will"] == ["pipelines of region a: a | b · c → a | b | c"]
    assert told["plan"] == repr(run.wished)


def test_a_split_and_a_merge_in_a_row_are_both_made(slow):
    run, controls = slow
    controls.change({"region": "a", "split_before": "c"})
    run.take_up()
    controls.change({"region": "a", "split_before": "b"})
    controls.change({"region": "a", "merge_before": "c"})
    assert run.wish == (("a",), ("b", "c"))


def test_what_is_so_already_is_not_wished_for(slow):
    run, controls = slow
    assert controls.change({"region": "a", "merge_before": "b"})["will"] == []
    assert (run.wished, run.heard) == (None, [])


def test_a_page_that_only_shows_offers_nothing(slow):
    run, _ = slow
    assert Controls(run, allowed=True).state() == {"controls": True, "adapting": None}
    assert Controls(run, allowed=False).state() == {"controls": False, "adapting": None}
