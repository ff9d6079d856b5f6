"""A real Redis server of a test's own: on a free loopback port, in a folder that goes with it.

Where `redis-server` is not installed its tests are skipped by name, unless ANABRANCH_REQUIRE_REDIS
is set: then they fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BEGIN_S = 60.0
MISSING = "redis-server is not installed (apt-get install redis-server)"


class RedisServer:
    """One server; `stop` and `start` are a crash and a recovery that keeps all entries."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> Any:
        from redis import Redis

        return Redis.from_url(self.url)

    def start(self) -> None:
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self._folder, "save": "''"}
        # Every entry is on disk before the server says so: a killed server has lost nothing.
        options |= {"appendonly": "yes", "appendfsync": "always"}
        command = [self._program, *(str(w) for k, v in options.items() for w in (f"--{k}", v))]
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + BEGIN_S
        while not self._answers():
            assert time.monotonic() < until, (self._folder / "log.txt").read_text()
            assert self._process.poll() is None, (self._folder / "log.txt").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It takes connections and answers nobody while the block runs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        from redis.exceptions import ConnectionError

        try:
            return bool(self.client.ping())
        except ConnectionError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for the tests of a module."""
    program = shutil.which("redis-server")
    if program is None:
        if os.environ.get("ANABRANCH_REQUIRE_REDIS"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    server = RedisServer(program, tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def stream(redis_server: RedisServer, request: pytest.FixtureRequest) -> str:
    """The key of a stream that nobody else uses."""
    return str(request.node.name)
