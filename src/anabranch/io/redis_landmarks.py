"""Landmarks of a Redis stream: which entry is row 1024, 2048 and so on.

Redis finds an entry by its id, not by its number. Whoever reads past a landmark notes it in a
sorted set beside the stream, so that a reader in another process gets to any row by reading at most
a thousand others. What is noted follows from the stream alone, whoever notes it and however often;
landmarks of entries that are no longer kept are removed, so there is one for every 1024 entries
kept. A server that lets us only read has none, and far rows are found by counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from anabranch.io.redis_client import Entry, StreamClient

SPACING = 1024

MOST_REFUSED = 16
"""Landmarks that proved wrong before a reader believes none: then they are of another stream."""


class Landmarks:
    """The landmarks of one stream.

    Args:
        client: How to get at the server.
    """

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._writes = True
        self._refused: set[bytes] = set()

    @property
    def key(self) -> str:
        """Where they are kept."""
        return f"{self._client.stream}:anabranch-rows"

    def before(self, row: int) -> tuple[int, bytes] | None:
        """The nearest one before a row that was not refused: number and id."""
        if len(self._refused) >= MOST_REFUSED:
            return None
        redis = self._client.connected()
        from redis.exceptions import RedisError

        found: list[tuple[bytes, float]] = []
        below, most = f"({row}", len(self._refused) + 1
        with suppress(RedisError):
            found = redis.zrevrangebyscore(self.key, below, "-inf", 0, most, withscores=True)
        believed = [(int(number), bytes(id)) for id, number in found if id not in self._refused]
        return believed[0] if believed else None

    def note(self, first: int, entries: Sequence[Entry], kept_from: int) -> None:
        """Note those among some consecutive entries; forget those that are not kept any more."""
        at = range(-(-first // SPACING) * SPACING, first + len(entries), SPACING)
        if not at or not self._writes:
            return
        redis = self._client.connected()
        from redis.exceptions import RedisError, ResponseError

        asked = redis.pipeline(transaction=False)
        asked.zadd(self.key, {entries[row - first][0]: row for row in at})
        asked.zremrangebyscore(self.key, "-inf", f"({kept_from}")
        try:
            asked.execute()
        except ResponseError:
            self._writes = False  # we may not write here
        except RedisError:
            pass  # landmarks save time, nothing depends on them; the next read will tell

    def refuse(self, id: bytes) -> None:
        """Believe one no more: the stream was deleted and written anew. Remove it if we may."""
        self._refused.add(id)
        redis = self._client.connected()
        from redis.exceptions import RedisError

        with suppress(RedisError):
            redis.zrem(self.key, id)
