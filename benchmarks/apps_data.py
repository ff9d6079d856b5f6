"""An application's own data as Parquet files, and the application reading them.

All contenders read the same files: a micro-batch is `FILES_A_BATCH` of them of each source, in the
order of their names, so that every core has one to scan.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import anabranch as ab
from anabranch.flow import Flow
from anabranch.graph import Role

FILES_A_BATCH = 2
# Spark takes files in the order of their modification times: they are spaced, and lie in the past.
FIRST_TIME_S = 1_700_000_000


@dataclass(frozen=True)
class AppFiles:
    """Files of every source of an application.

    Attributes:
        build: Makes its flow; with `rows`, or None for no end.
        folder: Holds a folder for each source.
        rows: How many each source has, over all batches.
        batches: How many micro-batches the files make.
    """

    build: Callable[..., Flow]
    folder: Path
    rows: dict[str, int]
    batches: int

    def flow(self, out: Path) -> Flow:
        """The application, reading these files and writing Parquet."""
        flow = self.build(rows=None)
        sources = {
            name: ab.files(self.folder / name, schema=_schema(flow, name)) for name in self.rows
        }
        sinks = {name: ab.parquet(out / name) for name in flow.names(Role.SINK)}
        return flow.reading(sources).writing(sinks)

    def batch_rows(self, source: str) -> int:
        """Rows of a source in one micro-batch."""
        return self.rows[source] // self.batches


def write_files(build: Callable[..., Flow], folder: Path, rows: int, batches: int) -> AppFiles:
    """Write what an application generates for `rows`, or a bit less: batches are alike."""
    flow = build(rows=rows)
    written = {}
    for name in flow.names(Role.SOURCE):
        source = flow.graph.steps[name].body.source
        a_file = max(1, source.extent(source.parts()[0]).rows // (batches * FILES_A_BATCH))
        (folder / name).mkdir(parents=True)
        for number in range(batches * FILES_A_BATCH):
            path = folder / name / f"{number:04}.parquet"
            chunk = source.read(source.parts()[0], number * a_file, a_file)
            with pq.ParquetWriter(path, source.schema) as writer:
                writer.write_batch(chunk.batch, row_group_size=1 << 18)
            os.utime(path, (FIRST_TIME_S + number, FIRST_TIME_S + number))
        written[name] = a_file * batches * FILES_A_BATCH
    return AppFiles(build, folder, written, batches)


def _schema(flow: Flow, source: str) -> object:
    return flow.graph.steps[source].body.source.schema
