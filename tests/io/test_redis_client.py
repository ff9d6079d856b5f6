"""How long a Redis server is waited for: not for ever, however it fails to answer."""

from __future__ import annotations

import pytest

from anabranch.errors import SourceError
from anabranch.io import redis_client
from anabranch.io.redis_client import StreamClient
from tests.io.redis_server import redis_server, stream

__all__ = ["redis_server", "stream"]

pytestmark = pytest.mark.xdist_group("redis")


class Clock:
    """Goes on when somebody waits, and with each attempt."""

    def __init__(self, attempt_s: float = 0.0) -> None:
        self.now, self.waits, self._attempt_s = 0.0, [], attempt_s

    def __call__(self) -> float:
        self.now += self._attempt_s
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


NOWHERE = "redis://ada:secret@127.0.0.1:1/0"


def test_a_server_that_stays_away_is_an_error_after_some_attempts():
    clock = Clock()
    client = StreamClient(NOWHERE, "s", (0.1, 0.2), clock.sleep, clock)
    with pytest.raises(SourceError) as raised:
        client.look()
    assert clock.waits == [0.1, 0.2]
    assert "3 attempts over 0.3 s" in raised.value.got
    assert "secret" not in str(raised.value)


def test_no_further_attempt_is_made_when_those_before_took_too_long():
    clock = Clock(attempt_s=2.0)
    client = StreamClient(NOWHERE, "s", (0.1, 0.2, 0.3, 0.4), clock.sleep, clock)
    with pytest.raises(SourceError, match=r"3 attempts over 6.3 s"):
        client.look()
    assert clock.waits == [0.1, 0.2]


def test_a_server_that_hangs_is_not_waited_for_without_end(redis_server, stream, monkeypatch):
    monkeypatch.setattr(redis_client, "ANSWER_S", 0.05)
    client = StreamClient(redis_server.url, stream, (0.0,))
    with redis_server.hanging(), pytest.raises(SourceError, match="TimeoutError after 2 attempts"):
        client.look()
