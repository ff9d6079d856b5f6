"""A session: when the plan that is requested begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import anabranch as ab
from anabranch.engines.latency import Latencies
from anabranch.engines.local.loop import Ready
from anabranch.engines.local.session import Session
from anabranch.flow import Flow
from anabranch.planning.plan import Plan

DEADLINE_S = 60.0


@pytest.fixture
def flow() -> Flow:
    flow = Flow("session", buckets=4)
    rows = ab.generate(lambda rng, index: {"k": index % 3}, "k: int64")
    flow.source("rows", rows).aggregate(
        "count", key="k", n=ab.count(), emit="every", combine=False
    ).sink("out", ab.collect(limit=1))
    return flow


@pytest.fixture
def session(flow: Flow) -> Iterator[Session]:
    plan = Plan.sequential(flow).with_source("rows", batch_rows=100)
    made = Session(flow, plan, None, None, None, Latencies())
    made.start()
    yield made
    made.coordinator.stop()
    made.abandon()


def turn_until(session: Session, answer: Callable[[], object]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not answer():
        assert time.monotonic() < until_s
        session.turn(0.01)


def test_an_epoch_does_not_begin_before_the_workers_that_it_needs_are_ready(
    flow: Flow, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_until(session, lambda: session.rows[0] > 0 and not session.coordinator.passing)
    ready: list[Ready] = []
    take = session._take

    def noting(sender: int, message: object) -> None:
        if isinstance(message, Ready):
            assert not session.coordinator.wants_epoch
            ready.append(message)
        take(sender, message)

    monkeypatch.setattr(session, "_take", noting)
    wide = session.coordinator.plan.with_replicas("count", 3)
    session.request(wide)
    assert not session.coordinator.wants_epoch
    turn_until(session, lambda: session.coordinator.plan == wide)
    assert len(ready) == 2


def test_of_two_plans_that_wait_for_workers_the_newer_one_begins(
    flow: Flow, session: Session
) -> None:
    first = session.coordinator.plan
    session.request(first.with_replicas("count", 2))
    session.request(first.with_replicas("count", 3))
    turn_until(session, lambda: session.passed and session.coordinator.plan != first)
    assert session.coordinator.plan == first.with_replicas("count", 3)
