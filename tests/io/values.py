"""Values of every type that all directory sinks hold, written and read back."""

from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from anabranch.io import Sink, read_back
from anabranch.io.two_phase_commit import Transactions

MICROSECONDS = st.integers(-(2**45), 2**50)

columns = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    pa.timestamp("us"): MICROSECONDS,
    pa.timestamp("us", "UTC"): MICROSECONDS,
    pa.date32(): st.integers(-10_000, 50_000),
    pa.time64("us"): st.integers(0, 86_399_999_999),
    pa.decimal128(9, 2): st.integers(-(10**8), 10**8).map(lambda cents: Decimal(cents) / 100),
}


@st.composite
def batches(draw, more=None):
    """A batch of one to four columns, with nulls."""
    known = columns | (more or {})
    kinds = draw(st.lists(st.sampled_from(list(known)), min_size=1, max_size=4))
    rows = draw(st.integers(1, 5))
    arrays = [
        pa.array(
            draw(st.lists(st.none() | known[kind], min_size=rows, max_size=rows)),
            type=kind,
        )
        for kind in kinds
    ]
    return pa.record_batch(arrays, names=[f"column {n}" for n in range(len(kinds))])


def written_and_read(sink: Sink, folder, batch: pa.RecordBatch) -> pa.Table:
    out = Transactions(sink)
    out.open(batch.schema)
    out.write(batch)
    out.commit(0)
    return read_back(folder)
