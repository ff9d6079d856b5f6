"""Redis streams as a source: rows come when somebody adds them, and can be read again.

Each stream is a part. Row n is the n-th entry that was ever added to it. Redis counts them, so what
is trimmed at the old end shifts no number; deleting entries between others would, and is refused.
Landmarks lead to a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from anabranch.columns.schemas import SchemaLike
from anabranch.columns.schemas import schema as as_schema
from anabranch.errors import SourceError, Subject, nearest
from anabranch.io.redis_client import END, Entry, Fetched, StreamClient, StreamInfo, numbers_of
from anabranch.io.redis_rows import FIELD, FORMATS, BadEntry, Codec, codec_of
from anabranch.io.source import Chunk, Extent, Source

FETCH_ROWS = 2_000
"""Entries asked for at a time: the server answers nobody else meanwhile."""

CHUNK_BYTES = 1 << 26
"""A chunk ends early past this size."""

GLOB = frozenset("*?")
"""Characters of a pattern of keys."""

REMEMBERED = 16
EARLIEST_MS = 10**12
"""Ids before 2001 are not times of arrival, but numbers that somebody has chosen."""


def redis_stream(
    url: str,
    stream: str | Sequence[str],
    schema: SchemaLike,
    format: str = "fields",
    field: str = FIELD,
    first_row: int = 0,
) -> RedisStreamSource:
    """Read streams of a Redis server (7 or newer), each from its first entry on.

    A stream has no end until somebody adds one: an entry with a field `anabranch:end`. Keep
    entries that a run may have to read again: those behind its last checkpoint.

    One stream has one reader. Several are read side by side, and their rows are ordered as they are
    read; that order is recorded, so that a run which goes on from a checkpoint keeps it. The source
    ends when all its streams have ended.

    Args:
        url: Where the server is, like `redis://localhost:6379/0`.
        stream: The key of the stream, which need not exist yet; or several keys; or a pattern with
            `*` or `?`, for all streams whose keys match it. New ones are found while the run goes
            on.
        schema: The columns, as an Arrow schema or as text.
        format: `fields`: each column is a field of the entry, as text, and null where it is
            missing. `json`: one field holds a JSON object. An entry that does not fit is an error;
            to skip such entries or set them aside, read their field as a string and use
            `parse_json(…, on_error=…)`.
        field: For `json`, which field.
        first_row: The entry to begin with, counted from 0 by the server; for streams whose first
            entries are not kept any more. Several streams begin with the same one.

    Example:
        >>> lines = redis_stream("redis://localhost:6379/0", "lines", "line: string")
        >>> lines.schema.names, lines.bounded, lines.parts()
        (['line'], False, ('lines',))
        >>> both = redis_stream("redis://localhost:6379/0", ["web", "app"], "line: string")
        >>> both.parts(), both.interleaved
        (('web', 'app'), True)
    """
    return RedisStreamSource(url, stream, schema, format, field, first_row)


class RedisStreamSource(Source):
    """See `redis_stream`."""

    order = "entry of the stream"
    bounded = False

    def __init__(
        self,
        url: str,
        stream: str | Sequence[str],
        schema: SchemaLike,
        format: str,
        field: str,
        first_row: int,
    ) -> None:
        """Remember what to read; nobody connects before it is needed."""
        self._keys = (stream,) if isinstance(stream, str) else tuple(stream)
        self._pattern = stream if isinstance(stream, str) and GLOB.intersection(stream) else None
        self._client = StreamClient(url, ", ".join(self._keys))
        self._schema = as_schema(schema, Subject("source", "redis_stream"))
        self._first_row = first_row
        if not self._keys or len(set(self._keys)) < len(self._keys):
            raise self._client.error(
                "one stream or several different ones", str(list(self._keys)), "name each once"
            )
        if not self._schema.names:
            raise self._client.error("columns to read", "none", "pass schema='name: type, …'")
        if format not in FORMATS:
            raise self._client.error(
                f"format in {list(FORMATS)}", repr(format), nearest(format, FORMATS)
            )
        if first_row < 0:
            raise self._client.error("first_row of 0 or more", str(first_row), "pass another one")
        self._codec = codec_of(format, self._schema, field)
        self._streams: dict[str, _Stream] = {}

    def __repr__(self) -> str:
        """The description that errors use."""
        return repr(self._client)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what was remembered of the streams."""
        return {**self.__dict__, "_streams": {}}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def interleaved(self) -> bool:
        return self._pattern is not None or len(self._keys) > 1

    @property
    def one_reader(self) -> bool:
        return not self.interleaved  # a stream is read from one entry to the next

    def parts(self) -> tuple[str, ...]:
        if self._pattern is None:
            return self._keys
        return self._client.streams_like(self._pattern)

    def extent(self, part: str) -> Extent:
        return self._stream(part).extent()

    def read(self, part: str, start: int, rows: int) -> Chunk | None:
        return self._stream(part).read(start, rows)

    def _stream(self, part: str) -> _Stream:
        if part not in self._streams:
            client = self._client.beside(part)
            self._streams[part] = _Stream(client, self._codec, self._schema, self._first_row)
        return self._streams[part]


class _Stream:
    """Reads one stream.

    Args:
        client: How to get at the server.
        codec: Makes rows of entries.
        schema: The columns.
        first_row: The entry that is row 0.
    """

    def __init__(
        self, client: StreamClient, codec: Codec, schema: pa.Schema, first_row: int
    ) -> None:
        self._client, self._codec, self._schema = client, codec, schema
        self._first_row = first_row
        self._landmarks = Landmarks(client)
        self._before: dict[int, bytes] = {}  # by row, the id of the entry before it

    def extent(self) -> Extent:
        """How many rows have come; exactly so many behind the end of the stream."""
        standing = self._client.look()
        rows = max(0, standing.behind - self._first_row)
        if standing.ended:
            return Extent(max(0, rows - 1), exact=True)
        return Extent(rows, growing=True)

    def read(self, start: int, rows: int) -> Chunk | None:
        """At most `rows` rows from row `start` on, as far as they have come; None at the end."""
        batches: list[pa.RecordBatch] = []
        waited_ms: float | None = None
        at, stop = start + self._first_row, start + self._first_row + rows
        ended = dry = False
        while at < stop and not (ended or dry or sum(b.nbytes for b in batches) > CHUNK_BYTES):
            fetched = self._fetch(at, min(stop - at, FETCH_ROWS))
            entries = _before_end(fetched.entries)
            ended = len(entries) < len(fetched.entries)
            dry = at + len(fetched.entries) >= fetched.standing.behind
            if waited_ms is None:
                waited_ms = _waited_ms(fetched)
            if entries:
                batches.append(self._decoded(at, entries))
            at += len(entries)
        if not batches:
            return None if ended else Chunk(self._nothing(), dry=True, waited_ms=0.0)
        batch = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        return Chunk(batch, dry=dry and not ended, waited_ms=waited_ms)

    # Getting to a row

    def _locate(self, row: int) -> bytes | None:
        """The id of the entry before a row, behind which to ask for it; None at the first one."""
        while (before := self._before.get(row)) is None:
            standing = self._client.look()
            self._require(standing, row)
            if row == standing.first:
                return None
            if row == standing.behind:
                return standing.last
            self._walk(row, standing)
        return before

    def _walk(self, row: int, standing: StreamInfo) -> None:
        """Count entries from the nearest place that is known; it is remembered where that ends."""
        at, before = standing.first, None
        landmark = self._landmarks.before(row - 1)
        if landmark is not None and standing.first <= landmark[0]:
            at, before = landmark[0] + 1, landmark[1]
        while at < row:
            most = min(row - at, FETCH_ROWS)
            fetched = self._behind(before, at, most)
            if fetched is None and landmark is not None and before == landmark[1]:
                self._landmarks.refuse(landmark[1])  # of a stream that was there before this one
                return
            if fetched is not None and fetched.standing.first > at:
                return  # trimmed while we count: look again what there is
            at, before = self._passed(fetched, at, most)

    def _fetch(self, row: int, most: int) -> Fetched:
        """Entries from a row on, and exactly those."""
        fetched = self._behind(self._locate(row), row, most)
        if fetched is not None:
            self._require(fetched.standing, row)
            self._landmarks.note(row, fetched.entries, fetched.standing.first)
        self._passed(fetched, row, most)
        assert fetched is not None, "else it was not passed"
        return fetched

    def _behind(self, before: bytes | None, row: int, most: int) -> Fetched | None:
        """What comes behind the entry before a row; None if that entry is not there any more.

        The entry itself is asked for, too: where it is missing, and was not trimmed, the stream is
        another one than before.
        """
        if before is None:
            return self._client.fetch(b"-", most)
        fetched = self._client.fetch(before, most + 1)
        if fetched.entries and fetched.entries[0][0] == before:
            return replace(fetched, entries=fetched.entries[1:])
        trimmed = row - 1 < fetched.standing.first
        return replace(fetched, entries=fetched.entries[:most]) if trimmed else None

    def _passed(self, fetched: Fetched | None, row: int, most: int) -> tuple[int, bytes | None]:
        """The row behind some entries, and the id before it; refuses what cannot be."""
        there = 0 if fetched is None else min(most, fetched.standing.behind - row)
        if fetched is None or len(fetched.entries) != there:
            raise self._written_anew(
                f"the entries behind row {row - 1 - self._first_row}, as when it was read",
                "other entries",
            )
        if not fetched.entries:
            return row, None
        row, before = row + there, fetched.entries[-1][0]
        self._remember(row, before)
        return row, before

    def _remember(self, row: int, before: bytes) -> None:
        self._before.pop(row, None)
        self._before[row] = before
        for oldest in list(self._before)[:-REMEMBERED]:
            self._before.pop(oldest, None)

    def _require(self, standing: StreamInfo, row: int) -> None:
        """Refuse a row that is not kept, or that the stream never had."""
        if standing.torn:
            raise self._client.error(
                "entries that are removed at the old end only",
                "a stream with entries deleted between others",
                "trim it behind them (XTRIM), or write the stream anew under another key",
            )
        if row < standing.first:
            raise self._client.error(
                f"row {row - self._first_row}",
                f"a stream that was trimmed: row {standing.first - self._first_row} is the first "
                "one kept",
                f"keep more entries (MAXLEN); to go without the lost ones start afresh, in a new "
                f"checkpoint directory, with first_row={standing.first}",
            )
        if row > standing.behind:
            raise self._written_anew(
                f"at least {row - self._first_row} rows, which were read before",
                f"{standing.behind - self._first_row}",
            )

    def _written_anew(self, expected: str, got: str) -> SourceError:
        return self._client.error(
            expected,
            f"{got}: the stream was deleted and written anew",
            "start afresh in a new checkpoint directory",
        )

    # Rows

    def _decoded(self, row: int, entries: list[Entry]) -> pa.RecordBatch:
        try:
            return self._codec.decode(entries)
        except BadEntry as error:
            id = entries[error.number][0].decode()
            raise self._client.error(
                error.expected,
                f"{error.got} in row {row + error.number - self._first_row} (entry {id})",
                "mend who writes; to skip such entries or set them aside, read the field as a "
                "string and use parse_json(…, on_error='skip' or 'side')",
            ) from error

    def _nothing(self) -> pa.RecordBatch:
        arrays = [pa.array([], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _before_end(entries: Any) -> list[Entry]:
    end = next((n for n, (_, fields) in enumerate(entries) if END in fields), len(entries))
    return list(entries[:end])


def _first_id(fetched: Fetched) -> bytes | None:
    return fetched.entries[0][0] if fetched.entries else None


def _waited_ms(fetched: Fetched) -> float | None:
    """How long the first entry was there, by the server's clock."""
    first = _first_id(fetched)
    if first is None:
        return None
    came_ms, _ = numbers_of(first)
    return max(0.0, fetched.now_ms - came_ms) if came_ms >= EARLIEST_MS else None


# Landmarks of a Redis stream: which entry is row 1024, 2048 and so on.
#
# Redis finds an entry by its id, not by its number. Whoever reads past a landmark notes it in a
# sorted set beside the stream, so that a reader in another process gets to any row by reading at
# most a thousand others. What is noted follows from the stream alone, whoever notes it and however
# often; landmarks of entries that are no longer kept are removed, so there is one for every 1024
# entries kept. A server that lets us only read has none, and far rows are found by counting.

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
