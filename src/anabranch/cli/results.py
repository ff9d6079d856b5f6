"""What becomes of the results of a run: files, a summary of its application, the last rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa

from anabranch.apps import APPS
from anabranch.engines.handle import Result
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.graph import Output, Role
from anabranch.io import call, collect, parquet
from anabranch.io.collect import CollectSink
from anabranch.io.directory import kept_schema
from anabranch.io.read_back import committed_batches

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
        self._places = {} if out is None else places(flow, out, resumes=resumes)
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


def places(flow: Flow, folder: Path, *, resumes: bool) -> dict[str, Path]:
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


def collected(flow: Flow) -> dict[str, CollectSink]:
    """The sinks of a flow that keep rows in memory, by name."""
    sinks = {name: flow.graph.steps[name].body.sink for name in flow.names(Role.SINK)}
    return {name: sink for name, sink in sinks.items() if isinstance(sink, CollectSink)}


def keeping_the_last(flow: Flow) -> Flow:
    """The flow with sinks that keep no more than the last rows, where they would keep all."""
    endless = [name for name, sink in collected(flow).items() if sink.limit is None]
    return flow.writing({name: collect(limit=LAST_ROWS) for name in endless})


def unread(flow: Flow, result: Result) -> dict[str, str]:
    """Return the sources of which no row could be read, each with the step that set them aside.

    A step counts if no operator but it takes the rows of a source (sinks may keep a copy of them)
    and, in a run that came to its end, no row has come out of it.
    """
    if not result.ended:
        return {}
    takers: defaultdict[Output, list[str]] = defaultdict(list)
    for taker in flow.graph.steps.values():
        for output in taker.inputs:
            if output is not None:
                takers[output].append(taker.name)
    found = {}
    for step in result.first_skipped:
        came_out = any(result.rows_by_step.get(name) for name in takers[Output(step)])
        if not came_out and (source := _source_before(flow, step, takers)) is not None:
            found[source] = step
    return found


def _source_before(flow: Flow, step: str, takers: Mapping[Output, list[str]]) -> str | None:
    """The source whose rows go to a step and to no other operator."""
    at = flow.graph.steps[step]
    while at.role is not Role.SOURCE:
        [given, *others] = at.inputs
        if given is None or others:
            return None
        beside = [flow.graph.steps[name] for name in takers[given] if name != at.name]
        if any(step.role is not Role.SINK for step in beside):
            return None
        at = flow.graph.steps[given.step]
    return at.name
