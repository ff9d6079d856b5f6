from __future__ import annotations

import re
import socket
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import anabranch as ab
from anabranch.apps import word_count
from anabranch.engines.handle import Result
from anabranch.errors import EngineError
from anabranch.events import (
    BatchTimes,
    Decision,
    Kind,
    Observation,
    Observed,
    PipelineMetrics,
    Reconfiguration,
    RegionMetrics,
    RunEnded,
    RunStarted,
    SourceMetrics,
    StepMetrics,
)
from anabranch.planning.plan import Plan
from anabranch.view.metrics import Metrics

NARROW = Plan.sequential(word_count.build(text="a"))
WIDE = NARROW.with_replicas("count", 2)
CHANGE = Reconfiguration(
    4.0, 2, 12.5, tuple(NARROW.diff(WIDE)), 0, NARROW.to_json(), WIDE.to_json()
)
TIMES = BatchTimes(0.5, 0.2, 0.1, 0.0, 0.15, 0.03, 0.02, 0.07)


def seen(
    batch: int = 0,
    *,
    backlog: int | None = 70,
    lag_ms: float | None = 120.0,
    reading: float | None = 0.4,
    latency_ms: tuple[float, float] = (250.0, 1500.0),
    skipped: int = 0,
    p999_ms: float | None = None,
) -> Observed:
    return Observed(
        Observation(
            1.0 + batch,
            batch,
            1000,
            10,
            TIMES,
            *latency_ms,
            steps=(StepMetrics("split", 1000, 9000, 0.25, None, skipped, 1),),
            pipelines=(PipelineMetrics("split", ("split", "count.combine"), 0.75, 0.1),),
            regions=(RegionMetrics("split", 1, 900.0, queue_rows=30.0),),
            sources=(SourceMetrics("lines", 1000, 2000.0, backlog, lag_ms, reading),),
            latency_p999_ms=p999_ms,
        )
    )


@pytest.fixture
def metrics() -> Metrics:
    told = Metrics()
    told.hear(RunStarted("word-count", "spark", NARROW.to_json(), -1))
    return told


def families(metrics: Metrics) -> list[Metric]:
    return list(text_string_to_metric_families(metrics.text().decode()))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The value of one sample; None if there is none."""
    found = [
        sample.value
        for family in families(metrics)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, f"{name} {labels} is not one sample"
    return found[0] if found else None


def test_before_a_run_there_is_nothing_to_tell():
    assert Metrics().text() == b""


def test_rows_and_times_add_up_over_batches(metrics):
    metrics.hear(seen(0))
    metrics.hear(seen(1))
    assert value(metrics, "anabranch_read_rows_total", flow="word-count", source="lines") == 2000
    assert value(metrics, "anabranch_written_rows_total") == 20
    assert value(metrics, "anabranch_step_rows_in_total", step="split") == 2000
    assert value(metrics, "anabranch_step_rows_out_total", step="split") == 18000
    assert value(metrics, "anabranch_step_busy_seconds_total", step="split") == 0.5
    assert value(metrics, "anabranch_batches_total") == 2
    assert value(metrics, "anabranch_batch_seconds_total", part="scan") == 0.2
    assert value(metrics, "anabranch_batch_seconds_total", part="commit") == pytest.approx(0.14)


def test_times_are_seconds_and_shares_are_ratios(metrics):
    metrics.hear(seen())
    assert value(metrics, "anabranch_latency_seconds", quantile="0.5") == 0.25
    assert value(metrics, "anabranch_latency_seconds", quantile="0.99") == 1.5
    assert value(metrics, "anabranch_lag_seconds", source="lines") == 0.12
    pipeline = {"region": "split", "pipeline": "split · count.combine"}
    assert value(metrics, "anabranch_pipeline_busy_ratio", **pipeline) == 0.75
    assert value(metrics, "anabranch_source_busy_ratio", source="lines") == 0.4


def test_what_is_counted_since_the_start_is_not_added_up(metrics):
    metrics.hear(seen(0, skipped=2))
    metrics.hear(seen(1, skipped=5))
    assert value(metrics, "anabranch_skipped_rows_total", step="split") == 5
    assert value(metrics, "anabranch_late_rows_total", step="split") == 1


def test_what_nobody_knows_has_no_sample(metrics):
    metrics.hear(seen(0))
    metrics.hear(seen(1, backlog=None, lag_ms=None, reading=None, latency_ms=(0.0, 0.0)))
    assert value(metrics, "anabranch_source_busy_ratio", source="lines") is None
    assert value(metrics, "anabranch_backlog_rows", source="lines") is None
    assert value(metrics, "anabranch_lag_seconds", source="lines") is None
    assert value(metrics, "anabranch_latency_seconds", quantile="0.5") is None
    assert value(metrics, "anabranch_latency_seconds", quantile="0.999") is None
    assert value(metrics, "anabranch_step_keys", step="split") is None


def test_a_backlog_of_none_left_is_a_sample(metrics):
    metrics.hear(seen(backlog=0))
    assert value(metrics, "anabranch_backlog_rows", source="lines") == 0


def test_engines_with_batches_have_no_queues_and_those_with_threads_no_batches(metrics):
    metrics.hear(seen())
    assert value(metrics, "anabranch_queue_rows", region="split") is None
    threads = Metrics()
    threads.hear(RunStarted("word-count", "local", NARROW.to_json(), -1))
    threads.hear(seen(p999_ms=2000.0))
    assert value(threads, "anabranch_queue_rows", region="split") == 30
    assert value(threads, "anabranch_cpu_seconds_total", part="compute") == 0.15
    assert value(threads, "anabranch_batches_total") is None
    assert value(threads, "anabranch_latency_seconds", quantile="0.999") == 2.0


def test_a_plan_change_counts_and_shows_in_the_replicas(metrics):
    assert value(metrics, "anabranch_region_replicas", region="count") == 1
    assert value(metrics, "anabranch_plan_changes_total") == 0
    metrics.hear(CHANGE)
    metrics.hear(CHANGE)
    assert value(metrics, "anabranch_region_replicas", region="count") == 2
    assert value(metrics, "anabranch_source_readers", source="lines") == 1
    assert value(metrics, "anabranch_plan_changes_total") == 2
    assert value(metrics, "anabranch_plan_change_pause_seconds_total") == 0.025


def test_pipelines_that_are_no_more_are_told_no_more(metrics):
    metrics.hear(seen())
    later = Observation(
        9.0, 1, 0, 0, TIMES, 1.0, 2.0, pipelines=(PipelineMetrics("split", ("split",), 0.5, 0.1),)
    )
    metrics.hear(Observed(later))
    (busy,) = [f for f in families(metrics) if f.name == "anabranch_pipeline_busy_ratio"]
    assert [sample.labels["pipeline"] for sample in busy.samples] == ["split"]


def test_decisions_are_counted_by_policy_and_outcome(metrics):
    for outcome in (Kind.TRIED, Kind.KEPT, Kind.TRIED):
        metrics.hear(Decision(1.0, "auto", outcome, "why"))
    assert value(metrics, "anabranch_decisions_total", policy="auto", outcome="tried") == 2
    assert value(metrics, "anabranch_decisions_total", policy="auto", outcome="kept") == 1


def test_a_run_that_is_over_keeps_its_counts_and_has_no_present(metrics):
    assert value(metrics, "anabranch_up", flow="word-count") == 1
    metrics.hear(seen())
    metrics.hear(RunEnded(2.0, 1000, 10, ended=True))
    assert value(metrics, "anabranch_up", flow="word-count") == 0
    assert value(metrics, "anabranch_read_rows_total", source="lines") == 1000
    assert value(metrics, "anabranch_backlog_rows", source="lines") is None
    assert value(metrics, "anabranch_latency_seconds", quantile="0.5") is None


def test_another_run_starts_from_zero(metrics):
    metrics.hear(seen())
    metrics.hear(RunEnded(2.0, 1000, 10, ended=True))
    metrics.hear(RunStarted("other", "local", NARROW.to_json(), -1))
    assert value(metrics, "anabranch_read_rows_total", source="lines") is None
    assert value(metrics, "anabranch_run_info", flow="other", engine="local") == 1


def test_names_with_quotes_backslashes_and_new_lines_come_back_as_they_were():
    name = 'a "b"\n\\c{} # [red]é'
    told = Metrics()
    told.hear(RunStarted(name, "local", NARROW.to_json(), -1))
    assert value(told, "anabranch_up", flow=name) == 1


def test_names_that_utf_8_cannot_hold_are_told_apart_and_can_be_scraped():
    told = Metrics()
    told.hear(RunStarted("half \ud83d", "local", NARROW.to_json(), -1))
    steps = tuple(StepMetrics(name, rows, 0, 0.0) for name, rows in (("\ud800", 1), ("\udfff", 2)))
    told.hear(Observed(replace(seen().observation, steps=steps)))
    labels = {"flow": "half \\ud83d"}
    assert value(told, "anabranch_step_rows_in_total", step="\\ud800", **labels) == 1
    assert value(told, "anabranch_step_rows_in_total", step="\\udfff", **labels) == 2


# --- against a run ----------------------------------------------------------------------------


def stumbling(rows: int) -> ab.Flow:
    """Numbers, of which every tenth is not to be worked on."""
    flow, schema = ab.Flow("numbers"), pa.schema([("x", pa.int64())])

    def check(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        if any(x.as_py() % 10 == 0 for x in batch["x"]):
            raise ValueError("a tenth")
        return {"x": batch["x"]}

    source = ab.generate(lambda rng, index: {"x": index}, schema, rows)
    checked = flow.source("s", source).map("check", check, out=schema, on_error="skip")
    checked.aggregate("last", key="x", n=ab.count(), emit="every").sink("out", ab.collect())
    return flow


@pytest.fixture(scope="module")
def ran() -> tuple[Metrics, Result]:
    metrics, flow = Metrics(), stumbling(5000)
    result = ab.run(flow, engine="local", listener=metrics.hear, policy="none")
    return metrics, result


def test_counts_are_those_of_the_result(ran):
    metrics, result = ran
    assert result.rows_in == 5000
    assert value(metrics, "anabranch_read_rows_total", source="s") == result.rows_in
    assert value(metrics, "anabranch_written_rows_total") == result.rows_out
    assert result.skipped == {"check": 500}
    assert value(metrics, "anabranch_skipped_rows_total", step="check") == 500
    assert value(metrics, "anabranch_step_rows_in_total", step="check") == 5000
    assert value(metrics, "anabranch_step_rows_out_total", step="check") == 4500
    assert value(metrics, "anabranch_plan_changes_total") == len(result.reconfigurations)
    assert (value(metrics, "anabranch_step_busy_seconds_total", step="check") or 0) > 0


# --- conventions, as `promtool check metrics` has them ----------------------------------------

UNITS_THAT_ARE_NOT_BASE = re.compile(
    r"_(ms|milliseconds|us|microseconds|minutes|hours|days|kb|kilobytes|mb|percent|share)(_|$)"
)
RESERVED = ("_count", "_sum", "_bucket", "_created")


def all_told() -> Metrics:
    """A run of which everything is known, at its end but not over."""
    told = Metrics()
    told.hear(RunStarted("word-count", "local", NARROW.to_json(), -1))
    told.hear(seen(p999_ms=2000.0))
    told.hear(seen())
    told.hear(CHANGE)
    told.hear(Decision(1.0, "auto", Kind.TRIED, "why"))
    return told


def lint(family: Metric) -> Iterator[str]:
    names = {sample.name for sample in family.samples}
    if not re.fullmatch(r"anabranch_[a-z0-9_]+", family.name):
        yield "a name in small letters with the prefix of the library"
    if not family.documentation:
        yield "a help text"
    if family.type == "counter" and not all(name.endswith("_total") for name in names):
        yield "_total behind a counter"
    if family.type != "counter" and any(name.endswith("_total") for name in names):
        yield "_total behind counters only"
    if UNITS_THAT_ARE_NOT_BASE.search(family.name):
        yield "base units"
    if family.name.endswith(RESERVED):
        yield "no suffix that summaries and histograms have"
    if family.type != "summary" and any("quantile" in s.labels for s in family.samples):
        yield "quantiles in summaries only"
    if family.type in ("unknown", "untyped"):
        yield "a type"
    if len({tuple(sorted(s.labels)) for s in family.samples}) != 1:
        yield "the same labels on all samples"
    if not all("flow" in sample.labels for sample in family.samples):
        yield "the flow as a label"


def test_all_metrics_keep_to_the_conventions():
    found = families(all_told())
    assert {problem: f.name for f in found for problem in lint(f)} == {}
    assert len({family.name for family in found}) == len(found) >= 20


def test_the_page_for_prometheus_names_only_what_is_told():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "prometheus.md"
    named = set(re.findall(r"anabranch_[a-z_]+", page.read_text()))
    told = {sample.name for family in families(all_told()) for sample in family.samples}
    assert named - told == set()
    assert "anabranch_backlog_rows" in named


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# HELP anabranch_a h\n# TYPE anabranch_a gauge\nanabranch_a 1\n", "the flow as a label"),
        ('# HELP anabranch_a_ms h\n# TYPE anabranch_a_ms gauge\nanabranch_a_ms{flow="f"} 1\n',
         "base units"),
        ('# HELP anabranch_a h\n# TYPE anabranch_a gauge\nanabranch_a{flow="f",quantile="1"} 1\n',
         "quantiles in summaries only"),
    ],
)  # fmt: skip
def test_what_breaks_a_convention_is_found(text, problem):
    (family,) = text_string_to_metric_families(text)
    assert problem in lint(family)


# --- over HTTP --------------------------------------------------------------------------------


def test_prometheus_is_answered_on_this_machine_only_until_it_is_closed(metrics):
    with metrics.serve(0) as endpoint:
        assert endpoint.url == f"http://127.0.0.1:{endpoint.port}/metrics"
        with urllib.request.urlopen(endpoint.url, timeout=30) as answer:
            kind, content = answer.headers["Content-Type"], answer.read()
    assert kind.startswith("text/plain; version=")
    assert content == metrics.text()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(endpoint.url, timeout=30)
    endpoint.close()


def test_where_everybody_may_ask_the_url_names_this_machine(metrics):
    with metrics.serve(0, "0.0.0.0") as endpoint:
        assert endpoint.url == f"http://{socket.gethostname()}:{endpoint.port}/metrics"


def test_a_port_that_is_taken_is_an_error_that_says_so(metrics):
    with (
        metrics.serve(0) as endpoint,
        pytest.raises(EngineError, match=rf"a free port at 127.0.0.1, got {endpoint.port}: "),
    ):
        metrics.serve(endpoint.port)


def test_scrapes_while_events_come_see_whole_observations(metrics):
    over = threading.Event()

    def tell() -> None:
        batch = 0
        while not over.is_set():
            metrics.hear(seen(batch))
            batch += 1

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        for _ in range(50):
            text = {s.name: s.value for f in families(metrics) for s in f.samples}
            read = text.get("anabranch_read_rows_total", 0)
            assert read == text.get("anabranch_batches_total", 0) * 1000
    finally:
        over.set()
        teller.join()
