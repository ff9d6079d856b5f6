"""A sink that is written to version by version, and goes on after one of them as after a kill."""

import pyarrow as pa

from anabranch.io.staged import MemoryStage
from anabranch.io.two_phase_commit import Transactions


class GoingOn(Transactions):
    """Can be opened after a version whose commit has happened."""

    def open(self, schema: pa.Schema, version: int = -1) -> None:
        if version < 0:
            super().open(schema)
            return
        self._abort()
        self._sink.recover(schema, version, (), MemoryStage())
        self._schema, self._committed = schema, version
