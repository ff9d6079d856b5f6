import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SinkError
from anabranch.io import jsonl
from tests.io.values import batches, written_and_read

MORE = {
    pa.list_(pa.int64()): st.lists(st.integers(0, 9)),
    pa.struct([("a", pa.list_(pa.string()))]): st.fixed_dictionaries(
        {"a": st.lists(st.sampled_from(["x", "ÿ"]))}
    ),
}


@given(batch=batches(MORE))
def test_what_is_written_reads_back(tmp_path_factory, batch):
    folder = tmp_path_factory.mktemp("jsonl")
    assert written_and_read(jsonl(folder), folder, batch) == pa.Table.from_batches([batch])


def test_a_row_is_a_line_whatever_is_in_it(tmp_path):
    batch = pa.record_batch({"text": ["two\nlines", "grün\u2028"]})
    written_and_read(jsonl(tmp_path), tmp_path, batch)
    content = (tmp_path / "part-00000000.jsonl").read_text(encoding="utf-8")
    assert content == '{"text": "two\\nlines"}\n{"text": "grün\u2028"}\n'


def test_not_a_number_reads_back(tmp_path):
    batch = pa.record_batch({"f": [float("nan"), float("inf"), float("-inf")]})
    values = written_and_read(jsonl(tmp_path), tmp_path, batch)["f"].to_pylist()
    assert [str(value) for value in values] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize("kind", [pa.list_(pa.timestamp("us")), pa.binary(), pa.duration("s")])
def test_types_that_do_not_read_back_are_refused_by_name(tmp_path, kind):
    with pytest.raises(SinkError, match=r"columns that jsonl can hold, got 'k' of type.*parquet"):
        jsonl(tmp_path).open(pa.schema([("k", kind)]))
