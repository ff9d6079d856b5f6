"""A run without a terminal: lines now and then."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from anabranch.events import Decision, Kind, Observed, Reconfiguration
from tests.view.test_terminal import PLAN, observed, told


def lines_of(events: Sequence[Observed | Decision | Reconfiguration]) -> list[str]:
    progress, file = told(), io.StringIO()
    with progress.live(Console(file=file, width=20)):
        for event in events:
            progress.hear(event)
    progress.hear(Decision(9.0, "auto", Kind.NOTED, "after the end"))
    return file.getvalue().splitlines()


def test_without_a_terminal_a_line_is_written_every_five_seconds():
    lines = lines_of([observed(at_s=float(second)) for second in range(1, 13)])
    assert [line.split(" s  ")[0].strip() for line in lines] == ["5.0", "10.0"]
    assert lines[0] == (
        "    5.0 s  1,000 rows/s; rows 5,000 in, 50 out, 3 skipped, 2 late; "
        "latency 0.4 ms p50, 3.1 ms p99; backlog 70 rows"
    )


def test_without_a_terminal_every_decision_and_plan_change_is_a_line():
    change = Reconfiguration(4.0, 2, 12.4, ("1 → 2 replicas",), 0, "", PLAN.to_json())
    decision = Decision(3.0, "auto", Kind.TRIED, "[red]too slow[/red]\nhere")
    assert lines_of([decision, change]) == [
        "    3.0 s  auto: [red]too slow[/red]�here, tried",
        "    4.0 s  plan: 1 → 2 replicas (12 ms pause)",
    ]


def test_a_log_that_nobody_reads_any_more_does_not_concern_the_run():
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    progress = told()
    with progress.live(Console(file=Closed())):
        progress.hear(Decision(3.0, "auto", Kind.NOTED, "x"))
        progress.hear(Decision(4.0, "auto", Kind.NOTED, "y"))
    assert str(progress).endswith("auto: y, noted")


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    progress, file = told(), io.StringIO()
    with progress.live(Console(file=file, force_terminal=True)):
        progress.hear(Decision(3.0, "auto", Kind.NOTED, "x"))
    assert file.getvalue() == "    3.0 s  auto: x, noted\n"
