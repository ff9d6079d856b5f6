"""Sockets as the system shows them, and workers that are kept on one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.engines.cpu_topology import Pins, cpu_sockets, require_sockets
from anabranch.engines.engine import Options
from anabranch.engines.local import loop
from anabranch.engines.local.engine import LocalEngine
from anabranch.engines.local.mesh import Mesh
from anabranch.errors import PlanError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.operators.aggregates.functions import count
from anabranch.planning.plan import Plan
from anabranch.runtime.messages import Begin

TWO = {"socket0": frozenset({0, 1}), "socket1": frozenset({2, 3})}


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """Four processors; where this process was pinned."""
    calls: list[frozenset[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: calls.append(frozenset(cpus)))
    return calls


def sysfs(root: Path, packages: dict[int, int]) -> Path:
    for cpu, package in packages.items():
        topology = root / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
    return root


def word_flow() -> tuple[Flow, Plan]:
    flow = Flow("words", buckets=4)
    rows = memory([{"k": i % 3} for i in range(50)])
    flow.source("rows", rows).aggregate("count", key="k", n=count()).sink("out", collect())
    return flow, Plan.sequential(flow).with_replicas("count", 2)


@pytest.mark.usefixtures("pinned")
def test_sockets_are_told_apart(tmp_path: Path):
    assert cpu_sockets(sysfs(tmp_path, {0: 0, 1: 0, 2: 1, 3: 1, 4: 1})) == TWO


@pytest.mark.usefixtures("pinned")
def test_a_system_that_tells_nothing_is_one_socket(tmp_path: Path):
    assert cpu_sockets(tmp_path) == {"socket0": frozenset({0, 1, 2, 3})}


def test_a_process_is_kept_on_its_place_and_let_go_again(pinned: list[frozenset[int]]):
    pins = Pins(TWO)
    pins.pin("socket1")
    pins.pin(None)
    assert pinned == [{2, 3}, {0, 1, 2, 3}]


def test_with_one_socket_nobody_is_pinned(pinned: list[frozenset[int]]):
    Pins({"socket0": frozenset({0, 1})}).pin("socket0")
    assert pinned == []


def placed(plan: Plan, *where: str) -> Plan:
    regions = [replace(r, placement=where) if r.region == "count" else r for r in plan.regions]
    return replace(plan, regions=tuple(regions))


def test_a_place_that_does_not_exist_is_refused_by_name():
    _, plan = word_flow()
    with pytest.raises(PlanError, match=r"'count'.*socket0.*'moon'"):
        require_sockets(placed(plan, "socket0", "moon"), TWO)


@pytest.mark.parametrize(
    ("worker", "where", "cpus"),
    [
        (1, ("socket0", "socket1"), {0, 1}),
        (2, ("socket0", "socket1"), {2, 3}),
        (1, (), {0, 1, 2, 3}),
    ],
)
def test_a_worker_stays_where_the_plan_places_its_replicas(
    worker: int,
    where: tuple[str, ...],
    cpus: set[int],
    pinned: list[frozenset[int]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(loop, "cpu_sockets", lambda: TWO)
    flow, plan = word_flow()
    mesh = Mesh(worker)
    try:
        work = loop.WorkerLoop(mesh, loop.LocalJob(flow, None, profile=False))
        work._host.receive(Begin(0, placed(plan, *where), workers=2))
        work.pin()
    finally:
        mesh.close()
    assert pinned == [cpus]


def test_starting_and_reconfiguring_refuse_unknown_places():
    flow, plan = word_flow()
    with pytest.raises(PlanError, match="moon"):
        LocalEngine(flow, placed(plan, "moon", "moon"), Options()).start(lambda event: None)
    with pytest.raises(PlanError, match="moon"):
        LocalEngine(flow, plan, Options()).reconfigure(placed(plan, "moon", "moon"))
