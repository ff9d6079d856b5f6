from __future__ import annotations

import io

import pytest
from rich.console import Console

from anabranch.apps import word_count
from anabranch.engines.handle import Result
from anabranch.events import (
    BatchTimes,
    Decision,
    Kind,
    Observation,
    Observed,
    PipelineMetrics,
    Reconfiguration,
    RegionMetrics,
    RunStarted,
    SourceMetrics,
)
from anabranch.planning.plan import Plan
from anabranch.planning.regions import shape_of
from anabranch.view.outcome import as_object, in_words
from anabranch.view.progress import Lines, Progress
from anabranch.view.run_state import ReadSpan, rates
from anabranch.view.text import plan_line

FLOW = word_count.build(text="a")
NARROW = Plan.sequential(FLOW)
WIDE = NARROW.with_replicas("count", 2)
TIMES = BatchTimes(0.5, 0.2, 0.1, 0.0, 0.15, 0.03, 0.02)
CHANGE = Reconfiguration(
    4.0, 2, 12.4, tuple(NARROW.diff(WIDE)), 0, NARROW.to_json(), WIDE.to_json()
)


def seen(
    batch: int, at_s: float, backlog: int | None = 70, lag_ms: float | None = None
) -> Observed:
    sources = (SourceMetrics("lines", 1000, 2000.0, backlog, lag_ms),)
    return Observed(Observation(at_s, batch, 1000, 10, TIMES, 250.0, 1500.0, sources=sources))


@pytest.fixture
def progress() -> Progress:
    told = Progress("word-count")
    told.hear(RunStarted("word-count", "spark", NARROW.to_json(), -1))
    return told


def line(progress: Progress, name: str) -> str:
    (found,) = [each for each in str(progress).splitlines() if each.startswith(name)]
    return found.removeprefix(name).strip()


def test_the_rate_counts_the_time_between_batches(progress):
    progress.hear(seen(0, at_s=0.5))
    progress.hear(seen(1, at_s=2.0))
    assert line(progress, "rate") == "1,000 rows/s"


def test_the_rate_is_that_of_the_newest_batches(progress):
    progress.hear(seen(0, at_s=100.0))
    for batch in range(1, 6):
        progress.hear(seen(batch, at_s=100.0 + batch * 0.5))
    assert line(progress, "rate") == "2,000 rows/s"


def test_rows_add_up(progress):
    progress.hear(seen(0, 0.5))
    progress.hear(seen(1, 1.0))
    assert line(progress, "rows") == "2,000 in, 20 out"


def test_a_batch_shows_where_its_time_went(progress):
    progress.hear(seen(7, 0.5))
    assert line(progress, "batch").startswith("7: 1,000 rows, 0.50 s = 0.20 fixed + 0.10 scan")


def test_latency_and_backlog_are_shown(progress):
    progress.hear(seen(0, 0.5))
    assert line(progress, "latency") == "250 ms p50, 1,500 ms p99"
    assert line(progress, "backlog") == "70 rows"


def test_how_long_rows_waited_is_shown_with_what_that_makes_end_to_end(progress):
    progress.hear(seen(0, 0.5, lag_ms=120.0))
    assert line(progress, "lag") == "120 ms in the queue; end to end 370 ms p50, 1,620 ms p99"


def test_a_lag_that_nobody_knows_is_not_shown(progress):
    progress.hear(seen(0, 0.5))
    assert "lag" not in str(progress)


def test_a_backlog_that_nobody_knows_is_not_zero(progress):
    progress.hear(seen(0, 0.5, backlog=None))
    assert line(progress, "backlog") == "unknown"


def test_what_is_serial_is_named_before_its_work_was_seen_and_counted_afterwards(progress):
    told = Progress("word-count")
    told.hear(RunStarted("word-count", "local", WIDE.to_json(), -1, shape_of(FLOW)))
    progress.hear(seen(0, 0.5))
    assert "serial" not in str(progress)  # nobody has said what its flow looks like
    assert line(told, "serial") == "`out` takes a changelog"
    pipelines = (
        PipelineMetrics("split", ("split", "count.combine"), 0.4, 0.1),
        PipelineMetrics("count", ("count",), 0.2, 0.1),  # on average, of two replicas
        PipelineMetrics("out", ("out",), 0.1, 0.1),
    )
    regions = (RegionMetrics("count", 2, 10.0), RegionMetrics("out", 1, 10.0))
    sources = (SourceMetrics("lines", 10, 10.0, busy_share=0.1),)
    work = {"pipelines": pipelines, "regions": regions, "sources": sources}
    told.hear(Observed(Observation(1.0, 0, 10, 10, TIMES, 1.0, 2.0, **work)))
    assert line(told, "serial") == "`out` takes a changelog (10 % of the work): " + (
        "at most 10 cores can help"
    )


def test_before_anything_was_read_it_waits(progress):
    assert str(progress).startswith("word-count on spark: waiting for the first rows\nplan ")


@pytest.fixture
def on_threads() -> Progress:
    """A run on an engine that works without batches, after a second."""
    told = Progress("word-count")
    told.hear(RunStarted("word-count", "local", NARROW.to_json(), -1))
    regions = (RegionMetrics("split", 1, 900.0, queue_rows=30.0), RegionMetrics("count", 1, 0.0))
    times = BatchTimes(1.0, 0.0, 0.3, 0.0, 1.2, 0.0, 0.1)
    told.hear(
        Observed(
            Observation(1.0, 0, 1000, 10, times, 0.42, 3.14, regions=regions, latency_p999_ms=9.0)
        )
    )
    return told


def test_an_engine_without_batches_shows_what_its_threads_did(on_threads):
    assert line(on_threads, "work") == (
        "1,000 rows, 1.60 s of processor in 1.0 s = 0.30 scan + 1.20 compute + 0.10 sink; "
        "30 rows between steps"
    )
    assert "batch" not in str(on_threads)
    assert line(on_threads, "rate") == "1,000 rows/s"


def test_latencies_below_ten_milliseconds_have_a_digit_behind_the_point(on_threads):
    assert line(on_threads, "latency") == "0.4 ms p50, 3.1 ms p99"


def test_a_plan_change_shows_in_the_plan_and_as_the_last_change(progress):
    progress.hear(seen(0, 0.5))
    before = line(progress, "plan")
    progress.hear(CHANGE)
    assert (before, line(progress, "plan")) == (plan_line(NARROW), plan_line(WIDE))
    assert line(progress, "last") == (
        "4.0 s  plan: 1 → 2 replicas of region count, 128 of 256 buckets move (12 ms pause)"
    )


def test_the_newest_decision_is_shown(progress):
    progress.hear(Decision(5.0, "auto", Kind.KEPT, "gained 20 %"))
    assert line(progress, "last") == "5.0 s  auto: gained 20 %, kept"


def test_each_line_is_that_of_its_own_event_whatever_another_thread_told_meanwhile(progress):
    file = io.StringIO()
    first, second = (Decision(at_s, "auto", Kind.NOTED, f"{at_s:.0f}") for at_s in (1.0, 2.0))
    lines = Lines(Console(file=file))
    for event in (first, second, CHANGE):
        progress.hear(event)
    for event in (first, second, CHANGE):  # told when all three are in the journal already
        lines.tell(event, progress.standing)
    assert file.getvalue().splitlines() == [str(each) for each in progress.standing().journal]


def test_how_it_stands_is_not_changed_by_what_comes_later(progress):
    progress.hear(seen(0, 0.5))
    before = progress.standing()
    progress.hear(seen(1, 1.0))
    progress.hear(CHANGE)
    assert (before.rows_in, before.plan, before.journal) == (1000, NARROW, ())
    assert progress.standing().rows_in == 2000


def test_a_minute_of_rates_is_kept_whatever_the_length_of_the_run(progress):
    for second in range(1, 300):
        progress.hear(seen(second, float(second)))
    minute = progress.standing().minute
    assert 60 <= len(minute) <= 62
    assert rates(minute, 3) == pytest.approx([1000.0] * 3)


def test_rates_know_the_time_between_batches_and_what_was_before_the_run():
    told = rates([ReadSpan(0.0, 30.0, 300), ReadSpan(30.0, 30.0, 0)], 4)
    assert told == [None, None, 10.0, 10.0]


RESULT = Result("word-count", "spark", 3000, 30, 1.5, 250.0, 1500.0, (CHANGE,), WIDE, ended=True)


def test_the_outcome_in_words_has_rate_plan_tree_and_changes():
    text = in_words(RESULT, FLOW)
    assert "word-count on spark: 2,000 rows a second" in text
    assert repr(WIDE) in text
    assert "plan changes: 1\n  at 4.0 s: 1 → 2 replicas of region count" in text


def test_the_outcome_as_an_object_has_the_plans_of_each_change():
    told = as_object("mine:flow", RESULT, FLOW)
    (change,) = told["reconfigurations"]
    assert (change["at_s"], change["pause_ms"]) == (4.0, 12.4)
    assert change["from"]["regions"][1]["replicas"] == 1
    assert change["to"] == told["plan"]
    assert change["what"] == NARROW.diff(WIDE)
    assert (told["app"], told["rate_per_s"], told["latency_ms"]) == (
        "mine:flow",
        2000.0,
        {"p50": 250.0, "p99": 1500.0},
    )
