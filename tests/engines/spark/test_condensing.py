"""Partial results of one task are merged before they are sent: each key travels once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from anabranch.apps import word_count
from anabranch.engines.jumbo_ipc import from_ipc
from anabranch.engines.spark import replica as station_module
from anabranch.engines.spark import shuffle_rows as wire
from anabranch.engines.spark import task as task_module
from anabranch.engines.spark.task_inputs import Batch
from anabranch.planning.plan import Plan
from tests.engines.spark.in_process import InProcess, Rows

READERS = 2
LINES = 60
WORDS = [f"w{number}" for number in range(20)]


class Counting(InProcess):
    """All rows in one batch; counts the words that each task sends."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.sent: list[Counter[str]] = []

    def _resized(self, plan: Plan) -> Plan:
        return plan

    def _task(self, batch: Batch, stage: int, task: int, rows: Rows) -> Rows:
        sent = super()._task(batch, stage, task, rows)
        jumbos = [row for each in sent for row in wire.rows_of(each) if row.kind == wire.JUMBO]
        words = Counter(
            word for row in jumbos for word in from_ipc(row.payload).column("word").to_pylist()
        )
        if words:
            self.sent.append(words)
        return sent


@pytest.fixture
def text() -> str:
    rng = Random(3)
    return "\n".join(" ".join(rng.choices(WORDS, k=8)) for _ in range(LINES))


def counted(
    text: str, directory: Path, monkeypatch: pytest.MonkeyPatch, condense_rows: int
) -> list[Counter[str]]:
    """How often each word was sent, by task; the counts themselves are always right."""
    monkeypatch.setattr(task_module, "SCAN_ROWS", 5)
    monkeypatch.setattr(station_module, "CONDENSE_ROWS", condense_rows)
    flow = word_count.build(text=text)
    plan = Plan.sequential(flow).with_source("lines", replicas=READERS, batch_rows=LINES)
    run = Counting(flow, directory, 0)
    got = run.run([plan.with_replicas("split", READERS).with_replicas("count", 3)])
    assert {row["word"]: row["n"] for row in got.rows("out")} == Counter(text.split())
    return run.sent


def test_a_task_sends_every_key_once_however_many_jumbos_it_reads(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = counted(text, tmp_path / "checkpoint", monkeypatch, condense_rows=1 << 20)
    assert len(sent) == READERS
    for words in sent:
        assert set(words) == set(WORDS)
        assert set(words.values()) == {1}


def test_a_task_that_may_hold_nothing_sends_the_keys_of_every_jumbo(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = counted(text, tmp_path / "checkpoint", monkeypatch, condense_rows=1)
    assert max(max(words.values()) for words in sent) == LINES // READERS // 5


def test_a_task_sends_on_what_has_become_too_much(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two jumbos of some twenty keys each are merged to one, which is more than half of that.
    sent = counted(text, tmp_path / "checkpoint", monkeypatch, condense_rows=36)
    times = [times for words in sent for times in words.values()]
    assert 1 < max(times) <= LINES // READERS // 5 / 2
