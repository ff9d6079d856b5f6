"""A user's function as a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from anabranch.errors import SinkError, Subject
from anabranch.io.sink import Guarantee, Traits
from anabranch.io.staged import StagedSink


def call(fn: Callable[[pa.RecordBatch, int], object]) -> CallSink:
    """Call `fn(batch, version)` with all rows of a commit, at least once.

    After a crash the same rows may come again under the same version: a function whose effect must
    happen once remembers the versions it has seen. A commit without rows makes no call. If the
    function raises, its rows stay and the commit can be repeated.

    Example:
        >>> from anabranch.io.two_phase_commit import Transactions
        >>> batch = pa.record_batch({"x": [1, 2]})
        >>> out = Transactions(call(lambda batch, version: print(version, batch.to_pylist())))
        >>> out.open(batch.schema)
        >>> out.write(batch)
        >>> out.commit(0)
        0 [{'x': 1}, {'x': 2}]
    """
    return CallSink(fn)


class CallSink(StagedSink):
    """See `call`."""

    traits = Traits(Guarantee.AT_LEAST_ONCE)

    def __init__(self, fn: Callable[[pa.RecordBatch, int], object]) -> None:
        """Remember whom to call."""
        self._fn = fn
        # A worker has no function, but errors.
        self._description = f"call {getattr(fn, '__name__', type(fn).__name__)!r}"

    def __repr__(self) -> str:
        """The description that errors use."""
        return self._description

    def __getstate__(self) -> dict[str, Any]:
        """Only the driver calls: the function need not travel."""
        return {**self.__dict__, "_fn": None}

    def begin(self, schema: pa.Schema, version: int) -> None:
        """What was called cannot be taken back."""

    def deliver(self, version: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Call the function with the rows."""
        try:
            self._fn(pa.concat_batches(list(rows)), version)
        except Exception as error:
            raise SinkError(
                Subject("sink", repr(self)),
                f"the function to take version {version}",
                f"{type(error).__name__}: {error}",
                "repair the function, then commit again or restart from the checkpoint",
            ) from error
