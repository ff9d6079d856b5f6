import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.errors import SinkError
from anabranch.io import csv
from anabranch.io.two_phase_commit import Transactions
from tests.io.values import batches, written_and_read


@given(batch=batches())
def test_what_is_written_reads_back(tmp_path_factory, batch):
    folder = tmp_path_factory.mktemp("csv")
    assert written_and_read(csv(folder), folder, batch) == pa.Table.from_batches([batch])


def test_null_and_the_empty_string_stay_apart(tmp_path):
    batch = pa.record_batch({"word": ["", None, "null"]})
    assert written_and_read(csv(tmp_path), tmp_path, batch) == pa.Table.from_batches([batch])


def test_every_file_has_a_header(tmp_path):
    batch = pa.record_batch({"x": [1]})
    sink = Transactions(csv(tmp_path))
    sink.open(batch.schema)
    for version in range(2):
        sink.write(batch)
        sink.commit(version)
    assert (tmp_path / "part-00000001.csv").read_text() == '"x"\n1\n'


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.binary(), pa.float16()])
def test_types_that_do_not_read_back_are_refused_by_name(tmp_path, kind):
    with pytest.raises(SinkError, match=r"columns that csv can hold, got 'k' of type.*parquet"):
        csv(tmp_path).open(pa.schema([("k", kind)]))
