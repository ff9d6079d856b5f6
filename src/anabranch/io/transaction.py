"""What sinks that hold a transaction in memory share."""

from __future__ import annotations

import pyarrow as pa

from anabranch.errors import SinkError, Subject


def require_fit(sink: Subject, schema: pa.Schema | None, batch: pa.RecordBatch) -> None:
    """Refuse rows before `open`, and rows with other columns than `open` named."""
    if schema is None:
        raise SinkError(sink, "open() before write()", "write()", "open the sink first")
    if batch.schema != schema:
        for field in schema:
            index = batch.schema.get_field_index(field.name)
            found = batch.schema.field(index).type if index >= 0 else "no such column"
            if found != field.type:
                raise SinkError(
                    sink,
                    f"column {field.name!r} of type {field.type}",
                    str(found),
                    "write batches of the schema the sink was opened with",
                )
        raise SinkError(
            sink,
            f"columns {schema.names}",
            f"{batch.schema.names}",
            "write batches of the schema the sink was opened with",
        )


class Transaction:
    """Rows in memory until their commit; knows which version was committed last."""

    def __init__(self, sink: str) -> None:
        """Hold nothing yet."""
        self._sink = Subject("sink", sink)
        self._schema: pa.Schema | None = None
        self._committed = -1
        self._batches: list[pa.RecordBatch] = []

    def open(self, schema: pa.Schema, version: int) -> None:
        """Go on after `version` with nothing held."""
        self._schema = schema
        self._committed = version
        self._batches = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Hold some rows."""
        require_fit(self._sink, self._schema, batch)
        if batch.num_rows:
            self._batches.append(batch)

    def pending(self, version: int) -> list[pa.RecordBatch]:
        """The rows that committing `version` would make visible: none if it was committed."""
        return self._batches if version > self._committed else []

    def commit(self, version: int) -> None:
        """Let go of the rows: they are visible now, or were before."""
        self._committed = max(version, self._committed)
        self._batches = []

    def close(self) -> None:
        """Let go of everything."""
        self._schema = None
        self._batches = []
