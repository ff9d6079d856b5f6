"""Steps that put things outside of them are warned of."""

from __future__ import annotations

import anabranch as ab
from anabranch.testing import check

ROWS = [{"x": 1}, {"x": 2}]
counted: dict[str, int] = {}
SETTINGS = {"factor": 2}


def flow_of(function) -> ab.Flow:
    flow = ab.Flow("f")
    flow.source("s", ab.memory(ROWS)).flat_map("m", function, out={"x": "int64"}).sink(
        "out", ab.collect()
    )
    return flow


def test_a_list_that_a_step_appends_to_is_named():
    seen: list[object] = []

    def keep(row):
        seen.append(row)
        return [{"x": 1}]

    report = check(flow_of(keep), cases=1, processes=0)
    assert report.ok
    assert report.leaks == (("m", "seen"),)
    assert "step 'm' changes 'seen', which is outside of it" in str(report)


def test_so_is_a_global_one():
    def count(row):
        counted[str(row)] = len(counted)
        return [{"x": 1}]

    assert check(flow_of(count), cases=1, processes=0).leaks == (("m", "counted"),)


def test_settings_that_a_step_only_reads_are_not():
    allowed = [1, 2]

    def scale(row):
        return [{"x": SETTINGS["factor"] * len(allowed)}]

    report = check(flow_of(scale), cases=1, processes=0)
    assert report.leaks == ()
    assert "warning" not in str(report)
