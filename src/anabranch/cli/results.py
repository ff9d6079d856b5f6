"""Keeps the results of a run: as files, as a summary of its application, or the last rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from anabranch.apps import APPS
from anabranch.apps.kit.inputs import IsData
from anabranch.engines.handle import Result
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.graph import Output, Role
from anabranch.io import call, collect, parquet
from anabranch.io.directory_sink import kept_schema
from anabranch.io.reading_back import committed_batches
from anabranch.io.sink import InMemory

SET_ASIDE = "_set_aside"
ASIDE = ("late", "errors")
"""The ports by which rows leave that are no result."""
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
        resumes: Whether the run may go on from a checkpoint.
    """

    def __init__(
        self,
        name: str,
        flow: Flow,
        engine: str,
        out: Path | None,
        overwrite: bool,
        *,
        resumes: bool,
    ) -> None:
        self._name, self._engine = name, engine
        self._places = {} if out is None else result_folders(flow, out, resumes=resumes)
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
        """Return what the application found, line by line; for other flows, what was not kept."""
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


def result_folders(flow: Flow, folder: Path, *, resumes: bool) -> dict[str, Path]:
    """Where each sink writes, so that nobody reads results and rows set aside as one table.

    The only result is in the folder itself, several are in folders of their own. Rows that are late
    or bad are below `_set_aside`, which readers of the folder pass over.

    Args:
        flow: The flow of the sinks.
        folder: Where users want the results.
        resumes: Whether output in the layout of earlier versions, a folder for each of several
            sinks, may have to be continued.
    """
    sinks = flow.names(Role.SINK)
    if len(sinks) == 1:
        return dict.fromkeys(sinks, folder)
    earlier = {sink: folder / sink for sink in sinks}
    if resumes and all(kept_schema(str(place)) is not None for place in earlier.values()):
        return earlier
    aside = [sink for sink in sinks if _is_set_aside(flow, sink)]
    place = folder if len(sinks) - len(aside) == 1 else None
    return {
        sink: folder / SET_ASIDE / sink if sink in aside else place or folder / sink
        for sink in sinks
    }


def _is_set_aside(flow: Flow, sink: str) -> bool:
    """Whether a sink gets rows that are late or bad, right from the step that found them so."""
    [given] = flow.graph.steps[sink].inputs
    return given is not None and flow.graph.steps[given.step].body.out_ports[given.port] in ASIDE


def collected(flow: Flow) -> dict[str, InMemory]:
    """The sinks of a flow that keep rows in memory, by name."""
    found = {name: sink.in_memory() for name, sink in flow.sinks().items()}
    return {name: sink for name, sink in found.items() if sink is not None}


def keeping_the_last(flow: Flow) -> Flow:
    """The flow with sinks that keep no more than the last rows, where they would keep all."""
    endless = [name for name, sink in collected(flow).items() if sink.limit is None]
    return flow.writing({name: collect(limit=LAST_ROWS) for name in endless})


def unread(flow: Flow, result: Result) -> dict[str, str]:
    """Return the sources of which no row could be read, each with the step that set them aside.

    The step is the only operator that takes the rows of the source (sinks may keep a copy of them),
    and has skipped every one of them in a run that came to its end. Of a run that went on from a
    checkpoint this is not known, because earlier runs may have read rows.
    """
    if not result.ended or result.resumed:
        return {}
    return {
        first.source: step
        for step, first in result.first_skipped.items()
        if _takes_all(flow, step, first.source)
        and result.skipped[step] == result.rows_by_step[step]
    }


def _takes_all(flow: Flow, step: str, source: str) -> bool:
    """Return whether a step takes all rows of a source but headers, and no other operator does."""
    steps, rows = flow.graph.steps, Output(source)
    takers = [steps[name] for name in flow.names(Role.OPERATOR) if rows in steps[name].inputs]
    if len(takers) != 1 or len(takers[0].inputs) != 1:
        return False
    [taker] = takers
    if isinstance(getattr(taker.body, "function", None), IsData):
        return _takes_all(flow, step, taker.name)
    return taker.name == step
