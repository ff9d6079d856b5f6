import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SinkError
from anabranch.io import parquet
from anabranch.io.two_phase_commit import Transactions
from tests.io.values import batches, written_and_read

MORE = {
    pa.binary(): st.binary(),
    pa.list_(pa.timestamp("us")): st.lists(st.integers(0, 10**15)),
    pa.struct([("a", pa.int64())]): st.fixed_dictionaries({"a": st.integers(0, 9)}),
    pa.duration("us"): st.integers(0, 10**9),
}


@given(batch=batches(MORE))
def test_what_is_written_reads_back(tmp_path_factory, batch):
    folder = tmp_path_factory.mktemp("parquet")
    assert written_and_read(parquet(folder), folder, batch) == pa.Table.from_batches([batch])


def test_small_batches_share_a_row_group(tmp_path):
    sink = Transactions(parquet(tmp_path))
    rows = pa.record_batch({"x": [1, 2]})
    sink.open(rows.schema)
    for _ in range(50):
        sink.write(rows)
    sink.commit(0)
    assert pq.read_metadata(tmp_path / "part-00000000.parquet").num_row_groups == 1


def test_many_rows_are_not_held_until_the_commit(tmp_path):
    sink = Transactions(parquet(tmp_path))
    rows = pa.record_batch({"x": list(range(100_000))})
    sink.open(rows.schema)
    for _ in range(4):
        sink.write(rows)
    sink.commit(0)
    assert pq.read_metadata(tmp_path / "part-00000000.parquet").num_row_groups == 2


def test_unions_are_refused_by_name(tmp_path):
    schema = pa.schema([("u", pa.dense_union([pa.field("a", pa.int64())]))])
    with pytest.raises(SinkError, match="'u' of type dense_union"):
        parquet(tmp_path).open(schema)
