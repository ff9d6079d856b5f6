"""Lines of text files, among them those that hold bytes which are no UTF-8."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.io import files
from anabranch.io.formats import text
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
