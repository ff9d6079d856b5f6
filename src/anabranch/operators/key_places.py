"""Where the keys of a batch are remembered: their buckets, their order, and their identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.operators.key_identity import may_hold_nan, remembered, shown
from anabranch.state.hashing import bucket_of, hash_columns, order_prefix

GLOBAL_KEY: tuple[()] = ()


class KeyPlaces:
    """Places of keys.

    Args:
        key: Names of the key columns; without any, there is one key for all rows.
        routing: Columns whose values decide the bucket; empty for the key itself.
        buckets: How many buckets there are.
        given: Schema of the batches.

    Example:
        >>> schema = pa.schema([("x", pa.float64())])
        >>> places = KeyPlaces(("x",), (), 1, schema)
        >>> buckets, keys = places.of(pa.record_batch([[1.5, None]], schema=schema))
        >>> buckets, keys
        ([0, 0], [1.5, None])
    """

    def __init__(
        self, key: tuple[str, ...], routing: tuple[str, ...], buckets: int, given: pa.Schema
    ) -> None:
        """Places of the keys of one step."""
        self._key, self._routing, self._buckets = key, routing or key, buckets
        self.careful = may_hold_nan([given.field(name).type for name in key])

    def of(self, batch: pa.RecordBatch) -> tuple[list[int], list[Any]]:
        """Per row: its bucket, and its key as it is remembered."""
        if not self._key:
            return [0] * batch.num_rows, [GLOBAL_KEY] * batch.num_rows
        hashes = hash_columns([batch.column(name) for name in self._routing])
        values = [batch.column(name).to_pylist() for name in self._key]
        keys = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        if self.careful:
            keys = [remembered(key) for key in keys]
        return bucket_of(hashes, self._buckets).tolist(), keys

    def orders(self, batch: pa.RecordBatch) -> list[tuple[int, int]]:
        """Per row: two numbers that order the keys."""
        if not self._key:
            return [(0, 0)] * batch.num_rows
        columns = [batch.column(name) for name in self._key]
        mixed = hash_columns(columns).view(np.int64).tolist()
        return list(zip(order_prefix(columns[0]).tolist(), mixed, strict=True))

    def shown(self, key: Any) -> Any:
        """A remembered key as its author knows it."""
        return shown(key) if self.careful else key
