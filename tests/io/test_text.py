"""Lines of text files, among them those that hold bytes which are no UTF-8."""

import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import SourceError
from anabranch.io import files
from anabranch.io.formats import lines as line_files
from anabranch.io.formats import text
from anabranch.io.offsets import SourceOffsets
from anabranch.io.splits import SliceReader, take
from tests.io.reading import table_of

PIECES = [b"a", b"\n", b"\r\n", "grün".encode(), "grün".encode("latin-1"), b"\xe2\x82", b"\xff"]


def lines_of(path, size=9):
    return table_of(files(path, format="text"), [size])["line"].to_pylist()


def test_bytes_that_are_no_utf8_are_replaced_and_harm_no_other_line(tmp_path):
    (tmp_path / "a.log").write_bytes(b"one\ngr\xfcn \xff\xfe\n\xe2\x82\xac\n\xe2\x82\nlast")
    assert lines_of(tmp_path / "a.log") == ["one", "gr\ufffdn \ufffd\ufffd", "€", "\ufffd", "last"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_line_reads_the_same_whatever_stands_around_it(tmp_path, content, size):
    (tmp_path / "a.log").write_bytes(content + b"\n")
    alone = [line.removesuffix(b"\r").decode(errors="replace") for line in content.split(b"\n")]
    assert lines_of(tmp_path / "a.log", size) == alone


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7])
def test_where_blocks_end_does_not_show(tmp_path, monkeypatch, block_bytes):
    content = b"gr\xc3\xbcn\ngr\xfcn\n\xe2\x82\xac\n\xe2\x82\n\xf0\x9f\x98\x80 x\r\nend"
    (tmp_path / "a.log").write_bytes(content)
    whole = lines_of(tmp_path / "a.log")
    monkeypatch.setattr(text, "BLOCK_BYTES", block_bytes)
    assert lines_of(tmp_path / "a.log") == whole
    assert whole[:3] == ["grün", "gr\ufffdn", "€"]


@pytest.mark.parametrize("at_once", [4, 10, 64])
def test_blocks_are_the_same_wherever_reading_begins(tmp_path, at_once):
    lengths = [1, 30, 2, 2, 90, 0, 0, 5, 70, 70, 1, 200, 3]
    (tmp_path / "a.log").write_text("\n".join("x" * length for length in lengths))
    path = str(tmp_path / "a.log")
    blocks = list(line_files.whole_lines(path, at_once))
    assert b"".join(block for _, block in blocks) == (tmp_path / "a.log").read_bytes()
    assert all(block.endswith(b"\n") for _, block in blocks[:-1])
    assert all(block.count(b"\n") == 1 for _, block in blocks[:-1] if len(block) > at_once)
    for number, (at, _) in enumerate(blocks):
        assert list(line_files.whole_lines(path, at_once, at)) == blocks[number:]


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A file that is large enough to be shared by readers, and its lines."""
    monkeypatch.setattr(line_files, "SPLIT_BYTES", 1_000)
    monkeypatch.setattr(text, "BLOCK_BYTES", 64)
    lines = [f"line {n} " + n % 7 * "é" for n in range(300)]
    (tmp_path / "a.log").write_text("\ufeff" + "\r\n".join(lines), newline="")
    return files(tmp_path / "a.log", format="text"), lines


def lines_from(source, start, rows):
    [part] = source.parts()
    found = []
    while rows > 0 and (chunk := source.read(part, start, rows)) is not None:
        found += chunk.batch["line"].to_pylist()
        start, rows = start + chunk.batch.num_rows, rows - chunk.batch.num_rows
    return found


def test_a_large_file_says_that_readers_may_share_it(shared):
    source, _ = shared
    [part] = source.parts()
    assert source.extent(part).seekable
    assert not source.extent(part).exact


@pytest.mark.parametrize("order", [(0, 100, 200), (200, 100, 0), (100, 250, 0, 50, 299, 300, 400)])
def test_a_large_file_is_read_from_any_line(shared, order):
    source, lines = shared
    for start in order:
        assert lines_from(source, start, 70) == lines[start : start + 70]


@pytest.mark.parametrize("grows", [False, True])
def test_lines_that_were_passed_are_not_counted_again(shared, monkeypatch, grows):
    source, lines = shared
    assert lines_from(source, 250, 10) == lines[250:260]
    if grows:
        with Path(*source.parts()).open("a") as file:
            file.write(" goes on\nand on\n")
    offsets = []
    whole_lines = line_files.whole_lines

    def noting(path, at_once, offset=0, listed=None):
        offsets.append(offset)
        return whole_lines(path, at_once, offset, listed)

    monkeypatch.setattr(line_files, "whole_lines", noting)
    assert lines_from(source, 200, 10) == lines[200:210]
    assert offsets[0] > 2_000


def test_a_large_file_that_is_no_text_is_refused_wherever_reading_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(line_files, "SPLIT_BYTES", 1_000)
    (tmp_path / "a.log").write_text("line\n" * 1_000, encoding="utf-16")
    source = files(tmp_path / "a.log", format="text")
    with pytest.raises(SourceError, match="UTF-16"):
        lines_from(source, 500, 10)


def test_a_file_that_was_written_again_is_counted_again(shared):
    source, lines = shared
    [path] = source.parts()
    assert lines_from(source, 250, 1) == lines[250:251]
    Path(path).write_text("".join(f"new {n}\n" for n in range(1_000)))
    assert lines_from(files(path, format="text"), 500, 1) == ["new 500"]


def test_a_file_that_grows_ends_for_all_readers_where_it_ended_when_it_was_listed(shared):
    source, lines = shared
    [path] = source.parts()
    elsewhere = pickle.loads(pickle.dumps(source))
    assert lines_from(source, 280, 70) == lines[280:]
    with Path(path).open("a") as file:
        file.writelines(f"\nlater {n}" for n in range(99))
    assert lines_from(elsewhere, 280, 70) == lines[280:]
    assert lines_from(source, 300, 70) == lines_from(elsewhere, 320, 70) == []
    assert len(lines_from(files(path, format="text"), 0, 500)) == 399


def test_several_readers_of_one_file_give_its_lines_in_order(shared):
    source, lines = shared
    flow = ab.Flow("lines")
    flow.source("lines", source).map("same", lambda batch: {}, keeps="*").sink(
        "out", out := ab.collect()
    )
    plan = ab.plan(flow).with_source("lines", replicas=3, batch_rows=11).with_replicas("same", 2)
    ab.run(flow, engine="local", plan=plan, workers=0)
    assert out.table()["line"].to_pylist() == lines


def test_a_batch_of_one_large_file_is_shared_out_among_readers(shared):
    source, lines = shared
    shares = take(source, SourceOffsets(), budget=200, readers=2)
    assert [len(slices) for slices in shares] == [1, 1]
    read = [
        line
        for slices in shares
        for jumbo, _ in SliceReader(source, 0, slices).read(30)
        for line in jumbo.batch["line"].to_pylist()
    ]
    assert read == lines[:200]
