"""A user's function as a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.sink import Sink
from anabranch.io.transaction import Transaction


def call(fn: Callable[[pa.RecordBatch, int], object]) -> CallSink:
    """Call `fn(batch, version)` with all rows of a commit, at least once.

    After a crash the same rows may come again under the same version: a function whose effect must
    happen once remembers the versions it has seen. A commit without rows makes no call. If the
    function raises, its rows stay and the commit can be repeated.

    Example:
        >>> batch = pa.record_batch({"x": [1, 2]})
        >>> sink = call(lambda batch, version: print(version, batch.to_pylist()))
        >>> sink.open(batch.schema, version=-1)
        >>> sink.write(batch)
        >>> sink.commit(0)
        0 [{'x': 1}, {'x': 2}]
    """
    return CallSink(fn)


class CallSink(Sink):
    """See `call`."""

    def __init__(self, fn: Callable[[pa.RecordBatch, int], object]) -> None:
        """Remember whom to call."""
        self._fn = fn
        self._transaction = Transaction(repr(self))

    def __repr__(self) -> str:
        """The description that errors use."""
        return f"call {getattr(self._fn, '__name__', type(self._fn).__name__)!r}"

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver calls: the function need not travel."""
        return {**self.__dict__, "_fn": None}

    def open(self, schema: pa.Schema, version: int) -> None:
        """Go on after `version`."""
        self._transaction.open(schema, version)

    def write(self, batch: pa.RecordBatch) -> None:
        """Hold the rows until their commit."""
        self._transaction.write(batch)

    def commit(self, version: int) -> None:
        """Call the function with the rows, if there are any."""
        if batches := self._transaction.pending(version):
            try:
                self._fn(pa.concat_batches(batches), version)
            except Exception as error:
                raise SinkError(
                    Subject("sink", repr(self)),
                    f"the function to take version {version}",
                    f"{type(error).__name__}: {error}",
                    "repair the function, then commit again or restart from the checkpoint",
                ) from error
        self._transaction.commit(version)

    def close(self) -> None:
        """Drop what was not committed."""
        self._transaction.close()
