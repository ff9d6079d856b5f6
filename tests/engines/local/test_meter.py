"""The meter of a unit and the report of a process, on scripted clocks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch.engines.local.meter import Meter, StepTotals
from anabranch.engines.local.site import LocalSite
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.io.staged import MemoryStage
from anabranch.runtime.host import Host
from anabranch.runtime.layout import Topology
from anabranch.state.positions import Jumbo, Positions


class Clocks:
    """A processor clock and one on the wall, which stand still unless a test sets them."""

    def __init__(self) -> None:
        self.cpu_s, self.wall_s = 100.0, 1000.0

    def go_on(self, cpu_s: float, wall_s: float) -> None:
        self.cpu_s += cpu_s
        self.wall_s += wall_s


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr("time.perf_counter", lambda: made.wall_s)
    return made


def made(clocks: Clocks, *steps: str) -> tuple[Meter, list[str | None]]:
    """A meter, and the steps that it enters."""
    entered: list[str | None] = []
    return Meter(steps, entered.append, lambda: clocks.cpu_s), entered


def jumbo(rows: int) -> Jumbo:
    batch = pa.record_batch({"x": pa.array(range(rows), pa.int64())})
    return Jumbo(batch, Positions.of_source(0, np.arange(rows)))


def test_each_step_takes_the_time_since_the_one_before_it(clocks: Clocks):
    meter, _ = made(clocks, "one", "two")
    meter.begin()
    clocks.go_on(0.25, 0.5)
    meter.tap("one", [jumbo(3)], [jumbo(2)])
    clocks.go_on(1.0, 4.0)
    meter.tap("two", [jumbo(2)], [jumbo(5)])
    assert meter.totals == {"one": StepTotals(3, 2, 0.25, 0.5), "two": StepTotals(2, 5, 1.0, 4.0)}


def test_time_between_two_calls_is_in_no_step(clocks: Clocks):
    meter, _ = made(clocks, "one")
    for _ in range(2):
        meter.begin()
        clocks.go_on(0.25, 0.5)
        meter.tap("one", [jumbo(1)], [jumbo(1)])
        clocks.go_on(8.0, 16.0)
    assert meter.totals == {"one": StepTotals(2, 2, 0.5, 1.0)}


def test_tuples_of_all_ports_count_and_empty_ports_do_not(clocks: Clocks):
    meter, _ = made(clocks, "one")
    meter.begin()
    meter.tap("one", [jumbo(3), None, jumbo(1)], [None, jumbo(2), jumbo(5)])
    assert meter.totals["one"] == StepTotals(4, 7)


def test_a_step_that_runs_twice_in_a_call_takes_the_time_of_both(clocks: Clocks):
    """A sink writes after its kernel has run, and that is what the step is about."""
    meter, _ = made(clocks, "out")
    meter.begin()
    clocks.go_on(0.25, 0.25)
    meter.tap("out", [jumbo(3)], [jumbo(3)])
    clocks.go_on(0.5, 2.0)
    meter.tap("out", (), ())
    assert meter.totals == {"out": StepTotals(3, 3, 0.75, 2.25)}


def test_a_reader_counts_the_tuples_that_it_reads(clocks: Clocks):
    meter, entered = made(clocks, "rows")
    for read in (jumbo(4), None, jumbo(2)):
        meter.begin()
        clocks.go_on(0.25, 0.5)
        meter.read(read)
    assert meter.totals == {"rows": StepTotals(0, 6, 0.75, 1.5)}
    assert entered == ["rows", None] * 3


def test_the_step_that_runs_is_known_until_all_are_over(clocks: Clocks):
    meter, entered = made(clocks, "one", "two", "three")
    meter.begin()
    for step in ("one", "two", "three"):
        meter.tap(step, [], [])
    assert entered == ["one", "two", "three", None]


def test_a_process_reports_its_processor_seconds_of_this_run_alone(
    monkeypatch: pytest.MonkeyPatch,
):
    """A worker that has done other runs before must not seem to have worked in this one."""
    spent_s = 40.0
    monkeypatch.setattr("time.process_time", lambda: spent_s)
    flow = Flow("reported")
    flow.source("rows", memory([{"x": 1}])).sink("out", collect())
    topology = Topology(flow)
    site = LocalSite(topology, MemoryStage(), None, lambda shown: None, lambda step: None)
    spent_s = 40.5
    assert site.measured(Host(1, topology, site)).process_s == 0.5
