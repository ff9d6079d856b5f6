"""The live view: what it shows, that it fits every terminal, and that it leaves nothing behind."""

from __future__ import annotations

import io
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

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
    Shape,
    SourceMetrics,
    StepMetrics,
    StepShape,
)
from anabranch.planning.plan import Plan, RegionPlan, SourcePlan
from anabranch.view import terminal as terminal_module
from anabranch.view.progress import Progress
from anabranch.view.run_state import steady
from anabranch.view.terminal import Size, frame, wrapped
from tests.view.screen import Screen

TIMES = BatchTimes(1.0, 0.0, 0.3, 0.0, 1.2, 0.0, 0.1)
ROOMY = Size(100, 40)
UNKNOWN = Shape()


def plan_of(*regions: RegionPlan, source: str = "lines") -> Plan:
    return Plan("words", "fingerprint", regions, (SourcePlan(source, 2, batch_rows=1000),))


PLAN = plan_of(
    RegionPlan("split", (("split", "trim"), ("count.combine",)), 2),
    RegionPlan("count", (("count",),), 3),
    RegionPlan("out", (("out",),)),
)
BUSY = {("split", "trim"): 0.82, ("count.combine",): 0.31, ("count",): 0.6, ("out",): 0.02}


def observed(
    plan: Plan = PLAN,
    busy: dict[tuple[str, ...], float] = BUSY,
    at_s: float = 1.0,
    replica_busy: dict[str, tuple[float, ...]] | None = None,
    lag_ms: float | None = None,
    reading: float | None = None,
) -> Observed:
    pipelines = tuple(
        PipelineMetrics(region.region, steps, busy[steps], 0.0)
        for region in plan.regions
        for steps in region.pipelines
        if steps in busy
    )
    told = (replica_busy or {}).items()
    return Observed(
        Observation(
            at_s,
            int(at_s),
            1000,
            10,
            TIMES,
            0.4,
            3.1,
            steps=(StepMetrics("split", 1000, 10, 0.1, skipped=3, late=2),),
            pipelines=pipelines,
            regions=tuple(RegionMetrics(name, 2, 1.0, replica_busy=each) for name, each in told),
            sources=(SourceMetrics("lines", 1000, 2000.0, 70, lag_ms, reading),),
            latency_p999_ms=9.0,
        )
    )


def told(
    *events: Observed | Decision | Reconfiguration, plan: Plan = PLAN, shape: Shape = UNKNOWN
) -> Progress:
    progress = Progress("words")
    progress.hear(RunStarted("words", "local", plan.to_json(), -1, shape))
    for event in events:
        progress.hear(event)
    return progress


def shown(progress: Progress, size: Size = ROOMY) -> list[str]:
    return [line.plain.rstrip() for line in frame(progress.standing(), size)]


def test_figures_stand_above_the_plan():
    lines = shown(told(observed(lag_ms=120.0)))
    assert lines[:3] == [
        "words on local  1,000 rows/s  1 s  █",
        "latency  0.4 ms p50, 3.1 ms p99   lag 120 ms   backlog 70 rows",
        "rows     1,000 in, 10 out, 3 skipped, 2 late",
    ]


def test_what_is_serial_stands_below_the_figures():
    shape = Shape((StepShape("out", "sink", region="out", serial="takes a changelog"),))
    lines = shown(told(observed(), shape=shape))
    # 0.02 of 0.82 + 0.31 + 0.6 + 0.02: nobody has said how many replicas there are.
    assert lines[4] == "serial   `out` takes a changelog (1.1 % of the work): " + (
        "at most 87 cores can help"
    )
    assert lines[5].startswith("├─ lines")


def test_the_plan_is_a_tree_with_bars_and_the_bottleneck_has_a_word():
    assert shown(told(observed()))[4:] == [
        "├─ lines  2 readers × 1,000 rows  2,000 rows/s, 70 wait",
        "├─ split  2 replicas",
        "│  ├─ split · trim    ████████░░  82 % bottleneck",
        "│  └─ count.combine   ███░░░░░░░  31 %",
        "├─ count  3 replicas  ██████░░░░  60 %",
        "└─ out  1 replica     ░░░░░░░░░░   2 %",
    ]


def test_readers_have_a_bar_and_may_be_the_bottleneck():
    lines = shown(told(observed(reading=0.97)))
    assert lines[4:7] == [
        "├─ lines  2 readers × 1,000 rows  ██████████  97 % bottleneck  2,000 rows/s, 70 wait",
        "├─ split  2 replicas",
        "│  ├─ split · trim                ████████░░  82 %",
    ]
    narrow = shown(told(observed(reading=0.97)), Size(40, 40))
    assert "├─ lines  2 readers ×…   97 % bottleneck" in narrow
    calm = shown(told(observed(reading=0.3)))
    assert [line for line in calm if "bottleneck" in line] == [
        "│  ├─ split · trim                ████████░░  82 % bottleneck"
    ]


def test_a_hot_replica_makes_a_bottleneck_of_a_region_that_is_idle_on_average():
    hot = observed(replica_busy={"count": (0.95, 0.2, 0.2)})
    (marked,) = [line for line in shown(told(hot)) if "bottleneck" in line]
    assert marked.startswith("├─ count  3 replicas")


def test_the_number_of_a_region_is_that_of_its_hottest_replica():
    hot = observed(replica_busy={"split": (0.95, 0.69)})
    assert [line for line in shown(told(hot)) if "%" in line][:2] == [
        "│  ├─ split · trim    ██████████  95 % bottleneck",
        "│  └─ count.combine   ███░░░░░░░  31 %",
    ]


def test_the_rest_that_a_run_leaves_at_its_end_is_not_shown_as_its_figures():
    whole = observed().observation
    late = (StepMetrics("split", 0, 0, 0.0, skipped=4, late=9),)
    short = replace(TIMES, total_s=0.17)
    rest = replace(whole, at_s=1.17, rows_in=0, pipelines=(), steps=late, times=short)
    assert steady(whole, None) == whole
    kept = steady(rest, whole)
    assert kept is not None
    assert (kept.pipelines, kept.steps[0].late) == (whole.pipelines, 9)
    idle = replace(whole, rows_in=0)
    assert steady(idle, whole) == idle  # a run that waits is no run that ends
    short_batch = replace(rest, latency_p999_ms=None)
    assert steady(short_batch, whole) == short_batch


def test_where_nobody_is_busy_there_is_no_bottleneck():
    idle = observed(busy=dict.fromkeys(BUSY, 0.4))
    assert "bottleneck" not in "\n".join(shown(told(idle)))


def test_a_pipeline_that_was_not_seen_yet_has_no_bar():
    change = Reconfiguration(
        2.0, 2, 12.4, ("split apart",), 0, PLAN.to_json(),
        PLAN.with_pipelines("split", 1, 1, 1).to_json(),
    )  # fmt: skip
    lines = shown(told(observed(), change))
    assert "│  ├─ split" in lines
    assert "│  └─ count.combine   ███░░░░░░░  31 %" in lines


def test_the_newest_decisions_are_wrapped_and_the_newest_is_last():
    first = Decision(6.0, "auto", Kind.TRIED, "1.00 of the plan used, 1 → 10 replicas of sums")
    change = Reconfiguration(6.5, 6, 12.4, ("1 → 10 replicas",), 0, "", PLAN.to_json())
    lines = shown(told(observed(), first, change), Size(50, 40))
    assert lines[-4:] == [
        "",
        "    6.0 s  auto: 1.00 of the plan used, 1 → 10",
        "           replicas of sums, tried",
        "    6.5 s  plan: 1 → 10 replicas (12 ms pause)",
    ]


def test_an_entry_too_long_for_its_room_shows_its_beginning():
    long = Decision(6.0, "auto", Kind.NOTED, " ".join(["word"] * 200))
    lines = shown(told(observed(), long), Size(40, 12))
    assert any("auto: word" in line for line in lines)
    assert lines[-1].endswith("…")


def test_before_the_start_and_before_the_first_rows_it_says_what_it_waits_for():
    assert shown(Progress("words")) == ["words: starting …"]
    lines = shown(told())
    assert lines[0] == "words on local: waiting for the first rows"
    assert "├─ count  3 replicas" in lines


def test_names_with_markup_are_shown_and_not_interpreted():
    name = "[red]a[/red] :smile:"
    plan = plan_of(RegionPlan(name, ((name,),)))
    event = observed(plan, {(name,): 0.9})
    lines = shown(told(event, Decision(1.0, name, Kind.NOTED, "[bold]x"), plan=plan))
    assert f"└─ {name}  1 replica  █████████░  90 % bottleneck" in lines
    assert lines[-1] == f"    1.0 s  {name}: [bold]x, noted"


def test_names_cannot_move_the_cursor_or_begin_a_line():
    plan = plan_of(RegionPlan("a\x1b[2J\nb", (("a\x1b[2J\nb",),)))
    text = "\n".join(shown(told(observed(plan, {("a\x1b[2J\nb",): 0.9}), plan=plan)))
    assert "a�[2J�b  1 replica" in text
    assert "\x1b" not in text


def test_a_terminal_without_unicode_gets_letters():
    lines = shown(told(observed()), Size(100, 40, ascii_only=True))
    assert all(line.isascii() for line in lines)
    assert "|  |- split + trim    ########..  82 % bottleneck" in lines


# --- small terminals --------------------------------------------------------------------------


def many_regions(count: int) -> Progress:
    names = [f"region-{number}" for number in range(count)]
    plan = plan_of(*(RegionPlan(name, ((name, f"{name}.b"), (f"{name}.c",))) for name in names))
    busy = {(name, f"{name}.b"): number / count for number, name in enumerate(names)}
    return told(observed(plan, busy), Decision(1.0, "auto", Kind.NOTED, "a b " * 30), plan=plan)


def test_few_lines_show_one_for_each_region():
    lines = shown(told(observed()), Size(100, 7))
    assert len(lines) <= 7
    assert "├─ split  2 replicas  ████████░░  82 % bottleneck" in lines
    assert "count.combine" not in "\n".join(lines)


def test_fewer_lines_show_the_busiest_regions_and_how_many_there_are():
    lines = shown(many_regions(100), Size(100, 20))
    assert len(lines) <= 20
    assert "region-99  1 replica" in "\n".join(lines)
    assert "region-10 " not in "\n".join(lines)
    (rest,) = [line for line in lines if " more" in line]
    kept = sum("replica" in line for line in lines)
    assert rest == f"   … {101 - kept} more, at most {99 - kept} % busy"


def test_narrow_terminals_lose_bars_before_figures():
    lines = shown(told(observed()), Size(40, 40))
    assert "│  ├─ split · trim     82 % bottleneck" in lines
    assert shown(told(observed()), Size(28, 40))[0] == "words  1,000 rows/s"


WORDS = st.text(st.sampled_from("ab ·→漢\x1b\n[]é"), min_size=1, max_size=30)


@given(st.integers(1, 140), st.integers(1, 50), st.booleans(), st.integers(0, 30), st.lists(WORDS))
def test_no_frame_is_larger_than_its_terminal(width, height, ascii_only, regions, words):
    progress = many_regions(regions)
    for number, why in enumerate(words):
        progress.hear(Decision(float(number), why, Kind.NOTED, why))
    lines = shown(progress, Size(width, height, ascii_only))
    assert 1 <= len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)


@given(WORDS, st.integers(2, 20))
def test_wrapping_loses_nothing_but_spaces_at_the_ends_of_lines(text, width):
    lines = wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(cell_len(line) <= width for line in lines)


# --- live -------------------------------------------------------------------------------------


class Recorder(io.StringIO):
    """A terminal's input, that tells when something new has come."""

    def __init__(self) -> None:
        super().__init__()
        self.news = threading.Event()

    def flush(self) -> None:
        super().flush()
        self.news.set()


def terminal(file: io.StringIO, size: Size = ROOMY) -> Console:
    return Console(file=file, force_terminal=True, width=size.width, height=size.height)


def wait_for(file: Recorder, text: str) -> None:
    for _ in range(200):
        if text in file.getvalue():
            return
        file.news.wait(0.1)
        file.news.clear()
    raise AssertionError(f"{text!r} was never drawn")


def test_news_is_drawn_while_it_runs():
    progress, file = told(), Recorder()
    with progress.live(terminal(file)):
        wait_for(file, "waiting for the first rows")
        progress.hear(observed())
        wait_for(file, "1,000 in, 10 out")


@pytest.mark.parametrize("size", [ROOMY, Size(40, 12), Size(20, 3), Size(6, 2)])
def test_nothing_is_left_behind(size):
    progress, file = told(observed()), Recorder()
    screen = Screen(size.width, size.height)
    with progress.live(terminal(file, size)):
        progress.hear(Decision(1.0, "auto", Kind.NOTED, "some words " * 20))
        wait_for(file, "1,000")
    screen.write(file.getvalue())
    assert screen.text == ""


def test_a_terminal_of_one_line_is_left_alone():
    progress, file = told(observed()), Recorder()
    with progress.live(terminal(file, Size(80, 1))):
        progress.hear(observed(at_s=2.0))
    screen = Screen(80, 1)
    screen.write(file.getvalue())
    assert screen.text == ""
    assert "rows" not in file.getvalue()


def test_what_is_printed_meanwhile_stays_above(monkeypatch):
    progress, file = told(observed()), Recorder()
    screen = Screen(100, 20)
    monkeypatch.setattr(sys, "stderr", file)
    with progress.live(terminal(file, Size(100, 20))):
        print("[red]a warning[/red]", file=sys.stderr)
    screen.write(file.getvalue())
    assert screen.text == "[red]a warning[/red]"


@pytest.mark.parametrize(("width", "cleared"), [(60, 1), (120, 0)])
def test_a_terminal_that_gets_narrower_is_cleared_of_what_it_has_wrapped(width, cleared):
    progress, file = told(observed()), Recorder()
    console = terminal(file)
    with progress.live(console):
        console.width = width
        progress.hear(observed(at_s=2.0))
        wait_for(file, "2,000 in, 20 out")
    assert file.getvalue().count("\x1b[2J") == cleared


def test_nothing_is_drawn_without_news(monkeypatch):
    looks, outdated = threading.Semaphore(0), terminal_module._Drawn.outdated

    def looked(drawn):
        looks.release()
        return outdated(drawn)

    monkeypatch.setattr(terminal_module._Drawn, "outdated", looked)
    monkeypatch.setattr(terminal_module, "FRAMES_PER_S", 100)
    progress, file = told(observed()), Recorder()
    with progress.live(terminal(file)):
        wait_for(file, "1,000 in, 10 out")
        drawn = file.getvalue()
        assert all(looks.acquire(timeout=20) for _ in range(3))  # the first of them draw no more
        assert file.getvalue() == drawn
