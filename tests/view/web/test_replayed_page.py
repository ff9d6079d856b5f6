"""The page in a browser, with runs that are over."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import anabranch as ab
from anabranch.cli.viewing import replayed
from anabranch.events import Decision, Kind, RunEnded
from anabranch.view.journal import JournalFile, to_object
from anabranch.view.web import serve
from tests.view.web.browser import chromium, opened
from tests.view.web.made import (
    MARKUP,
    large_run,
    marked_run,
    paced_flow,
    small_change,
    small_seen,
    small_start,
)

__all__ = ["chromium", "opened"]

pytestmark = pytest.mark.xdist_group("page")  # a browser for each file, not for each worker

SHOWN = ("#flow", "#state", "#tiles", "#plan-text", "#journal", "#detail")


def journal_of(events, path: Path) -> Path:
    path.write_text("".join(json.dumps(to_object(event)) + "\n" for event in events))
    return path


def small_run():
    return [
        small_start(),
        small_seen(1.0),
        small_change(3.0),
        small_seen(4.0),
        small_seen(5.0, rows=2000),
        RunEnded(5.5, 4000, 2000, ended=True),
    ]


@pytest.fixture
def shown(opened, tmp_path):
    """A journal on a page."""
    pages = []

    def show(events):
        path = journal_of(events, tmp_path / "run.jsonl")
        pages.append(serve(port=0, journal=path.name))
        replayed(path, pages[-1])
        return opened(pages[-1].url)

    yield show
    for page in pages:
        page.close()


def test_a_run_that_failed_says_with_what(shown):
    error = "step 'count': expected <b>, got nothing"
    page = shown([*small_run()[:-1], RunEnded(5.5, 4000, 2000, ended=False, error=error)])
    assert page.text("#state") == "failed"
    assert page.text("#notice") == f"The run failed: {error}"
    colours = "getComputedStyle(document.querySelector('#state')).color"
    assert page.page.evaluate(colours) == page.page.evaluate(colours.replace("state", "notice"))


def test_a_replay_shows_the_final_state_of_the_live_run(opened, tmp_path):
    path = tmp_path / "run.jsonl"
    kept = JournalFile(path)
    with serve(port=0) as live, serve(port=0, journal=path.name) as replay:

        def hear(event):
            live.hear(event)
            kept.hear(event)

        run = ab.start(paced_flow(), engine="local", policy="none", listener=hear)
        live.control(run)
        first = opened(live.url)
        run.reconfigure(run.plan.with_replicas("count", 3))
        run.await_termination(3.0)
        run.stop()
        kept.close()
        assert replayed(path, replay)
        first.until("document.querySelector('#state').dataset.state === 'stopped'")
        first.until("document.querySelector('#pause').hidden")
        second = opened(replay.url)
        for page in (first, second):
            page.page.click('[data-key="step:count"]')
            page.reads("#detail-title", "Operator count")
        assert {name: first.text(name) for name in SHOWN} == {n: second.text(n) for n in SHOWN}
        pictures = [
            page.page.eval_on_selector_all("#graph, .chart", "all => all.map(e => e.innerHTML)")
            for page in (first, second)
        ]
        assert pictures[0] == pictures[1]
        assert "replay of run.jsonl" in second.text("#about")
        assert second.page.is_hidden("#pause")
        assert second.page.is_hidden("#region-controls")


def test_details_tell_of_skew_hot_replicas_and_lost_rows(shown):
    page = shown(small_run())
    page.page.click('[data-key="step:count"]')
    page.reads("#detail-title", "Operator count")
    told = page.text("#detail")
    for line in ("Skew of replicas\n1.5 × even", "Skipped after errors\n3", "Late\n2", "#1\n90 %"):
        assert line in told


def test_the_bottleneck_is_marked_in_words(shown):
    page = shown(small_run())
    flags = page.page.eval_on_selector_all(".flag", "all => all.map(e => e.textContent)")
    assert [flag for flag in flags if flag] == ["▲ bottleneck"]
    label = page.page.get_attribute('[data-key="step:count"]', "aria-label")
    assert label.endswith("2 replicas, 90 % busy, bottleneck")
    # The colour says what the number says.
    assert page.page.locator(".g-region.bottleneck > .outline.busy-4").count() == 1


def test_lines_are_as_wide_as_their_traffic(shown):
    page = shown(small_run())
    width = "all => all.map(line => +line.getAttribute('stroke-width'))"
    widths = page.page.eval_on_selector_all(".g-line", width)
    assert widths[0] > widths[1] > 1


def test_a_plan_change_is_explained_where_it_is_marked(shown):
    page = shown(small_run())
    page.page.hover(".c-mark circle")
    assert "1 → 2 replicas of region count" in page.text("#tip")
    assert "stood still for 1.25 ms" in page.text("#tip")
    page.page.click(".c-mark circle")
    assert "1 → 2 replicas of region count" in page.text("#journal-entry")


def test_names_with_markup_are_shown_and_not_run(shown):
    page = shown(marked_run())
    assert page.text("#flow") == MARKUP
    page.page.click(f'[data-key="step:step {MARKUP}"]')
    page.reads("#detail-title", f"Operator step {MARKUP}")
    assert MARKUP in page.text("#journal")
    page.page.hover(".c-mark circle")
    assert MARKUP in page.text("#tip")
    assert page.page.locator("img[src=x]").count() == 0


def test_a_journal_that_is_cut_off_opens_with_what_is_there(opened, tmp_path):
    path = journal_of(small_run(), tmp_path / "cut.jsonl")
    path.write_text(path.read_text()[:-40])
    with serve(port=0, journal=path.name) as dashboard:
        assert not replayed(path, dashboard)
        page = opened(dashboard.url)
        assert page.text("#state") == "cut off"
        assert page.text("#rows-in") == "4k"


def seconds_to_find(page, number: int) -> float:
    page.page.fill("#filter", "")
    page.reads("#journal-count", "10,000")
    begin = time.perf_counter()
    page.page.fill("#filter", f"number {number}")
    page.reads("#journal-count", "1 of 10,000")
    return time.perf_counter() - begin


# From the moment the address was asked for until the frame with all of it was painted,
# by the browser's clock.
WHEN_DRAWN = """
const look = () => {
  const all = document.body?.dataset.drawn && document.querySelector(".c-rate");
  if (!all) requestAnimationFrame(look);
  else requestAnimationFrame(() => { window.drawnAt = performance.now(); });
};
look();
"""


def test_a_large_graph_and_a_long_journal_are_drawn_within_two_seconds(opened):
    with serve(port=0, journal="large.jsonl") as dashboard:
        for event in large_run():
            dashboard.hear(event)
        dashboard.settle()
        seconds = math.inf
        for _ in range(10):  # whoever shares the machine may disturb some of them
            if seconds < 2.0:
                break
            page = opened(dashboard.url, "", script=WHEN_DRAWN)
            page.until("window.drawnAt", within_ms=20_000)
            seconds = min(seconds, page.page.evaluate("window.drawnAt") / 1000)
        assert page.page.locator(".g-step").count() == 201
        assert page.text("#journal-count") == "10,000"
        assert page.page.locator(".entry").count() < 30  # those that can be seen
        filtering = math.inf
        for number in range(9_990, 10_000):
            if filtering < 1.0:
                break
            filtering = min(filtering, seconds_to_find(page, number))
        assert seconds < 2.0
        assert filtering < 1.0


def test_a_long_journal_is_read_to_its_end(shown):
    page = shown([*large_run(1, 2, 1200)])
    page.page.focus("#journal")
    page.page.keyboard.press("End")
    page.until("document.querySelector('#journal-entry').textContent.includes('number 0')")
    page.page.wait_for_selector("#chosen-entry")  # its row is drawn when the list has scrolled


def test_an_entry_that_the_filter_hides_is_no_place_to_go_on_from(shown):
    noted = [Decision(float(n), "auto", Kind.NOTED, f"number {n}") for n in range(30)]
    page = shown([*small_run(), *noted])
    page.page.focus("#journal")
    page.page.keyboard.press("End")
    page.page.fill("#filter", "number 1")
    page.until("document.querySelector('#journal-count').textContent.startsWith('11 of')")
    page.page.focus("#journal")
    page.page.keyboard.press("ArrowDown")
    newest = "document.querySelector('#journal-entry').textContent.includes('number 19')"
    page.until(newest)


def test_sources_and_sinks_are_called_so(shown):
    page = shown(small_run())
    for name, title in (
        ("words", "Source words"),
        ("count", "Operator count"),
        ("out", "Sink out"),
    ):
        page.page.click(f'[data-key="step:{name}"]')
        page.reads("#detail-title", title)


def test_charts_without_figures_have_no_scale(shown):
    page = shown(small_run()[:1])
    page.page.wait_for_selector("#rate-chart .axis", state="attached")
    assert page.page.locator('.chart text[text-anchor="end"]').count() == 0


LUMINANCE = """([name, ground]) => {
  const probe = document.body.appendChild(document.createElement("i"));
  const light = (colour) => {
    probe.style.color = `var(${colour})`;
    const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((n) => n / 255);
    const flat = parts.map((n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4));
    return 0.2126 * flat[0] + 0.7152 * flat[1] + 0.0722 * flat[2] + 0.05;
  };
  const [a, b] = [light(name), light(ground)];
  return Math.max(a, b) / Math.min(a, b);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_has_to_be_seen_stands_out(opened, scheme):
    with serve(port=0) as dashboard:
        page = opened(dashboard.url, drawn="#graph", color_scheme=scheme)
        for name, ground, least in [
            ("--stream", "--sunk", 3.0),
            ("--field", "--card", 3.0),
            ("--muted", "--card", 4.5),
            ("--bad", "--card", 4.5),
        ]:
            assert page.page.evaluate(LUMINANCE, [name, ground]) >= least
        border = "getComputedStyle(document.querySelector('#filter')).borderTopColor"
        page.page.evaluate("document.body.style.color = 'var(--field)'")
        assert page.page.evaluate(border) == page.page.evaluate(
            "getComputedStyle(document.body).color"
        )


def test_beyond_this_machine_a_page_needs_its_token(opened):
    with serve(port=0, address="0.0.0.0") as dashboard:
        dashboard.hear(small_start())
        dashboard.settle()
        place = urlsplit(dashboard.url)
        there = f"http://127.0.0.2:{place.port}/"
        refused = opened(there, drawn="")
        assert "needs its token" in refused.text("body")
        page = opened(f"{there}?{place.query}")
        page.until("document.querySelector('#state').dataset.state === 'running'")
        assert "token" not in page.page.url  # nor in the history of the browser


def test_the_keyboard_is_enough(shown):
    page = shown(small_run())
    keyboard = page.page.keyboard

    def tab_to(selector, most=20):
        for _ in range(most):
            if page.page.evaluate("s => document.activeElement.matches(s)", selector):
                return
            keyboard.press("Tab")
        pytest.fail(f"no way to {selector} by keyboard")

    keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.className") == "skip"
    tab_to("#theme")
    tab_to("#zoom-in")
    tab_to(".g-step")
    keyboard.press("ArrowRight")
    keyboard.press("Enter")
    page.reads("#detail-title", "Operator count")
    assert page.page.evaluate("document.activeElement.id") == "detail-title"
    keyboard.press("Escape")
    assert page.page.evaluate("document.activeElement.dataset.key") == "step:count"
    tab_to(".c-mark")
    assert "1 → 2 replicas" in page.text("#tip")
    keyboard.press("Escape")
    assert page.page.is_hidden("#tip")
    tab_to("#filter")
    keyboard.type("replicas")
    tab_to("#journal")
    keyboard.press("ArrowDown")
    assert "1 → 2 replicas" in page.text("#journal-entry")
    tab_to("summary")
    ring = page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"


def test_everything_that_can_be_used_has_a_name(shown):
    page = shown(small_run())
    page.page.click('[data-key="step:count"]')
    unnamed = page.page.eval_on_selector_all(
        "button, input, [role=button], [role=listbox], summary",
        """all => all.filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
                     .map(e => e.outerHTML)""",
    )
    assert unnamed == []
