"""What becomes of the results of a run: files, a summary of its application, the last rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from anabranch.apps import APPS
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io import call, collect, parquet
from anabranch.io.collect import CollectSink
from anabranch.io.read_back import committed_batches

LAST_ROWS = 100_000
"""Rows of a sink that stay in memory where nothing else is known of what they are for."""


class Results:
    """The results of one run, which may be endless: they are files, or they are summed up.

    Attributes:
        flow: The flow to run, whose sinks write to where the results go.

    Args:
        name: What the command line was asked to run.
        flow: Its flow.
        engine: What runs it.
        out: A folder for the results; None to keep no more in memory than is shown.
        overwrite: Whether earlier results in the folder are replaced.
    """

    def __init__(
        self, name: str, flow: Flow, engine: str, out: Path | None, overwrite: bool
    ) -> None:
        self._name, self._engine = name, engine
        self._places = {} if out is None else places(flow, out)
        self._summary = APPS[name].summary() if name in APPS else None
        if self._summary is not None:
            contexts = flow.contexts()
            for sink in self._places or collected(flow):
                self._summary.add(sink, contexts[sink].inputs[0].schema.empty_table())
        if out is not None:
            written = {sink: parquet(place, overwrite) for sink, place in self._places.items()}
            self.flow = flow.writing(written)
        elif self._summary is not None:
            summed_up = {sink: call(partial(self._take, sink)) for sink in collected(flow)}
            self.flow = flow.writing(summed_up)
        else:
            self.flow = keeping_the_last(flow)

    def found(self) -> list[str]:
        """What the application has found, line by line; of other flows, what was not kept."""
        if self._summary is None:
            return [
                f"{name}: {sink.dropped + sink.table().num_rows:,} rows, of which the last "
                f"{sink.table().num_rows:,} were kept"
                for name, sink in collected(self.flow).items()
                if sink.dropped
            ]
        if self._engine not in ENGINES:
            more = f"`anabranch simulate {self._name}` tells more"
            return [f"no results: time is virtual on {self._engine}; {more}"]
        for sink, place in self._places.items():
            for batch in committed_batches(place):
                self._take(sink, batch)
        return str(self._summary).splitlines()

    def _take(self, sink: str, batch: pa.RecordBatch, version: int = 0) -> None:
        if self._summary is not None:
            self._summary.add(sink, pa.Table.from_batches([batch]))


def places(flow: Flow, folder: Path) -> dict[str, Path]:
    """Where each sink writes: into the folder if it is the only one, else into one of its own."""
    sinks = flow.names(Role.SINK)
    return {sink: folder / sink if len(sinks) > 1 else folder for sink in sinks}


def collected(flow: Flow) -> dict[str, CollectSink]:
    """The sinks of a flow that keep rows in memory, by name."""
    sinks = {name: flow.graph.steps[name].body.sink for name in flow.names(Role.SINK)}
    return {name: sink for name, sink in sinks.items() if isinstance(sink, CollectSink)}


def keeping_the_last(flow: Flow) -> Flow:
    """The flow with sinks that keep no more than the last rows, where they would keep all."""
    endless = [name for name, sink in collected(flow).items() if sink.limit is None]
    return flow.writing({name: collect(limit=LAST_ROWS) for name in endless})
