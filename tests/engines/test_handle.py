"""What a handle says of a run that is over: how it ended, and that nothing more can be asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.engines import handle
from anabranch.engines.engine import Options
from anabranch.engines.handle import Run
from anabranch.engines.local.engine import LocalEngine
from anabranch.errors import OperatorError
from anabranch.events import Decision, Event, Kind, Observed, Reconfiguration
from anabranch.flow import Flow
from anabranch.planning.plan import Plan
from anabranch.view.outcome import in_words
from tests.adapt.scripted import observation


def numbers(step: Any = None) -> Flow:
    """A flow of one step, which halves if it is not told otherwise."""

    def halved(batch: pa.RecordBatch) -> dict[str, list[float]]:
        return {"w": [v / 2 for v in batch["v"].to_pylist()]}

    flow = Flow("numbers")
    rows = flow.source("s", ab.memory([{"v": v} for v in range(20)]))
    rows.map("half", step or halved, out="w: double").sink("out", ab.collect())
    return flow


def breaks(batch: pa.RecordBatch) -> dict[str, Any]:
    raise ValueError("it is the eleventh")


def test_the_result_of_a_run_that_failed_says_what_with() -> None:
    run = ab.start(numbers(breaks), engine="local")
    with pytest.raises(OperatorError) as caught:
        run.await_termination(60)
    result = run.result()
    assert result.error == str(caught.value)
    assert "it is the eleventh" in result.error
    assert not result.ended


def test_the_result_of_a_run_that_went_well_has_no_error() -> None:
    assert ab.run(numbers(), engine="local").error is None


class Wordless(LocalEngine):
    """An engine that fails at its first event, without a word."""

    def start(self, tell: Callable[[Event], None]) -> None:
        def fail(event: Event) -> None:
            tell(event)
            self._error = self._error or AssertionError()

        super().start(fail)


def test_an_error_without_a_message_is_told_by_its_name() -> None:
    flow = numbers()
    engine = Wordless(flow, None, Options())
    run = Run(flow.name, engine)
    engine.start(run.hear)
    with pytest.raises(AssertionError):
        run.await_termination(60)
    assert run.result().error == "AssertionError"


def test_a_plan_that_comes_after_the_end_changes_nothing_and_is_noted() -> None:
    flow = numbers()
    run = ab.start(flow, engine="local")
    run.await_termination(60)
    before = run.plan
    run.reconfigure(Plan.sequential(flow).with_replicas("half", 2))
    assert run.plan == before
    assert "after the end" in run.decisions[-1].why
    assert run.decisions[-1] in run.result().decisions


class Slow(LocalEngine):
    """An engine that has worked for a minute when it tells anything."""

    @property
    def seconds(self) -> float:
        return 60.0


def slow_start(wall_s: float) -> Run:
    """A run that is over, so many seconds after it was asked for."""
    flow = numbers()
    run = Run(flow.name, Slow(flow, None, Options()))
    run._asked_s -= wall_s
    run.engine.start(run.hear)
    run.await_termination(60)
    return run


def test_a_start_that_took_long_is_told_beside_the_time_at_work() -> None:
    result = slow_start(wall_s=1000.0).result()
    assert result.starting_s == pytest.approx(940, abs=60)
    assert f"in 60.0 s, after {result.starting_s:.1f} s to start; all sources" in in_words(
        result, numbers()
    )


def test_a_start_that_nobody_noticed_is_not_told() -> None:
    result = slow_start(wall_s=0.0).result()
    assert result.starting_s == 0.0
    assert "to start" not in in_words(result, numbers())


def test_a_handle_remembers_the_newest_events_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless run tells something every second, and may change its plan for ever."""
    monkeypatch.setattr(handle, "JOURNAL", 3)
    monkeypatch.setattr(handle, "RECENT", 3)
    flow = numbers()
    run = Run(flow.name, LocalEngine(flow, None, Options()))
    for second in range(10):
        run.hear(Decision(float(second), "auto", Kind.NOTED, "nothing to gain"))
        run.hear(Observed(observation(Plan.sequential(flow), at_s=float(second))))
    assert [decision.at_s for decision in run.decisions] == [7.0, 8.0, 9.0]
    assert [seen.at_s for seen in run.recent_progress] == [7.0, 8.0, 9.0]


@pytest.mark.parametrize("engine", ["local", "simulator"])
def test_an_engine_remembers_the_newest_plan_changes(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module(f"anabranch.engines.{engine}.engine"), "CHANGES", 2)
    flow = Flow("endless")
    rows = flow.source("s", ab.generate(lambda rng, index: {"v": index}, "v: int64", rate_per_s=99))
    rows.map("same", lambda batch: {}, keeps="*").sink("out", ab.collect(limit=0))
    changes: list[Reconfiguration] = []

    def hear(event: Event) -> None:
        if isinstance(event, Reconfiguration):
            changes.append(event)

    with ab.start(flow, engine=engine, plan=ab.plan(flow), listener=hear) as run:
        for replicas in (2, 3, 4):
            run.reconfigure(run.plan.with_replicas("same", replicas))
            while len(changes) < replicas - 1:
                run.await_termination(0.01)
        assert run.reconfigurations == changes[1:]
