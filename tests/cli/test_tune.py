"""`anabranch tune`: a policy to its end, the plan that it found, and a report of every round."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import anabranch.cli.tuning
from anabranch.adapt.history import History
from anabranch.adapt.policy import Cadence, Outcome, Proposal, Trial, Verdict
from anabranch.apps import word_count
from anabranch.engines.local import engine as local_engine
from anabranch.errors import SourceError
from anabranch.io import memory
from anabranch.io.redis_client import StreamClient
from anabranch.io.replaying import Steps, StreamReplay
from anabranch.planning.machine import Machine, machine_text
from anabranch.planning.plan import Plan
from anabranch.running import start as begin
from tests.io.redis_server import redis_server, stream

__all__ = ["redis_server", "stream"]


AT_ONCE = Cadence(settle=0, periods=1)


@dataclass(frozen=True)
class Wider:
    """Tries two replicas of the counting region, once."""

    keeps: bool = True
    pace: Cadence = AT_ONCE
    name: str = "wider"

    def begin(self) -> int:
        return 0

    def decide(self, memory: int, seen: History) -> tuple[int, Proposal | None]:
        wider = seen.plan.with_replicas("count", 2)
        return memory + 1, None if memory else Proposal(wider, "region count: busy enough")

    def judge(self, memory: int, seen: History, trial: Trial) -> tuple[int, Verdict]:
        return memory, Verdict(Outcome.KEPT if self.keeps else Outcome.REVERTED, "looked at")


@pytest.fixture
def tune(command_line, monkeypatch, tmp_path):
    monkeypatch.setattr(local_engine, "PERIOD_S", 0.1)
    monkeypatch.chdir(tmp_path)

    def call(policy: Any, *arguments: object) -> Any:
        monkeypatch.setattr(anabranch.cli.tuning, "find_policy", lambda name: policy)
        return command_line("tune", *arguments)

    return call


@pytest.fixture
def narrow(tmp_path) -> Path:
    """A plan with one replica of everything, to begin with."""
    plan = Plan.sequential(word_count.build()).with_source("lines", batch_rows=500)
    (tmp_path / "narrow.json").write_text(plan.to_json())
    return tmp_path / "narrow.json"


WORD_COUNT = ("word-count", "--engine", "local")


@pytest.mark.parametrize(("keeps", "replicas"), [(True, 2), (False, 1)])
def test_the_policy_runs_to_its_end_and_what_it_keeps_is_written(
    tune, narrow, tmp_path, keeps, replicas
):
    files = ["--out", "found/plan.json", "--report", "report.md"]
    ran = tune(Wider(keeps), *WORD_COUNT, "--plan", narrow, "--quiet", 3, *files)
    assert ran.code == 0
    assert "The end: 3 decisions in a row changed nothing." in ran.out
    assert (tmp_path / "report.md").read_text() == ran.out
    plan = Plan.from_json((tmp_path / "found" / "plan.json").read_text())
    assert plan.region("count").replicas == replicas
    assert "wider: region count: busy enough, tried" in ran.out
    assert f"looked at, {'kept' if keeps else 'reverted'}" in ran.out


def test_json_has_the_same_for_programs(tune, narrow):
    ran = tune(Wider(), *WORD_COUNT, "--plan", narrow, "--quiet", 2, "--json")
    told = json.loads(ran.out)
    assert (told["app"], told["engine"], told["policy"]) == ("word-count", "local", "auto")
    assert [r["round"] for r in told["rounds"]] == [0, 1]
    assert told["rounds"][1]["figures"]["rate_per_s"] > 0
    assert told["plan"] == told["rounds"][1]["plan"]


def test_the_input_may_end_first(tune, tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 10)
    ran = tune(Wider(), *WORD_COUNT, "--input", "text.txt")
    assert (ran.code, "The end: the input is over." in ran.out) == (0, True)


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (["--seconds", 0.3, "--quiet", 1000], "0.3 seconds are over"),
        (["--rounds", 2, "--seconds", 0.3, "--quiet", 1000], "0.3 seconds are over"),
        (["--rounds", 1, "--quiet", 1000], "1 plan was looked at"),
    ],
)
def test_limits_end_it(tune, narrow, limit, why):
    ran = tune(Wider(), *WORD_COUNT, "--plan", narrow, *limit)
    assert (ran.code, f"The end: {why}." in ran.out) == (0, True)


def test_an_interrupt_still_reports(tune, narrow, monkeypatch):
    def interrupted(*arguments: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(anabranch.cli.tuning, "reason", interrupted)
    ran = tune(Wider(), *WORD_COUNT, "--plan", narrow)
    assert (ran.code, "The end: interrupted." in ran.out) == (130, True)


def test_what_was_found_is_kept_when_the_run_fails(tune, narrow, tmp_path, monkeypatch):
    def failing(*arguments: Any) -> str:
        raise SourceError("lines", "a server that answers", "silence", "wake it up")

    monkeypatch.setattr(anabranch.cli.tuning, "reason", failing)
    files = ["--out", "plan.json", "--report", "report.md"]
    ran = tune(Wider(), *WORD_COUNT, "--plan", narrow, *files)
    assert (ran.code, "error: " in ran.err) == (1, True)
    assert "The end: an error, step 'lines': expected a server that answers" in ran.out
    assert (tmp_path / "report.md").read_text() == ran.out
    assert Plan.from_json((tmp_path / "plan.json").read_text()).region("count").replicas == 1


def test_a_policy_reckons_with_the_machine_that_was_measured(tune, narrow, tmp_path, monkeypatch):
    told: list[Any] = []

    def start(*arguments: Any, **options: Any) -> Any:
        told.append(options["machine"])
        return begin(*arguments, **options)

    monkeypatch.setattr(anabranch.cli.tuning, "start", start)
    (tmp_path / "machine.json").write_text(machine_text(Machine.of_cores(3)))
    limits = ["--seconds", 0.1, "--quiet", 1000]
    ran = tune(Wider(), *WORD_COUNT, "--plan", narrow, "--machine", "machine.json", *limits)
    assert (ran.code, [machine.cores for machine in told]) == (0, [3])


@pytest.mark.parametrize(
    ("place", "url", "first_row"),
    [
        ("redis://host:6379/0/lines", "host:6379/0", 0),
        ("redis://host:6379/lines", "host:6379", 0),
        ("redis://host/2/lines?first_row=20", "host/2", 20),
        ("redis://host/2/lines?first_row=7&socket_timeout=9", "host/2", 7),
    ],
)
def test_a_stream_is_named_by_server_key_and_first_entry(place, url, first_row):
    streams = [f"lines={place}"]
    flow = anabranch.cli.tuning.reading_streams(word_count.build(), streams, "fields")
    read = flow.graph.steps["lines"].body.source
    assert repr(read) == f"redis_stream 'lines' at {url}"
    assert read._first_row == first_row
    assert read._client._url.endswith("socket_timeout=9") == ("socket_timeout" in place)


def test_a_redis_stream_takes_the_place_of_the_input(tune, redis_server, stream, narrow):
    lines = memory([{"line": "to be or not to be"} for _ in range(300)])
    replay = StreamReplay(lines, StreamClient(redis_server.url, stream), Steps.constant(600))
    generator = Thread(target=partial(replay.run))
    generator.start()
    ran = tune(
        Wider(),
        *(*WORD_COUNT, "--plan", narrow, "--redis", f"{redis_server.url}/{stream}"),
        *("--quiet", 6, "--json"),
    )
    generator.join()
    told = json.loads(ran.out)
    figures = [each["figures"] for each in told["rounds"]]
    assert max(each["rate_per_s"] for each in figures) > 0
    assert figures[-1]["backlog_rows"] is not None


# --- what is refused ------------------------------------------------------------------------------

REFUSED = {
    ("word-count", "--policy", "none"): "a policy has to tune",
    ("word-count", "--policy", "nobody"): "a policy among ['auto'",
    ("word-count", "--engine", "simulator"): "an engine among ['spark', 'local']",
    ("word-count", "--redis", "localhost"): "a stream as redis://host:6379/0/STREAM",
    ("word-count", "--redis", "redis://h:6379/0"): "a stream as redis://host:6379/0/STREAM",
    ("word-count", "--redis", "redis://h:6379/0/"): "a stream as redis://host:6379/0/STREAM",
    ("word-count", "--redis", "redis://h/0/s?first_row=x"): "first_row=N with a number",
    ("word-count", "--machine", "nowhere.json"): "nowhere.json",
    ("band-join", "--redis", "redis://host/0/s"): "SOURCE=URL/STREAM with a source among",
    ("word-count", "--seconds", "-1"): "--seconds",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_cannot_be_tuned_is_refused_before_anything_starts(command_line, arguments):
    ran = command_line("tune", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert REFUSED[arguments] in " ".join(ran.err.split())
