"""From the engine's thread to the browsers, by way of a thread that takes in and tells.

`hear` puts an event into a queue and is done, whatever the browsers do. News is made at most once
for all of them, and not at all when there are none. A browser that does not keep up loses its
connection, and asks for the history when it comes back. At the end all of them are told what is
left before they are let go: the last thing that a page shows is how the run ended.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, Full, Queue, SimpleQueue
from typing import Any

from anabranch.events import Event, Observed
from anabranch.view.web.numbers import to_json
from anabranch.view.web.timeline import News, Timeline

MOST_WAITING = 10_000
"""Events that wait to be taken in; observations beyond that are left out."""
MOST_BEHIND = 256
"""News that a browser may be behind."""
MOST_BROWSERS = 16
REMEMBERED = 128
"""News that a browser which comes back is told again."""
FAREWELL_S = 2.0
"""How long the end waits for browsers to take in the last news."""


class Told:
    """A piece of news with its number; made when the first one asks."""

    def __init__(self, number: int, name: str, news: News) -> None:
        """Know how to make it."""
        self.number, self._name, self._news = number, name, news
        self._lock = threading.Lock()
        self._frame: bytes | None = None

    def frame(self) -> bytes:
        """As a server-sent event."""
        with self._lock:
            if self._frame is None:
                self._frame = b"id: %b\ndata: %b\n\n" % (self._name.encode(), self._content())
            return self._frame

    def _content(self) -> bytes:
        """As JSON. What cannot be told is said: a browser would come back for it for ever."""
        try:
            return to_json(self._news())
        except Exception as error:
            return to_json({"kind": "lost", "trouble": f"Some news cannot be shown: {error!r}"})


class Browser:
    """One that listens: news waits here until it is sent."""

    def __init__(self) -> None:
        """Nothing waits yet."""
        self._waiting: Queue[Told | None] = Queue(MOST_BEHIND)
        self.lost = self.over = False

    def offer(self, told: Told | None) -> None:
        """Put news behind the others, None for the end; too much and the browser is given up."""
        try:
            self._waiting.put_nowait(told)
        except Full:
            self.lost = True

    def next(self, timeout_s: float) -> Told | None:
        """The next piece of news; None if there was none for so long, or `over` is true now."""
        try:
            told = self._waiting.get(timeout=timeout_s)
        except Empty:
            return None
        self.over = told is None
        return told


class Feed:
    """Hears a run and tells it to browsers.

    Args:
        also: Others who hear every event, in the feed's thread.
        about: What else the page is told, with the history and whenever it has changed.

    Attributes:
        failed: Events that could not be shown.
        error: Why the first of them could not.
    """

    def __init__(
        self,
        also: Sequence[Callable[[Event], None]] = (),
        about: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._also, self._about = also, about
        self._known: Mapping[str, Any] = {}
        self._heard: SimpleQueue[Event | threading.Event | None] = SimpleQueue()
        self._story, self._number = Timeline(), 0
        self._recent: deque[Told] = deque(maxlen=REMEMBERED)
        self._browsers: set[Browser] = set()
        self._lock = threading.Lock()
        self._left = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._take_all, name="dashboard", daemon=True)
        self._boot = secrets.token_hex(4)  # a browser may come back to another server
        self._closed = False
        self.error: Exception | None = None
        self.failed = 0

    def start(self) -> None:
        """Begin to take in what is heard."""
        self._known = self._about()
        self._thread.start()

    def hear(self, event: Event) -> None:
        """Take an event, from any thread, in next to no time."""
        if self._heard.qsize() < MOST_WAITING or not isinstance(event, Observed):
            self._heard.put(event)

    def look_again(self) -> None:
        """Tell browsers if what else they are told has changed."""
        self._heard.put(threading.Event())

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was heard is taken in; whether it came to that."""
        taken = threading.Event()
        self._heard.put(taken)
        return taken.wait(timeout_s)

    def close(self) -> None:
        """No more: what was heard is told, and browsers that have taken it in are let go."""
        self._heard.put(None)
        if self._thread.ident is not None:
            self._thread.join(5.0)
        with self._left:
            self._closed = True
            for browser in self._browsers:
                browser.offer(None)
            self._left.wait_for(lambda: not self._browsers, FAREWELL_S)

    def history(self) -> dict[str, Any]:
        """Everything so far, and the number of the last piece of news in it."""
        with self._lock:
            told = self._name(self._number)
            news = self._history()
        return news() | {"id": told}

    def then(self, number: int) -> dict[str, Any] | None:
        """How the graph stood under the plan of a number; None if that is not known."""
        with self._lock:
            told = self._story.then(number)
        return None if told is None else told()

    @property
    def browsers(self) -> int:
        """How many listen."""
        with self._lock:
            return len(self._browsers)

    @contextmanager
    def listening(self, since: str) -> Iterator[Browser | None]:
        """One more browser, told what came after the news of that name; None if there are too many.

        If that is too long ago, or of another server, it is told the history.
        """
        browser = Browser()
        with self._lock:
            full = len(self._browsers) >= MOST_BROWSERS
            if not full:
                for told in self._since(since):
                    browser.offer(told)
                if self._closed:
                    browser.offer(None)
                self._browsers.add(browser)
        try:
            yield None if full else browser
        finally:
            with self._left:
                self._browsers.discard(browser)
                self._left.notify_all()

    def _name(self, number: int) -> str:
        return f"{self._boot}-{number}"

    def _since(self, name: str) -> list[Told]:
        oldest = self._number - len(self._recent)
        for number in range(self._number, oldest - 1, -1):
            if self._name(number) == name:
                return [told for told in self._recent if told.number > number]
        return [Told(self._number, self._name(self._number), self._history())]

    def _history(self) -> News:
        news = self._story.history()
        return lambda: {**news(), **self._about()}

    def _take_all(self) -> None:
        while (heard := self._heard.get()) is not None:
            try:
                if not isinstance(heard, threading.Event):
                    self._take(heard)
                self._look()
            except Exception as error:  # one event that cannot be shown hides no other
                self.failed += 1
                self.error = self.error or error
            if isinstance(heard, threading.Event):
                heard.set()

    def _take(self, event: Event) -> None:
        with self._lock:
            self._tell(self._story.take(event))
        for hear in self._also:
            hear(event)

    def _look(self) -> None:
        now = self._about()
        if now == self._known:
            return
        self._known = now
        with self._lock:
            self._tell(lambda: {"kind": "about", **now})

    def _tell(self, news: News) -> None:
        self._number += 1
        told = Told(self._number, self._name(self._number), news)
        self._recent.append(told)
        for browser in self._browsers:
            browser.offer(told)
