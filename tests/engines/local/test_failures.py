"""Whatever fails: the run ends with an error that names the place, and leaves nothing behind."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

import anabranch as ab
from anabranch.engines.engine import Options
from anabranch.engines.local.engine import LocalEngine
from anabranch.errors import EngineError, OperatorError
from anabranch.events import Event, Observed, RunEnded, RunStarted
from anabranch.flow import Flow
from anabranch.io import collect, generate, memory, parquet
from anabranch.planning.plan import Plan
from tests.engines.local.failing import SCHEMA, Doomed, numbers
from tests.waiting import wait_until


def is_prefix(rows: list[int]) -> bool:
    return rows == list(range(len(rows)))


def test_an_operator_that_raises_ends_the_run_by_its_name():
    def step(batch: Any) -> None:
        if batch["x"][-1].as_py() >= 100:
            raise ValueError("no more")

    run = Doomed(step).start()
    with pytest.raises(OperatorError, match="no more") as failure:
        run.engine.wait(60)
    assert failure.value.step == "step"
    run.assert_gone()
    assert run.ends == [False]
    assert is_prefix(run.rows)
    assert len(run.rows) <= 100


def test_what_was_written_and_not_committed_is_gone_after_an_error():
    class Late(type(collect())):  # type: ignore[misc]
        """Commits nothing."""

        def commit(self, version: int, receipts: Any, stage: Any) -> None:
            broken.set()

    broken = threading.Event()

    def step(batch: Any) -> None:
        if broken.is_set():
            raise ValueError("no more")

    run = Doomed(step, sink=Late()).start()
    with pytest.raises(OperatorError):
        run.engine.wait(60)
    assert run.rows == []


def test_leaving_by_system_exit_is_an_error_that_names_the_step():
    def step(batch: Any) -> None:
        raise SystemExit(3)

    run = Doomed(step).start()
    with pytest.raises(EngineError, match=r"SystemExit: 3") as failure:
        run.engine.wait(60)
    assert failure.value.step == "step"
    run.assert_gone()
    assert run.ends == [False]


class Breaking:
    """A source that raises at a row."""

    def __init__(self) -> None:
        self._source = generate(numbers, SCHEMA)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __copy__(self) -> Breaking:
        return self

    def read(self, part: str, start: int, rows: int) -> Any:
        if start >= 100:
            raise OSError("the disk is gone")
        return self._source.read(part, start, rows)


def test_a_source_that_raises_ends_the_run():
    run = Doomed(source=Breaking()).start()
    with pytest.raises(OSError, match="the disk is gone"):
        run.engine.wait(60)
    run.assert_gone()
    assert run.ends == [False]
    assert is_prefix(run.rows)


@pytest.mark.parametrize("method", ["writer", "commit"])
def test_a_sink_that_raises_ends_the_run(method: str):
    sink = collect()
    original, calls = getattr(sink, method), []

    def broken(*given: Any) -> Any:
        calls.append(given)
        if len(calls) > 3:
            raise OSError("no space left")
        return original(*given)

    setattr(sink, method, broken)
    run = Doomed(sink=sink).start()
    with pytest.raises(OSError, match="no space left"):
        run.engine.wait(60)
    run.assert_gone()
    assert run.ends == [False]
    assert is_prefix(run.rows)


def test_a_sink_that_does_not_open_keeps_the_run_from_starting():
    sink = collect()

    def broken(schema: Any) -> None:
        raise OSError("no such place")

    sink.open = broken  # type: ignore[method-assign]
    run = Doomed(sink=sink)
    with pytest.raises(OSError, match="no such place"):
        run.start()
    run.assert_gone()


class Closing(type(collect())):  # type: ignore[misc]
    """Notes that it was closed, and raises then."""

    closed = False

    def close(self) -> None:
        self.closed = True
        raise OSError("the connection is gone")


class Unopened(Closing):
    def begin(self, schema: Any, version: int) -> None:
        raise OSError("no such place")


def two_sinks(first: Any, second: Any) -> Flow:
    flow = Flow("f")
    rows = flow.source("rows", memory([{"x": n} for n in range(10)]))
    rows.sink("first", first)
    rows.sink("second", second)
    return flow


@pytest.mark.parametrize("saves", [False, True])
def test_sinks_are_closed_when_another_one_keeps_the_run_from_starting(tmp_path, saves: bool):
    sink, checkpoint = Closing(), tmp_path / "checkpoint" if saves else None
    with pytest.raises(OSError, match="no such place"):
        ab.run(two_sinks(sink, Unopened()), engine="local", checkpoint=checkpoint)
    assert sink.closed


@pytest.mark.parametrize("saves", [False, True])
def test_sinks_are_closed_when_a_listener_keeps_the_run_from_starting(tmp_path, saves: bool):
    sink, checkpoint = Closing(), tmp_path / "checkpoint" if saves else None
    flow = two_sinks(sink, collect())
    engine = LocalEngine(flow, Plan.sequential(flow), Options(checkpoint=checkpoint))
    with pytest.raises(RuntimeError, match="not listening"):
        engine.start(raising_at(RunStarted, 1))
    assert sink.closed


@pytest.mark.parametrize("saves", [False, True])
def test_every_sink_is_closed_at_the_end_though_one_of_them_raises(tmp_path, saves: bool):
    sinks, checkpoint = (Closing(), Closing()), tmp_path / "checkpoint" if saves else None
    with pytest.raises(OSError, match="the connection is gone"):
        ab.run(two_sinks(*sinks), engine="local", checkpoint=checkpoint)
    assert all(sink.closed for sink in sinks)


def test_what_a_save_has_prepared_is_gone_when_it_fails_before_its_manifest(tmp_path):
    class Full(type(collect())):  # type: ignore[misc]
        def writer(self, schema: Any, name: str, stage: Any) -> Any:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        ab.run(
            two_sinks(parquet(tmp_path / "out"), Full()),
            engine="local",
            checkpoint=tmp_path / "checkpoint",
        )
    assert list((tmp_path / "out").glob(".pending-*")) == []


def raising_at(kind: type, times: int) -> Any:
    left = [times]

    def listener(event: Event) -> None:
        if isinstance(event, kind) and left[0]:
            left[0] -= 1
            raise RuntimeError("not listening")

    return listener


def test_a_listener_that_raises_once_ends_the_run():
    run = Doomed(listener=raising_at(Observed, 1)).start()
    with pytest.raises(RuntimeError, match="not listening"):
        run.engine.wait(60)
    run.assert_gone()
    assert run.ends == [False]


def test_a_listener_that_always_raises_still_hears_of_the_end():
    run = Doomed(listener=raising_at(Observed, 1000)).start()
    with pytest.raises(RuntimeError, match="not listening"):
        run.engine.wait(60)
    run.assert_gone()
    assert run.ends == [False]


def test_a_listener_that_raises_at_the_end_fails_the_run():
    run = Doomed(rows=50, listener=raising_at(RunEnded, 1)).start()
    with pytest.raises(RuntimeError, match="not listening"):
        run.engine.wait(60)
    run.assert_gone()


def test_a_listener_that_raises_at_the_start_keeps_the_run_from_starting():
    run = Doomed(listener=raising_at(RunStarted, 1))
    with pytest.raises(RuntimeError, match="not listening"):
        run.start()
    run.assert_gone()


def test_a_sink_that_cannot_show_its_last_rows_still_lets_the_end_be_told():
    class Files(type(collect())):  # type: ignore[misc]
        traits = replace(collect().traits, interval_s=1e9)  # so that only the end commits
        closed = False

        def commit(self, version: int, receipts: Any, stage: Any) -> None:
            raise OSError("no space left")

        def close(self) -> None:
            Files.closed = True

    run = Doomed(sink=Files()).start()
    wait_until(lambda: run.engine.rows[1])
    with pytest.raises(OSError, match="no space left"):
        run.engine.stop()
    assert run.ends == [False]
    assert Files.closed


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_while_a_plan_changes_ends_the_run(workers: int):
    def step(batch: Any) -> None:
        if batch["x"][-1].as_py() >= 2000:
            raise ValueError("no more")

    run = Doomed(step, workers=workers).start()
    plans = cycle((run.wide(2), run.wide(3), run.plan))

    def is_over() -> bool:
        run.engine.reconfigure(next(plans))
        return run.engine.wait(0.01)

    with pytest.raises(OperatorError, match="no more"):
        wait_until(is_over)
    run.assert_gone()
    assert run.ends == [False]
    assert is_prefix(run.rows)
