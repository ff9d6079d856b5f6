"""Arrow rows as they should be pickled: without the buffers of the batch they were sliced from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_SLACK_BYTES = 4096


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; copied when they are a small part of the buffers they refer to.

    Example:
        >>> whole = pa.record_batch({"n": list(range(100_000))})
        >>> compact(whole.slice(7, 10)).get_total_buffer_size() < 1000
        True
        >>> compact(whole) is whole
        True
    """
    if batch.get_total_buffer_size() <= 2 * batch.nbytes + _SLACK_BYTES:
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))
