"""One stream of a Redis server: looked at, read and written, with bounded patience.

Whatever has to fit together is asked for in one transaction: the rows, how many there are, which
of them are still kept, and what time it is on the server. So nobody has to trust two clocks, and
rows that are trimmed meanwhile cannot be mistaken for others.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from anabranch.errors import SourceError, Subject

END = b"anabranch:end"
"""An entry with a field of this name ends the stream; what comes behind it is not read."""

PATIENCE_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""How long to wait before each further attempt when the server cannot be reached."""

ANSWER_S = 2.0
"""How long a server may take to answer; `?socket_timeout=` in the URL says otherwise."""

GIVE_UP_S = 6.0
"""Nobody tries again after so long: a server that hangs must not keep a run from its stop."""

SCAN_KEYS = 1_000
"""Keys that the server looks at in one go when it searches for streams."""

Fields = Mapping[bytes, bytes]
Entry = tuple[bytes, Fields]
"""The id of an entry, and its fields."""

T = TypeVar("T")


@dataclass(frozen=True)
class StreamInfo:
    """What a server says of a stream.

    Attributes:
        first: The number of the oldest entry that is kept; entries are counted from 0 on.
        behind: The number that the next entry will have.
        last: The id of the newest entry; None if none is kept.
        ended: Whether the newest entry is the end.
        torn: Whether entries between others were deleted: then numbers mean nothing.
    """

    first: int = 0
    behind: int = 0
    last: bytes | None = None
    ended: bool = False
    torn: bool = False

    @staticmethod
    def of(told: Mapping[str, Any]) -> StreamInfo:
        """From what XINFO STREAM tells.

        Example:
            >>> told = {"length": 2, "entries-added": 5, "max-deleted-entry-id": b"0-0"}
            >>> told |= {"first-entry": (b"7-0", {}), "last-entry": (b"8-0", {END: b""})}
            >>> StreamInfo.of(told)
            StreamInfo(first=3, behind=5, last=b'8-0', ended=True, torn=False)
        """
        behind, length = int(told["entries-added"]), int(told["length"])
        oldest, newest = told["first-entry"], told["last-entry"]
        if not length:
            return StreamInfo(behind, behind)
        torn = numbers_of(told["max-deleted-entry-id"]) >= numbers_of(oldest[0])
        return StreamInfo(behind - length, behind, newest[0], END in newest[1], torn)


@dataclass(frozen=True)
class Fetched:
    """Entries, how the stream stood when they were read, and the server's time then."""

    entries: Sequence[Entry]
    standing: StreamInfo
    now_ms: float


class StreamClient:
    """Talks to the server; connects when it is first needed.

    Args:
        url: Where the server is.
        stream: The key of the stream.
        patience_s: How long to wait before each further attempt.
        sleep: How to wait.
        clock: Seconds.
    """

    def __init__(
        self,
        url: str,
        stream: str,
        patience_s: Sequence[float] = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._stream, self._server = url, stream, _Server(url)
        self._patience_s, self._sleep, self._clock = tuple(patience_s), sleep, clock

    def __repr__(self) -> str:
        """Stream and server; whoever reads an error has no need for a password."""
        return f"redis_stream {self._stream!r} at {place_of(self._url)}"

    def beside(self, stream: str) -> StreamClient:
        """Return a client of another stream of the server, which uses the same connections."""
        other = copy.copy(self)
        other._stream = stream
        return other

    @property
    def stream(self) -> str:
        """The key of the stream."""
        return self._stream

    def look(self) -> StreamInfo:
        """How the stream stands now."""
        return self._patiently(self._look)

    def fetch(self, since: bytes, most: int) -> Fetched:
        """The next entries, where `since` is `-`, an id, or `(` and the id before them."""

        def ask(redis: Any) -> Fetched:
            asked = redis.pipeline(transaction=True)
            asked.xinfo_stream(self._stream)
            asked.xrange(self._stream, since, "+", most)
            asked.time()
            told, entries, (seconds, micros) = asked.execute(raise_on_error=False)
            standing = self._standing(told)
            if isinstance(entries, Exception):
                raise entries
            return Fetched(entries, standing, seconds * 1000 + micros / 1000)

        return self._patiently(ask)

    def streams_like(self, pattern: str) -> tuple[str, ...]:
        """The keys of all streams that match a pattern, sorted."""

        def ask(redis: Any) -> tuple[str, ...]:
            found = redis.scan_iter(match=pattern, count=SCAN_KEYS, _type="stream")
            return tuple(sorted({self._text_of(key) for key in found}))

        return self._patiently(ask)

    def append(self, entries: Sequence[Mapping[str, bytes | str]], keep: int | None = None) -> int:
        """Add entries in one go; gives how many the stream has had with them.

        Not tried again when the connection breaks: nobody could say how many have got through.

        Args:
            entries: Fields of each.
            keep: About how many entries to keep at most; all when left out.
        """
        redis = self.connected()
        from redis import exceptions as wrong

        asked = redis.pipeline(transaction=False)
        for fields in entries:
            asked.xadd(self._stream, fields, maxlen=keep)
        asked.xinfo_stream(self._stream)
        try:
            return StreamInfo.of(self._answered(asked.execute)[-1]).behind
        except (wrong.ConnectionError, wrong.TimeoutError) as error:
            raise self.error(
                f"a server that takes {len(entries)} entries",
                f"{type(error).__name__}: {error}",
                "see that it runs; some of the entries may be there, so begin with a new stream",
            ) from error

    def connected(self) -> Any:
        """The client of the `redis` package."""
        return self._server.connected(repr(self))

    def _text_of(self, key: bytes) -> str:
        """The name of a key; no stream that matches is left out."""
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise self.error(
                "streams with keys in UTF-8", repr(key), "rename it, or name the streams one by one"
            ) from error

    def _look(self, redis: Any) -> StreamInfo:
        asked = redis.pipeline(transaction=False)
        asked.xinfo_stream(self._stream)
        (told,) = asked.execute(raise_on_error=False)
        return self._standing(told)

    def _standing(self, told: Any) -> StreamInfo:
        if isinstance(told, Exception):
            if "no such key" in str(told):
                return StreamInfo()  # who reads may be there before who writes
            raise told
        if "entries-added" not in told:
            raise self.error(
                "Redis 7 or newer, which counts entries", "an older one", "update the server"
            )
        return StreamInfo.of(told)

    def _patiently(self, ask: Callable[[Any], T]) -> T:
        """Ask, and ask again while the server cannot be reached."""
        redis, began_s = self.connected(), self._clock()
        from redis import exceptions as wrong

        for attempt, wait_s in enumerate((*self._patience_s, None), start=1):
            try:
                return self._answered(lambda: ask(redis))
            except (wrong.ConnectionError, wrong.TimeoutError) as error:
                took_s = self._clock() - began_s
                if wait_s is None or took_s + wait_s >= GIVE_UP_S:
                    raise self._unreachable(error, attempt, took_s) from error
                self._sleep(wait_s)
        raise AssertionError("unreachable")

    def _answered(self, ask: Callable[[], T]) -> T:
        """What the server refuses is not mended by asking again."""
        from redis import exceptions as wrong

        try:
            return ask()
        except wrong.AuthenticationError as error:
            raise self.error(
                "a server that lets us in", str(error), "put user and password into the URL"
            ) from error
        except wrong.ResponseError as error:
            kept = "WRONGTYPE" in str(error)
            raise self.error(
                f"a stream under the key {self._stream!r}" if kept else "an answer of the server",
                "a key that holds something else" if kept else str(error),
                "name another key" if kept else "see what the server's administrator allows",
            ) from error

    def _unreachable(self, error: Exception, attempts: int, took_s: float) -> SourceError:
        tried = f"{attempts} {'attempt' if attempts == 1 else 'attempts'} over {took_s:.1f} s"
        return self.error(
            "a server that answers",
            f"{type(error).__name__} after {tried}: {error}",
            "see that it runs and can be reached; with a checkpoint the run goes on from there",
        )

    def error(self, expected: str, got: str, remedy: str) -> SourceError:
        """An error that names stream and server."""
        return SourceError(Subject("source", repr(self)), expected, got, remedy)


class _Server:
    """The connections to a server; the streams of a source share them.

    Args:
        url: Where it is.
    """

    def __init__(self, url: str) -> None:
        self._url, self._redis = url, None

    def __getstate__(self) -> dict[str, Any]:
        """Connections stay behind."""
        return {**self.__dict__, "_redis": None}

    def connected(self, who: str) -> Any:
        """The client of the `redis` package; errors name `who` needs it."""
        if self._redis is None:
            self._redis = _connect(self._url, who)
        return self._redis


def _connect(url: str, who: str) -> Any:
    try:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise SourceError(
            Subject("source", who),
            "the package redis",
            "none",
            "run: pip install 'anabranch[redis]'",
        ) from error
    try:
        return Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),  # how often to try again is decided here, in one place
            decode_responses=False,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
        )
    except ValueError as error:
        raise SourceError(
            Subject("source", who), "a URL like redis://host:6379/0", str(error), "correct the URL"
        ) from error


def place_of(url: str) -> str:
    """Server and database of a URL, without user and password.

    Example:
        >>> place_of("redis://ada:secret@queue.example:6380/2")
        'queue.example:6380/2'
    """
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path if parts.netloc else parts.path


def numbers_of(id: bytes | str) -> tuple[int, int]:
    """The two numbers of an entry's id: milliseconds, and a count within them.

    Example:
        >>> numbers_of(b"1526919030474-55")
        (1526919030474, 55)
    """
    text = id.decode() if isinstance(id, bytes) else id
    milliseconds, _, count = text.partition("-")
    return int(milliseconds), int(count or 0)
