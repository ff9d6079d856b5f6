"""Rows as entries of a Redis stream: they come back as they were written, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.errors import SchemaError
from anabranch.io.redis_rows import BadEntry, FieldsCodec, JsonCodec
from tests.io.redis_server import redis_server, stream

__all__ = ["redis_server", "stream"]

pytestmark = pytest.mark.xdist_group("redis")

ROWS = pa.table(
    {
        "text": ["to", "", None, "wörd"],
        "whole": [1, -2, None, 2**60],
        "real": [0.1, 1e300, None, -0.0],
        "yes": [True, False, None, True],
        "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, 678901)] * 3 + [None], pa.timestamp("us")),
    }
)


@pytest.mark.parametrize("codec", [FieldsCodec(ROWS.schema), JsonCodec(ROWS.schema, "data")])
def test_rows_come_back_as_they_were_written(redis_server, stream, codec):
    (batch,) = ROWS.to_batches()
    for fields in codec.encode(batch):
        redis_server.client.xadd(stream, fields)
    assert codec.decode(redis_server.client.xrange(stream)) == batch


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [19_000, None]),
        (pa.date64(), [86_400_000]),
        (pa.time32("ms"), [5]),
        (pa.time64("us"), [7]),
        (pa.timestamp("us", "UTC"), [1_700_000_000_000_001]),
        (pa.decimal128(10, 2), [Decimal("1.20")]),
        (pa.struct([("at", pa.timestamp("us"))]), [{"at": datetime(2024, 1, 2, 3, 4, 5, 6)}]),
        (pa.list_(pa.timestamp("us", "UTC")), [[datetime(2024, 1, 2, tzinfo=UTC)]]),
        (pa.list_(pa.decimal128(10, 2)), [[Decimal("1.20")]]),
    ],
    ids=str,
)
def test_times_and_decimals_come_back_from_json(kind, values):
    batch = pa.record_batch({"x": pa.array(values, kind)})
    codec = JsonCodec(batch.schema, "data")
    entries = [(b"1-0", {b"data": row["data"].encode()}) for row in codec.encode(batch)]
    assert codec.decode(entries) == batch


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.binary())], ids=str)
def test_bytes_are_refused_where_json_is_written(kind):
    values = [b"\xff"] if kind == pa.binary() else [[b"\xff"]]
    batch = pa.record_batch({"x": pa.array(values, kind)})
    with pytest.raises(SchemaError, match=r"a value of type bytes.*format='fields'"):
        JsonCodec(batch.schema, "data").encode(batch)


def test_bytes_that_are_no_text_come_back_too():
    batch = pa.record_batch({"raw": [b"\xff\x00", None, b""]})
    codec = FieldsCodec(batch.schema)
    entries = [(b"1-0", {k.encode(): v for k, v in row.items()}) for row in codec.encode(batch)]
    assert codec.decode(entries) == batch


def test_a_column_that_must_have_a_value_is_missed():
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    for codec in (FieldsCodec(schema), JsonCodec(schema, "data")):
        with pytest.raises(BadEntry):
            codec.decode([(b"1-0", {b"data": b"{}"})])
