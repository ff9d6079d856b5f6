"""What a run has written, and what its application says of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from anabranch.apps import APPS
from anabranch.engines.handle import Result
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.graph import Output, Role
from anabranch.io.collect import CollectSink
from anabranch.io.directory import kept_schema
from anabranch.io.read_back import read_back

SET_ASIDE = "_set_aside"
ASIDE = ("late", "errors")
"""The ports by which rows leave that are no result."""


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


def found(name: str, flow: Flow, engine: str, out: Mapping[str, Path] | None) -> list[str]:
    """What an application has to say of what its sinks got, line by line; nothing of others."""
    if name not in APPS:
        return []
    if engine not in ENGINES:
        return [f"no results: time is virtual on {engine}; `anabranch simulate {name}` tells more"]
    return APPS[name].summary(written(flow, out)).splitlines()


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


def written(flow: Flow, out: Mapping[str, Path] | None) -> dict[str, pa.Table]:
    """What each sink of a flow got, in the folders that they write to if they do."""
    if out is not None:
        return {sink: read_back(place) for sink, place in out.items()}
    sinks = {name: flow.graph.steps[name].body.sink for name in flow.names(Role.SINK)}
    return {name: sink.table() for name, sink in sinks.items() if isinstance(sink, CollectSink)}
