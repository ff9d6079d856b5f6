"""What a run has written, and what its application says of that."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from anabranch.apps import APPS
from anabranch.engines.registry import ENGINES
from anabranch.flow import Flow
from anabranch.graph import Role
from anabranch.io.collect import CollectSink
from anabranch.io.read_back import read_back


def places(flow: Flow, folder: Path) -> dict[str, Path]:
    """Where each sink writes: into the folder if it is the only one, else into one of its own."""
    sinks = flow.names(Role.SINK)
    return {sink: folder / sink if len(sinks) > 1 else folder for sink in sinks}


def found(name: str, flow: Flow, engine: str, out: Path | None) -> list[str]:
    """What an application has to say of what its sinks got, line by line; nothing of others."""
    if name not in APPS:
        return []
    if engine not in ENGINES:
        return [f"no results: time is virtual on {engine}; `anabranch simulate {name}` tells more"]
    return APPS[name].summary(written(flow, out)).splitlines()


def written(flow: Flow, out: Path | None) -> dict[str, pa.Table]:
    """What each sink of a flow got."""
    if out is not None:
        return {sink: read_back(place) for sink, place in places(flow, out).items()}
    sinks = {name: flow.graph.steps[name].body.sink for name in flow.names(Role.SINK)}
    return {name: sink.table() for name, sink in sinks.items() if isinstance(sink, CollectSink)}
