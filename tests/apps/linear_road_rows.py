"""Linear Road by hand: reports and requests, and what the application makes of them."""

from __future__ import annotations

import anabranch as ab
from anabranch.apps import linear_road
from anabranch.apps.linear_road.data import FEET_A_SEGMENT, REPORTS
from anabranch.graph import Role
from anabranch.io import memory
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import cases, disagreement


def source_of(flow):
    return flow.graph.steps["reports"].body.source


def generated(rows, **config):
    return source_of(linear_road.build(rows=rows, **config)).read("generated", 0, rows).batch


def on_threads(flow):
    """What comes of a flow in large batches."""
    run = ab.start(flow, engine="local", policy="none")
    run.await_termination()
    return {sink: flow.graph.steps[sink].body.sink.table() for sink in flow.names(Role.SINK)}


def agrees(flow, wanted, got):
    """What is found is what the rules say; the past of these vehicles is another one."""
    found, wanted = ({k: v for k, v in d.items() if k != "expenditures"} for d in (got, wanted))
    assert disagreement(cases()["linear-road"], flow, wanted, found) is None


def report(time, vid, segment, speed=20, lane=1, dir=0, xway=0, feet=None):
    """A position report; each vehicle at a place of its own in the segment, unless said."""
    position = segment * FEET_A_SEGMENT + (vid % 1000 + time if feet is None else feet)
    return {
        "type": 0, "time": time, "vid": vid, "speed": speed, "xway": xway, "lane": lane,
        "dir": dir, "segment": segment, "position": position, "qid": -1, "day": -1,
    }  # fmt: skip


def request(type, time, vid, **given):
    return {**dict.fromkeys(REPORTS.names, -1), "type": type, "time": time, "vid": vid, **given}


def fed(rows, **config):
    """The application on these rows, which are put in the order of their times."""
    flow = linear_road.build(**{"rows": 0, "vehicles": 2, "free_cars": 2, **config})
    ordered = sorted(rows, key=lambda row: row["time"])
    return flow.reading({"reports": memory(ordered, REPORTS)})


def found(rows, **config):
    ran = run_sequential(fed(rows, **config))
    return {sink: table.to_pylist() for sink, table in ran.outputs.items()}


def told(rows, vid, **config):
    """What one vehicle is told: (LAV, toll) of each segment that it enters."""
    return [(r["lav"], r["toll"]) for r in found(rows, **config)["out"] if r["vid"] == vid]


def queue(speed=20, cars=3, segment=10, time=0):
    """Vehicles in one segment and minute."""
    return [report(time + n, 100 + n, segment, speed) for n in range(cars)]
