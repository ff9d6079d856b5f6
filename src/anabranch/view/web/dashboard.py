"""The dashboard: a server of this process that shows a run while it runs, or a journal."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from http.server import ThreadingHTTPServer
from importlib import import_module
from types import TracebackType
from typing import Any
from urllib.parse import quote

from anabranch.engines.handle import Run
from anabranch.errors import EngineError, Subject
from anabranch.events import Event
from anabranch.view.addresses import url_of
from anabranch.view.web.access import Access
from anabranch.view.web.controls import Controls
from anabranch.view.web.feed import Feed
from anabranch.view.web.requests import Requests, Site

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
