"""The dashboard: a server of this process that shows a run while it runs, or a journal.

It answers with the page, its history and its stream of news, and takes changes by hand.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.resources import files
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, urlsplit

from anabranch.engines.handle import Run
from anabranch.errors import AnabranchError, EngineError, PlanError, Subject
from anabranch.events import Event
from anabranch.view.addresses import url_of
from anabranch.view.web.access import Access
from anabranch.view.web.controls import Controls
from anabranch.view.web.feed import Browser, Feed
from anabranch.view.web.numbers import to_json

DEFAULT_PORT = 8642
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_CONNECTIONS = 64
"""A browser takes up to six."""


class Dashboard:
    """A page about one run; `serve` starts one.

    Attributes:
        url: Where it is, with the token where one is needed.
    """

    def __init__(self, server: _Server, site: Site, address: str) -> None:
        """Hold a server that listens."""
        self._server, self._site = server, site
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.1,), name="dashboard-server", daemon=True
        )
        token = site.access.token
        asked = "" if token is None else f"?token={quote(token, safe='')}"
        self.url = f"{url_of(address, server.server_address[1])}/{asked}"

    def start(self) -> None:
        """Begin to answer."""
        self._site.feed.start()
        self._thread.start()

    def hear(self, event: Event) -> None:
        """Take an event of the run; this is a listener for `start`, and takes next to no time."""
        self._site.feed.hear(event)

    def control(self, run: Run) -> None:
        """Let the page control a run, once there is a handle of it."""
        self._site.controls.run = run
        self._site.feed.look_again()  # pages that were opened before the run began

    def settle(self) -> None:
        """Wait until all that was heard can be seen."""
        self._site.feed.settle()

    @property
    def failed(self) -> int:
        """How many events could not be shown."""
        return self._site.feed.failed

    @property
    def error(self) -> Exception | None:
        """Why the first event that could not be shown could not; None if all could."""
        return self._site.feed.error

    @property
    def browsers(self) -> int:
        """How many follow the run at the moment."""
        return self._site.feed.browsers

    def close(self) -> None:
        """Tell browsers what is left, and answer no more."""
        self._site.feed.close()
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()

    def __enter__(self) -> Dashboard:
        """Itself, for `with`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def serve(
    run: Run | None = None,
    port: int = DEFAULT_PORT,
    address: str = "127.0.0.1",
    token: str | None = None,
    *,
    journal: str = "",
    controls: bool = True,
) -> Dashboard:
    """Start a dashboard; give its `hear` to `start` as listener, and its `control` the handle.

    Args:
        run: The run to control, if it has begun.
        port: Where to listen; 0 for any that is free.
        address: Where from it can be reached; beyond this machine only with a token.
        token: What a browser has to show; made up where one is needed and none is given.
        journal: For a run that is over: the name of what is shown.
        controls: Whether whoever sees the page may change the run with it.

    Example:
        ```python
        with serve(port=0) as dashboard:
            run = ab.start(flow, listener=dashboard.hear)
            dashboard.control(run)
            print(dashboard.url)
            run.await_termination()
        ```
    """
    hear, text = _metrics()
    doing = Controls(run, controls)
    feed = Feed([hear] if hear else [], lambda: {"journal": journal, **doing.state()})
    server = _listening(address, port)
    try:
        access = Access(address, token, server.server_address[1])
    except EngineError:
        server.server_close()
        raise
    site = Site(feed, doing, access, text)
    server.RequestHandlerClass = type("SiteRequests", (Requests,), {"site": site})
    dashboard = Dashboard(server, site, address)
    dashboard.start()
    return dashboard


def _listening(address: str, port: int) -> _Server:
    try:
        return _Server((address, port), Requests)
    except (OSError, OverflowError) as error:
        raise EngineError(
            Subject("address", f"{address}:{port}"),
            "an address of this machine and a port that is free",
            f"{address}:{port} ({getattr(error, 'strerror', None) or error})",
            "give another port, or 0 for any",
        ) from error


class _Server(ThreadingHTTPServer):
    """A thread per connection, and no more connections than browsers need."""

    daemon_threads = True
    allow_reuse_address = True
    closed = False

    def __init__(self, place: tuple[str, int], handler: type[Requests]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        super().__init__(place, handler)

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            with self._changing:
                self._open.add(request)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._open.discard(request)
            super().shutdown_request(request)

    def server_close(self) -> None:
        """Let nobody in, and take no more from those who are: browsers keep connections open."""
        super().server_close()
        self.closed = True
        with self._changing:
            for request in self._open:
                with suppress(OSError):  # the browser has closed it
                    request.shutdown(socket.SHUT_RD)  # what is being said is said to its end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no news; anything else is one line of it."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"dashboard: a request failed: {error!r:.200}", file=sys.stderr)


def _metrics() -> tuple[Any, Any]:
    """A listener that counts, and what makes the text of its counts; None without the package."""
    try:
        module = import_module("anabranch.view.metrics")
    except ImportError:
        return None, None
    metrics = module.Metrics()
    return metrics.hear, lambda: (metrics.text(), METRICS_TYPE)


# What the server answers: the page, its history and its stream, and changes by hand.

MOST_BODY = 65_536
MOST_DIGITS = 6
"""Of a length; Python refuses to read thousands of them as a number."""
PATIENCE_S = 20.0
"""How long a browser may take to send a request, or to take in what it is sent."""
HEARTBEAT_S = 10.0
"""A connection that nobody is at any more shows when something is sent."""
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
POLICY = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
THEN = "/api/plans/"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Site:
    """What requests are answered from.

    Attributes:
        feed: The run.
        controls: What may be done with it.
        access: Who may.
        metrics: What makes the text of `/metrics` and its type; None where nothing does.
    """

    feed: Feed
    controls: Controls
    access: Access
    metrics: Callable[[], tuple[bytes, str]] | None = None


@cache
def assets() -> Mapping[str, tuple[bytes, str]]:
    """The files of the page by name, and their types; nothing else can be asked for."""
    folder = files(__package__) / "static"
    found = (each for each in folder.iterdir() if each.name.partition(".")[2] in TYPES)
    return {each.name: (each.read_bytes(), TYPES[each.name.partition(".")[2]]) for each in found}


class Requests(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    site: ClassVar[Site]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "anabranch", ""
    timeout = PATIENCE_S

    def parse_request(self) -> bool:
        """Read the head of a request; an address that is none is refused here, once for all."""
        if getattr(self.server, "closed", False):  # it came on a connection that was kept
            self.close_connection = True
            return False
        if not super().parse_request():
            return False
        try:
            urlsplit(self.path)
        except ValueError:
            self.close_connection = True
            self._json(400, {"error": "the address of the request is none"})
            return False
        return True

    def do_GET(self) -> None:
        """Show something."""
        if not self._may():
            return
        path = urlsplit(self.path).path
        if path.startswith("/static/"):
            self._asset(path.removeprefix("/static/"))
            return
        if path.startswith(THEN):
            self._then(path.removeprefix(THEN))
            return
        answers: Mapping[str, Callable[[], None]] = {
            "/": lambda: self._asset("index.html"),
            "/api/history": self._history,
            "/api/stream": self._stream,
            "/metrics": self._metrics,
        }
        answers.get(path, self._unknown)()

    def do_POST(self) -> None:
        """Change something."""
        body = self._body()
        if body is None or not self._may():
            return
        refused = self.site.access.change_refusal(self.headers)
        if refused is not None:
            self._json(refused.status, {"error": refused.why})
            return
        if not self.site.controls.allowed:
            self._json(403, {"error": "this page shows a run and changes nothing"})
            return
        answers = {"/api/plan": self._plan, "/api/adaptation": self._adaptation}
        answer = answers.get(urlsplit(self.path).path)
        if answer is None:
            self._unknown()
            return
        try:
            wish = json.loads(body)
            if not isinstance(wish, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):  # brackets may be nested deeper than anyone reads
            self._json(400, {"error": "the request is no JSON object"})
            return
        self._try(answer, wish)

    def _try(self, answer: Callable[[dict[str, Any]], Any], wish: dict[str, Any]) -> None:
        try:
            self._json(200, answer(wish))
        except PlanError as error:
            self._json(422, {"error": str(error)})
        except AnabranchError as error:
            self._json(409, {"error": str(error)})

    def _plan(self, wish: dict[str, Any]) -> dict[str, Any]:
        return self.site.controls.change(wish)

    def _adaptation(self, wish: dict[str, Any]) -> dict[str, bool | None]:
        return self.site.controls.pause(wish.get("paused"))

    def _may(self) -> bool:
        """Whether the request may go on; answers it if not."""
        refused = self.site.access.refusal(self.headers, self.path)
        if refused is None:
            return True
        self.close_connection = True
        extra = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
        self._send(refused.status, (refused.why + "\n").encode(), TEXT, extra)
        return False

    def _body(self) -> bytes | None:
        """What was sent; None, and an answer, if it is too much or not said how much."""
        length = self.headers.get("Content-Length", "")
        readable = length.isascii() and length.isdigit() and len(length) <= MOST_DIGITS
        if not readable or int(length) > MOST_BODY:
            self.close_connection = True
            self._json(413, {"error": f"a request has at most {MOST_BODY} bytes, and says so"})
            return None
        return self.rfile.read(int(length))

    def _asset(self, name: str) -> None:
        if name not in assets():
            self._unknown()
            return
        cookie = self.site.access.cookie(self.path)
        self._send(200, *assets()[name], {} if cookie is None else {"Set-Cookie": cookie})

    def _history(self) -> None:
        self._json(200, self.site.feed.history())

    def _then(self, number: str) -> None:
        """How the graph stood under an earlier plan."""
        readable = number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
        found = self.site.feed.then(int(number)) if readable else None
        if found is None:
            self._json(404, {"error": f"plan {number[:MOST_DIGITS]} is not known any more"})
        else:
            self._json(200, found)

    def _metrics(self) -> None:
        if self.site.metrics is None:
            self._unknown()
        else:
            self._send(200, *self.site.metrics())

    def _unknown(self) -> None:
        self._json(404, {"error": "there is no such page"})

    def _stream(self) -> None:
        """Server-sent events until one side has enough."""
        asked = parse_qs(urlsplit(self.path).query).get("since", [""])[0]
        since = self.headers.get("Last-Event-ID") or asked
        with self.site.feed.listening(since) as browser:
            if browser is None:
                self._json(503, {"error": "too many browsers look at this run"})
                return
            self.close_connection = True
            self._head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
            with suppress(OSError):  # it went away, or took too long
                self._tell(browser)

    def _tell(self, browser: Browser) -> None:
        self.wfile.write(b"retry: 1000\n\n")
        while not browser.lost:
            told = browser.next(HEARTBEAT_S)
            if browser.over:
                return
            self.wfile.write(b": still here\n\n" if told is None else told.frame())

    def _json(self, status: int, content: Any) -> None:
        self._send(status, to_json(content), JSON)

    def _send(
        self, status: int, body: bytes, kind: str, extra: Mapping[str, str] | None = None
    ) -> None:
        length = {"Content-Type": kind, "Content-Length": str(len(body))}
        self._head(status, {**length, **(extra or {})})
        self.wfile.write(body)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        if self.close_connection and "Connection" not in headers:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the run's."""
