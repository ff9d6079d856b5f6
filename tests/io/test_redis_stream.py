"""Rows of a Redis stream: the same ones however they are read, and never others in their place."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, SchemaError, SourceError
from anabranch.io import redis_source, redis_stream
from anabranch.io import redis_stream as redis_stream_of
from anabranch.io.redis_client import END
from anabranch.io.source import Extent
from tests.io.redis_server import RedisServer, redis_server, stream

__all__ = ["redis_server", "stream"]

pytestmark = pytest.mark.xdist_group("redis")
NUMBER = "n: int64"


@pytest.fixture(autouse=True)
def near_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So near that some hundred rows have many, and are fetched in many goes."""
    monkeypatch.setattr(redis_source, "SPACING", 8)
    monkeypatch.setattr(sys.modules[redis_stream_of.__module__], "FETCH_ROWS", 7)


def add(server: RedisServer, stream: str, numbers: range, end: bool = False) -> None:
    asked = server.client.pipeline(transaction=False)
    for number in numbers:
        asked.xadd(stream, {"n": number})
    if end:
        asked.xadd(stream, {END: ""})
    asked.execute()


def source_of(server: RedisServer, stream: str, **options: Any) -> Any:
    return redis_stream(server.url, stream, options.pop("schema", NUMBER), **options)


def client_of(source: Any) -> Any:
    """The client of its only stream."""
    (part,) = source.parts()
    return source._stream(part)._client


def read(source: Any, start: int, rows: int) -> list[int] | None:
    (part,) = source.parts()
    chunk = source.read(part, start, rows)
    return None if chunk is None else chunk.batch["n"].to_pylist()


def extent(source: Any) -> Extent:
    return source.extent(source.parts()[0])


# --- replay -----------------------------------------------------------------------------------


def chunks(rng: Random, rows: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < rows:
        size = min(rng.choice([1, 3, 8, 20, 100]), rows - start)
        yield start, size
        start += size


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_the_same_in_whatever_chunks_and_by_whomever_they_are_read(
    redis_server, stream, seed
):
    add(redis_server, stream, range(300))
    rng = Random(seed)
    source = source_of(redis_server, stream)
    pieces = list(chunks(rng, 300))
    rng.shuffle(pieces)
    for start, size in pieces:
        if rng.random() < 0.3:  # a reader that knows nothing of the ones before it
            source = pickle.loads(pickle.dumps(source))
        assert read(source, start, size) == list(range(start, start + size))


def looking_at(server: RedisServer) -> str:
    """The server as somebody sees it who may read and not write."""
    server.client.acl_setuser(
        "looking",
        enabled=True,
        passwords=["+pass"],
        keys=["*"],
        categories=["+@read", "+@connection", "+@transaction"],
        commands=["+time"],
    )
    return server.url.replace("//", "//looking:pass@")


def test_a_reader_that_may_not_write_finds_rows_too(redis_server, stream):
    add(redis_server, stream, range(100))
    url = looking_at(redis_server)
    source = redis_stream(url, stream, NUMBER)
    assert read(source, 0, 50) == list(range(50))
    assert read(redis_stream(url, stream, NUMBER), 77, 5) == list(range(77, 82))
    assert not redis_server.client.exists(f"{stream}:anabranch-rows")


def fetches_of(source: Any) -> list[int]:
    """How many entries are asked for, each time, from now on."""
    asked: list[int] = []
    client = client_of(source)
    fetch = client.fetch

    def counted(since: bytes, most: int) -> Any:
        asked.append(most)
        return fetch(since, most)

    client.fetch = counted
    return asked


def test_another_reader_gets_to_a_late_row_without_reading_all_before_it(redis_server, stream):
    add(redis_server, stream, range(300))
    read(source_of(redis_server, stream), 0, 300)
    late = source_of(redis_server, stream)
    asked = fetches_of(late)
    assert read(late, 251, 1) == [251]
    assert sum(asked) == 1 + (251 - 249) + 1 + 1  # each with the one before it


def test_who_goes_on_at_the_newest_row_counts_nothing(redis_server, stream):
    add(redis_server, stream, range(300))
    source = source_of(redis_server, stream)
    asked = fetches_of(source)
    assert read(source, 300, 10) == []
    assert asked == [8]


def test_landmarks_are_as_many_as_the_entries_kept_need(redis_server, stream):
    add(redis_server, stream, range(100))
    source = source_of(redis_server, stream)
    read(source, 0, 100)
    redis_server.client.xtrim(stream, maxlen=20, approximate=False)
    add(redis_server, stream, range(100, 110))
    read(source, 100, 10)
    noted = redis_server.client.zrange(f"{stream}:anabranch-rows", 0, -1, withscores=True)
    assert [row for _, row in noted] == [80, 88, 96, 104]


def test_landmarks_of_a_stream_that_was_there_before_are_not_believed(redis_server, stream):
    add(redis_server, stream, range(100))
    read(source_of(redis_server, stream), 0, 100)
    redis_server.client.delete(stream)
    add(redis_server, stream, range(1000, 1100))
    assert read(source_of(redis_server, stream), 50, 3) == [1050, 1051, 1052]


def test_a_reader_that_may_not_remove_false_landmarks_finds_rows_too(redis_server, stream):
    add(redis_server, stream, range(300))
    read(source_of(redis_server, stream), 0, 300)  # more landmarks than anybody tries
    redis_server.client.delete(stream)
    add(redis_server, stream, range(1000, 1300))
    source = redis_stream(looking_at(redis_server), stream, NUMBER)
    asked = fetches_of(source)
    assert read(source, 290, 3) == [1290, 1291, 1292]
    assert len(asked) < redis_source.MOST_REFUSED + 300 / 7 + 5
    noted = redis_server.client.zcard(f"{stream}:anabranch-rows")
    assert noted == 38  # as many as before


# --- what has come, and the end -----------------------------------------------------------------


def test_a_stream_that_does_not_exist_yet_has_nothing_yet(redis_server, stream):
    source = source_of(redis_server, stream)
    chunk = source.read(stream, 0, 10)
    assert (chunk.batch.num_rows, chunk.dry, chunk.waited_ms) == (0, True, 0.0)
    assert extent(source) == Extent(0, growing=True)
    add(redis_server, stream, range(3))
    assert read(source, 0, 10) == [0, 1, 2]


def test_a_chunk_says_whether_more_had_come(redis_server, stream):
    add(redis_server, stream, range(20))
    source = source_of(redis_server, stream)
    assert [source.read(stream, 0, rows).dry for rows in (19, 20, 21)] == [False, True, True]


def test_the_end_is_an_entry_and_nothing_behind_it_is_read(redis_server, stream):
    add(redis_server, stream, range(10), end=True)
    source = source_of(redis_server, stream)
    assert extent(source) == Extent(10, exact=True)
    add(redis_server, stream, range(99, 100))
    assert read(source, 0, 100) == list(range(10))
    assert read(source, 10, 100) is None


def test_the_extent_grows_with_the_stream_and_counts_what_was_trimmed(redis_server, stream):
    add(redis_server, stream, range(10))
    source = source_of(redis_server, stream)
    redis_server.client.xtrim(stream, maxlen=4, approximate=False)
    assert extent(source) == Extent(10, growing=True)


def test_how_long_rows_had_waited_is_told_by_the_servers_clock(redis_server, stream):
    seconds, micros = redis_server.client.time()
    came_ms = int(seconds * 1000 + micros / 1000) - 5000
    redis_server.client.xadd(stream, {"n": 1}, id=f"{came_ms}-0")
    redis_server.client.xadd(stream, {"n": 2})
    waited_ms = source_of(redis_server, stream).read(stream, 0, 2).waited_ms
    assert 5000 <= waited_ms < 15_000


def test_ids_that_are_no_times_tell_nothing_about_waiting(redis_server, stream):
    redis_server.client.xadd(stream, {"n": 1}, id="1-1")
    assert source_of(redis_server, stream).read(stream, 0, 2).waited_ms is None


# --- what cannot be read ------------------------------------------------------------------------


def test_rows_that_were_trimmed_are_an_error_and_never_other_rows(redis_server, stream):
    add(redis_server, stream, range(50))
    known = source_of(redis_server, stream)
    assert read(known, 0, 10) == list(range(10))
    redis_server.client.xtrim(stream, maxlen=30, approximate=False)
    for source in (known, source_of(redis_server, stream)):
        with pytest.raises(SourceError) as raised:
            read(source, 10, 5)
        assert str(raised.value.subject) == (
            f"source redis_stream {stream!r} at 127.0.0.1:{redis_server.port}/0"
        )
        assert raised.value.expected == "row 10"
        assert "row 20 is the first one kept" in raised.value.got
        assert "first_row=20" in raised.value.remedy


def test_a_trimmed_stream_can_be_begun_where_it_begins(redis_server, stream):
    add(redis_server, stream, range(50))
    redis_server.client.xtrim(stream, maxlen=30, approximate=False)
    source = source_of(redis_server, stream, first_row=20)
    assert read(source, 0, 5) == list(range(20, 25))
    assert extent(source) == Extent(30, growing=True)


def test_a_stream_with_a_hole_is_refused(redis_server, stream):
    add(redis_server, stream, range(10))
    third = redis_server.client.xrange(stream, count=3)[-1][0]
    redis_server.client.xdel(stream, third)
    with pytest.raises(SourceError, match="entries deleted between others"):
        read(source_of(redis_server, stream), 5, 1)


@pytest.mark.parametrize("rows", [3, 11, 60])
def test_a_stream_that_was_written_anew_is_noticed(redis_server, stream, rows):
    add(redis_server, stream, range(10))
    source = source_of(redis_server, stream)
    read(source, 0, 10)
    redis_server.client.delete(stream)
    add(redis_server, stream, range(rows))
    with pytest.raises(SourceError, match="deleted and written anew"):
        read(source, 10, 1)


def test_a_stream_written_anew_with_some_ids_of_before_is_noticed(redis_server, stream):
    def write(ids: range) -> None:
        for number in ids:
            redis_server.client.xadd(stream, {"n": number}, id=f"1-{number}")

    write(range(1, 11))
    source = source_of(redis_server, stream)
    read(source, 0, 10)
    redis_server.client.delete(stream)
    write(range(7, 20))  # the entry that was read last is there again, as another row
    with pytest.raises(SourceError, match="deleted and written anew"):
        read(source, 10, 100)


def test_a_key_that_is_no_stream_is_refused(redis_server, stream):
    redis_server.client.set(stream, "something else")
    with pytest.raises(SourceError, match="a key that holds something else"):
        read(source_of(redis_server, stream), 0, 1)


BAD = {
    "fields": (NUMBER, {"n": "many"}, "field 'n' to be int64", "'many'"),
    "json": (NUMBER, {"data": '{"n": 1} {"n": 2}'}, "a JSON object in field 'data'", '{"n": 1} {'),
}


@pytest.mark.parametrize("format", BAD)
def test_a_bad_entry_is_named_by_row_and_id(redis_server, stream, format):
    schema, fields, expected, shown = BAD[format]
    good = {"n": "1", "data": '{"n": 1}'}
    redis_server.client.xadd(stream, good)
    id = redis_server.client.xadd(stream, fields)
    redis_server.client.xadd(stream, good)
    with pytest.raises(SourceError) as raised:
        read(source_of(redis_server, stream, schema=schema, format=format), 0, 3)
    assert expected in raised.value.expected
    assert shown in raised.value.got
    assert f"in row 1 (entry {id.decode()})" in raised.value.got
    assert "parse_json" in raised.value.remedy


def test_bad_entries_can_be_set_aside_as_anywhere_else(redis_server, stream):
    for text in ('{"n": 1}', "{oops", '{"n": 3}'):
        redis_server.client.xadd(stream, {"data": text})
    redis_server.client.xadd(stream, {END: ""})
    flow, good = ab.Flow("aside"), ab.collect()
    texts = flow.source("texts", redis_stream(redis_server.url, stream, "data: string"))
    texts.apply("parse", ab.parse_json("data", out=NUMBER, on_error="skip")).sink("out", good)
    ab.run(flow, engine="local", policy="none")
    assert good.table().to_pylist() == [{"n": 1}, {"n": 3}]


# --- connections --------------------------------------------------------------------------------


def test_a_server_that_comes_back_is_read_on_from(redis_server, stream):
    add(redis_server, stream, range(10))
    source = source_of(redis_server, stream)
    assert read(source, 0, 5) == list(range(5))
    redis_server.stop()
    waits: list[float] = []

    def restart(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            redis_server.start()

    client_of(source)._sleep = restart
    assert read(source, 5, 5) == list(range(5, 10))
    assert len(waits) == 2


def test_a_wrong_password_is_not_tried_again(redis_server, stream):
    url = redis_server.url.replace("//", "//nobody:knows@")
    source = redis_stream(url, stream, NUMBER)
    client_of(source)._sleep = lambda seconds: pytest.fail("tried again")
    with pytest.raises(SourceError, match="put user and password into the URL"):
        read(source, 0, 1)


def test_a_missing_package_is_told_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SourceError, match=r"pip install 'anabranch\[redis\]'"):
        redis_stream("redis://nowhere", "s", NUMBER).read("s", 0, 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"format": "xml"}, "format in"),
        ({"schema": ""}, "columns to read"),
        ({"first_row": -1}, "first_row of 0 or more"),
        ({"schema": "tags: list<string>"}, "a field of text can hold"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anybody_connects(options, expected):
    schema = options.pop("schema", NUMBER)
    with pytest.raises((SourceError, SchemaError), match=expected):
        redis_stream("redis://nowhere", "s", schema, **options)


def test_a_wrong_url_is_named():
    with pytest.raises(AnabranchError, match="redis://host"):
        redis_stream("http://nowhere", "s", NUMBER).read("s", 0, 1)


# --- several streams --------------------------------------------------------------------------


def test_each_stream_is_a_part(redis_server, stream):
    add(redis_server, f"{stream}:a", range(5))
    add(redis_server, f"{stream}:b", range(10, 13), end=True)
    source = redis_stream(redis_server.url, [f"{stream}:a", f"{stream}:b"], NUMBER)
    first, second = source.parts()
    assert source.read(first, 1, 3).batch["n"].to_pylist() == [1, 2, 3]
    assert source.read(second, 0, 9).batch["n"].to_pylist() == [10, 11, 12]
    assert (source.extent(first), source.extent(second)) == (
        Extent(5, growing=True),
        Extent(3, exact=True),
    )


def test_a_pattern_finds_streams_and_nothing_else(redis_server, stream):
    source = redis_stream(redis_server.url, f"{stream}:*", NUMBER)
    assert (source.parts(), source.interleaved) == ((), True)
    redis_server.client.set(f"{stream}:text", "no stream")
    add(redis_server, f"{stream}:b", range(2000, 2010))  # with landmarks beside it
    add(redis_server, f"{stream}:a", range(1))
    source.read(f"{stream}:b", 0, 10)
    assert source.parts() == (f"{stream}:a", f"{stream}:b")


def test_the_streams_of_a_source_share_their_connections(redis_server, stream):
    names = [f"{stream}:{number}" for number in range(20)]
    for name in names:
        add(redis_server, name, range(3))
    source = pickle.loads(pickle.dumps(redis_stream(redis_server.url, names, NUMBER)))
    before = redis_server.client.info("clients")["connected_clients"]
    assert [source.extent(part).rows for part in source.parts()] == [3] * 20
    assert redis_server.client.info("clients")["connected_clients"] - before <= 1


def test_a_key_that_is_no_text_is_named(redis_server, stream):
    add(redis_server, f"{stream}:".encode() + b"\xff", range(1))
    source = redis_stream(redis_server.url, f"{stream}:*", NUMBER)
    with pytest.raises(SourceError, match=r"keys in UTF-8.*xff"):
        source.parts()


def test_a_server_that_is_gone_while_streams_are_searched_is_named():
    source = redis_stream("redis://127.0.0.1:1/0?socket_timeout=0.1", "web:*", NUMBER)
    with pytest.raises(SourceError, match=r"redis_stream 'web:\*' at 127.0.0.1:1"):
        source.parts()


@pytest.mark.parametrize("streams", [[], ["a", "a"]])
def test_streams_are_named_and_each_once(streams):
    with pytest.raises(SourceError, match="name each once"):
        redis_stream("redis://localhost:6379/0", streams, NUMBER)
