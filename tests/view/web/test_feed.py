"""From the engine's thread to the browsers."""

from __future__ import annotations

import json
import threading
import time

import pytest

from anabranch.events import Decision, Kind, RunEnded
from anabranch.view.web import feed as feeds
from anabranch.view.web.feed import MOST_BEHIND, REMEMBERED, Feed, Told
from tests.view.web.made import observed, small_start


@pytest.fixture
def feed():
    made = Feed()
    made.start()
    yield made
    made.close()


def content(told):
    (line,) = [each for each in told.frame().splitlines() if each.startswith(b"data: ")]
    return json.loads(line.removeprefix(b"data: "))


def test_a_browser_is_told_what_came_since_its_history(feed):
    feed.hear(small_start())
    assert feed.settle(30)
    history = feed.history()
    feed.hear(observed(1.0))
    assert feed.settle(30)
    with feed.listening(history["id"]) as browser:
        feed.hear(observed(2.0))
        news = [content(browser.next(30.0)) for _ in range(2)]
    assert [each["point"][0] for each in news] == [1.0, 2.0]


@pytest.mark.parametrize("since", ["", "other-1", "nonsense"])
def test_a_browser_of_another_server_is_told_the_history(feed, since):
    feed.hear(small_start())
    feed.hear(observed(1.0))
    assert feed.settle(30)
    with feed.listening(since) as browser:
        told = content(browser.next(30.0))
    assert (told["kind"], len(told["points"])) == ("history", 1)


def test_news_that_cannot_be_made_says_so_and_is_made_once():
    asked = []

    def broken():
        asked.append(1)
        return {"rate": float("nan")}  # which JSON does not know

    told = Told(1, "boot-1", broken)
    assert "cannot be shown" in content(told)["trouble"]
    assert told.frame().startswith(b"id: boot-1\n")
    assert len(asked) == 1


def test_a_browser_that_was_away_too_long_is_told_the_history(feed):
    feed.hear(small_start())
    assert feed.settle(30)
    long_ago = feed.history()["id"]
    for second in range(REMEMBERED + 1):
        feed.hear(observed(second + 1.0))
    assert feed.settle(30)
    with feed.listening(long_ago) as browser:
        assert content(browser.next(30.0))["kind"] == "history"


def test_a_browser_that_does_not_listen_is_given_up_and_holds_nobody_up(feed):
    feed.hear(small_start())
    with feed.listening("") as slow, feed.listening("") as other:
        taken, begin = 0, time.perf_counter()
        for second in range(MOST_BEHIND + 10):
            feed.hear(observed(second + 1.0))
            assert feed.settle(30)
            while other.next(0.0 if taken else 1.0) is not None:
                taken += 1
        # No wait for the slow one, not even a short one: a tenth of a second each were longer.
        assert time.perf_counter() - begin < 0.1 * MOST_BEHIND
        assert slow.lost
        assert not other.lost
        assert feed.settle(30)


def test_what_was_heard_before_the_end_is_told_before_browsers_are_let_go(monkeypatch):
    monkeypatch.setattr(feeds, "FAREWELL_S", 30.0)
    feed, kinds, listens = Feed(), [], threading.Event()

    def follow():
        with feed.listening("") as browser:
            listens.set()
            while not browser.over:
                told = browser.next(30.0)
                kinds.extend([] if told is None else [content(told)["kind"]])

    feed.start()
    thread = threading.Thread(target=follow)
    thread.start()
    assert listens.wait(30)
    for event in (small_start(), observed(1.0), RunEnded(1.1, 1000, 500, ended=True)):
        feed.hear(event)
    feed.close()
    assert kinds[-2:] == ["observed", "ended"]
    assert feed.browsers == 0
    thread.join(30)
    with feed.listening("") as late:  # it comes when all is over
        assert content(late.next(30.0))["ended"]["whole"]
        assert (late.next(30.0), late.over) == (None, True)


def test_a_browser_that_takes_nothing_in_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(feeds, "FAREWELL_S", 0.05)
    feed = Feed()
    feed.start()
    with feed.listening(""):
        feed.close()
        assert feed.browsers == 1  # nobody waited until it was let go, which would be for ever


def test_no_more_browsers_than_there_may_be(feed, monkeypatch):
    monkeypatch.setattr(feeds, "MOST_BROWSERS", 1)
    with feed.listening("") as first:
        assert first is not None
        with feed.listening("") as second:
            assert second is None
        assert feed.browsers == 1
    assert feed.browsers == 0


def test_news_is_made_once_for_all_and_not_at_all_for_nobody():
    calls = []
    told = Told(1, "boot-1", lambda: calls.append(1) or {"kind": "ended"})
    assert calls == []
    assert told.frame() is told.frame()
    assert told.frame().startswith(b"id: boot-1\ndata: {")
    assert calls == [1]


def test_hearing_is_quick_while_nothing_is_taken_in():
    """The engine's thread must not wait: here nobody takes anything in."""
    feed = Feed()
    event = observed(1.0)
    seconds = []
    for _ in range(12):  # whoever shares the machine may disturb some of them
        begin = time.perf_counter()
        for _ in range(feeds.MOST_WAITING // 10):
            feed.hear(event)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) / (feeds.MOST_WAITING // 10) < 50e-6
    assert feed._heard.qsize() == feeds.MOST_WAITING  # observations beyond are left out
    feed.hear(Decision(1.0, "auto", Kind.NOTED, "not left out"))
    assert feed._heard.qsize() == feeds.MOST_WAITING + 1


def test_an_event_that_cannot_be_shown_hides_no_other(feed):
    feed.hear(type(small_start())("broken", "local", "no plan", -1))
    feed.hear(small_start())
    assert feed.settle(30)
    assert feed.history()["started"]["flow"] == "small"
    assert (feed.failed, "JSON with flow" in str(feed.error)) == (1, True)


def test_what_else_a_page_knows_is_told_when_it_changes():
    now = {"controls": False}
    feed = Feed(about=lambda: dict(now))
    feed.start()
    assert feed.history()["controls"] is False
    with feed.listening(feed.history()["id"]) as browser:
        feed.look_again()
        now["controls"] = True
        feed.look_again()
        assert content(browser.next(30.0)) == {"kind": "about", "controls": True}
        now["controls"] = False
        feed.hear(observed(1.0))  # every event is a reason to look
        assert [content(browser.next(30.0))["kind"] for _ in range(2)] == ["observed", "about"]
    with feed.listening("another") as browser:
        assert content(browser.next(30.0))["controls"] is False
    feed.close()


def test_others_hear_every_event():
    heard = []
    feed = Feed([heard.append])
    feed.start()
    feed.hear(small_start())
    assert feed.settle(30)
    feed.close()
    assert heard == [small_start()]
