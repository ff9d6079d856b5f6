"""What the local engine cannot do, said by name before anything starts."""

from __future__ import annotations

from anabranch.engines.engine import Options
from anabranch.errors import EngineError, Subject
from anabranch.flow import Flow
from anabranch.graph import Role


def refuse_what_it_cannot(flow: Flow, options: Options) -> None:
    """Name what this engine cannot do, before anything starts."""
    if not flow.names(Role.SINK):
        raise EngineError(
            Subject("flow", flow.name),
            "at least one sink, which says when the end has come",
            "none",
            "give every stream that matters a sink",
        )
    given = {
        "master": options.master,
        "session": options.session,
        "conf": options.conf or None,
    }
    for name, sink in flow.sinks().items():
        if sink.traits.dataframes:
            raise EngineError(
                name,
                "a sink that takes record batches",
                f"{sink!r}, which takes DataFrames",
                "run with engine='spark', or use ab.call",
            )
    for option, value in given.items():
        if value is not None:
            raise EngineError(
                Subject("engine", "local"),
                "options that the local engine knows: plan, checkpoint, rows, listener",
                f"{option}={value!r}",
                f"leave {option} out, or run with engine='spark'",
            )
