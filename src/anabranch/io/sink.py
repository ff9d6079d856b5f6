"""What a sink is: a transaction per version, visible whole or not at all."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Sink(Protocol):
    """A place for results, written in transactions that are numbered by the engine.

    An implementer owes:

    - *No work in the constructor.* Everything begins with `open`.
    - *Atomic commits.* What was written since the last commit becomes visible at once, or, after
      a kill at any instant, not at all.
    - *Idempotence.* Committing a version again changes nothing: rows written since the last commit
      are then a replay of what is already visible, and are dropped.
    - *Forgetting.* `open` discards whatever was written after the version it is given.
    - *Errors.* What cannot be written is a SinkError that names the place and the way out.

    The engine owes rising versions, and, because -1 means a run that never was, a commit of an
    (empty) version before the first row if it wants to tell its own restart from a fresh start.
    """

    def open(self, schema: pa.Schema, version: int) -> None:
        """Go on after the committed `version`; -1 for a fresh start."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the open transaction, in order."""

    def commit(self, version: int) -> None:
        """Make everything since the last commit visible, as `version`."""

    def close(self) -> None:
        """Let go of resources; what was not committed is gone."""
