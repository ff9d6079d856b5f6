"""Identity: which flow a checkpoint belongs to, so that no other goes on from its state.

A flow is described by what its state depends on: name, buckets, order, and of each step its kind,
key, wiring, columns and settings. Not seen is what only running shows: the body of an author's
function. A changed lambda goes on with the state that the earlier one left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyarrow as pa

from anabranch.engines.checkpoint.checksummed_json import seal, unseal
from anabranch.engines.checkpoint.storage import PENDING, Storage
from anabranch.errors import About, StateError, Subject
from anabranch.flow import Flow
from anabranch.graph import Role, Step, StreamType
from anabranch.io.source import IdleAfter, Source
from anabranch.operators.base import KernelContext, Operator

IDENTITY = "anabranch.json"
FORMAT = 2
EARLIER = "Anabranch 0.1"
"""What wrote checkpoints that do not say it."""
REMEDY = "go on with the earlier flow, or start afresh in a new checkpoint directory"


def describe(flow: Flow) -> dict[str, Any]:
    """Return all that a flow's state depends on, as JSON; steps in the order that ranks them."""
    contexts = flow.contexts()
    steps = [_described(flow.graph.steps[name], context) for name, context in contexts.items()]
    return {
        "format": FORMAT,
        "written by": f"Anabranch {_own_version()}",
        "flow": flow.name,
        "buckets": flow.buckets,
        "order": flow.order.value,
        "steps": steps,
    }


def _own_version() -> str:
    try:
        return version("anabranch")
    except PackageNotFoundError:
        return "of an unknown version"  # run from a source tree that is not installed


def require_same(stored: dict[str, Any], flow: Flow) -> None:
    """Raise StateError with the first difference between a stored description and a flow."""
    now = describe(flow)
    if stored.get("format") != FORMAT:
        raise _differs(
            Subject("flow", flow.name),
            f"a checkpoint of format {FORMAT}",
            f"format {stored.get('format')}, written by {stored.get('written by', EARLIER)}",
            "go on with that version of Anabranch, or start afresh in a new checkpoint directory",
        )
    if stored["flow"] != flow.name:
        raise _differs(
            Subject("flow", flow.name),
            f"flow {stored['flow']!r}, which owns it",
            f"flow {flow.name!r}",
        )
    if stored["buckets"] != flow.buckets:
        raise _differs(
            Subject("flow", flow.name),
            f"{stored['buckets']} buckets "
            "(the number of buckets is fixed when the flow first starts)",
            f"{flow.buckets} buckets",
        )
    if stored["order"] != now["order"]:
        raise _differs(
            Subject("flow", flow.name), f"order {stored['order']!r}", f"order {now['order']!r}"
        )
    _require_same_steps(flow.name, stored["steps"], now["steps"])


def claim(storage: Storage, flow: Flow, *, fresh: bool = True) -> None:
    """Make an empty directory this flow's, or check that it is; raises StateError if it is not.

    With `fresh=False`, a directory without a checkpoint is refused, too.
    """
    data = storage.read(IDENTITY)
    if data is None:
        if not fresh:
            raise StateError(
                Subject("checkpoint", storage.location),
                f"a checkpoint, with a file {IDENTITY}",
                "none",
                "name the directory that the run was given",
            )
        foreign = sorted(n for n in storage.entries("") if not n.startswith(PENDING))
        if foreign:
            raise StateError(
                Subject("checkpoint", storage.location),
                f"an empty directory, or one with {IDENTITY}",
                f"{len(foreign)} entries such as {foreign[0]!r}, which are not ours",
                "give a directory of its own to the checkpoint",
            )
        storage.make("")
        if storage.create(IDENTITY, seal(describe(flow))):
            return
        data = storage.read(IDENTITY) or b""  # another run was faster
    require_same(unseal(data, storage.named(IDENTITY)), flow)


def _described(step: Step, context: KernelContext) -> dict[str, Any]:
    operates = step.role is Role.OPERATOR
    body = step.body if operates else getattr(step.body, step.role.value)
    state = getattr(body, "state", None) if operates else None
    kind = body.kind if isinstance(body, IdleAfter) else type(body).__name__
    return {
        "name": step.name,
        "role": step.role.value,
        "kind": kind,
        "state": state.value if state else None,
        "key": list(body.key) if operates else [],
        "own buckets": body.own_buckets if operates else None,
        "inputs": [f"{i.step}.{i.port}" for i in step.inputs if i is not None],
        # Where a source reads and a sink writes may move; what operators remember may not.
        "settings": settings_of(body) if operates else {},
        "input columns": [_columns(kind) for kind in context.inputs],
        "output columns": [_columns(kind) for kind in context.outputs],
        "time": [None if kind.time is None else str(kind.time) for kind in context.outputs],
    }


def _columns(kind: StreamType) -> str:
    replaced = "" if kind.changelog is None else f" replaced by {', '.join(kind.changelog)}"
    return ", ".join(map(_column, kind.schema)) + replaced


def _column(field: pa.Field) -> str:
    return f"{field.name}: {field.type}" + ("" if field.nullable else " not null")


def _require_same_steps(flow: str, then: list[Any], now: list[Any]) -> None:
    earlier = {step["name"]: step for step in then}
    present = {step["name"]: step for step in now}
    for name in earlier:
        if name not in present:
            raise _differs(name, f"the step {name!r}, which has state there", "no such step")
    for name in present:
        if name not in earlier:
            raise _differs(name, f"the steps {list(earlier)}", f"a new step {name!r}")
    for name, step in present.items():
        _require_same_step(name, earlier[name], step)
    if list(earlier) != list(present):
        raise _differs(
            Subject("flow", flow), f"the steps in the order {list(earlier)}", f"{list(present)}"
        )


def _require_same_step(name: str, then: dict[str, Any], now: dict[str, Any]) -> None:
    # In the order of a description: what a step is comes before what follows from that.
    for what, value in now.items():
        if what == "settings":
            _require_same_settings(name, then[what], value)
        elif what == "kind" and now["role"] == Role.SINK.value:
            continue  # each kind refuses by itself to go on where it lacks earlier output
        elif then[what] != value:
            raise _differs(name, f"{what} {_shown(then[what])}", f"{what} {_shown(value)}")


def _require_same_settings(name: str, then: dict[str, str], now: dict[str, str]) -> None:
    # A setting that one side does not know came or went with another version of the operator.
    for what in sorted(then.keys() & now.keys()):
        if then[what] != now[what]:
            raise _differs(name, f"{what} = {then[what]}", f"{what} = {now[what]}")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"({'; '.join(map(_shown, value))})"
    return "none" if value is None else str(value)


def _differs(about: About, then: str, now: str, remedy: str = REMEDY) -> StateError:
    return StateError(about, f"what the checkpoint was made with: {then}", now, remedy)


# An operator's declared settings as text, found without knowing the operator.

DESCRIBED_ELSEWHERE = {"state", "key", "own_buckets", "in_ports", "out_ports", "out", "side_outs"}
FOLLOWS_FROM_OTHERS = {"needs_time", "accepts_changes", "batch_dependent", "before_shuffle"}
FREE_TO_CHANGE = {"on_error", "policy", "max_buffer"}
"""No state depends on these, and errors advise to change them and go on."""

NOT_SETTINGS = DESCRIBED_ELSEWHERE | FOLLOWS_FROM_OTHERS | FREE_TO_CHANGE
LEFT_OUT = "…"


def settings_of(operator: Operator) -> dict[str, str]:
    """Settings by name: attributes of the operator and of its classes, without functions.

    Example:
        >>> from anabranch.operators.keyed.deduplicate import deduplicate
        >>> settings_of(deduplicate("user", timedelta(minutes=5)))["within"]
        '0:05:00'
    """
    declared: dict[str, Any] = {}
    for kind in reversed(type(operator).__mro__):
        if issubclass(kind, Operator):
            declared |= vars(kind)
    declared |= vars(operator)
    shown = {
        name: text_of(value)
        for name, value in sorted(declared.items())
        if not name.startswith("_") and name not in NOT_SETTINGS
    }
    return {name: text for name, text in shown.items() if text != LEFT_OUT}


def text_of(value: Any) -> str:
    """Return a value as text that is the same in every process; what has no such text is left out.

    Example:
        >>> from anabranch.operators.aggregates.windows import tumbling
        >>> text_of((1, tumbling(60), len))
        '(1, TimeWindow(size=60, slide=60, offset=0), …)'
    """
    match value:
        case Enum():
            return text_of(value.value)
        case None | bool() | int() | float() | str() | bytes():
            return str(value)
        case timedelta() | datetime() | date() | time() | Decimal() | pa.DataType() | pa.Field():
            return str(value)
        case pa.Schema():
            return f"({', '.join(f'{field.name}: {field.type}' for field in value)})"
        case tuple() | list():
            return f"({', '.join(map(text_of, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(text_of, value)))}}}"
        case Mapping():
            items = sorted((text_of(k), text_of(v)) for k, v in value.items())
            return f"{{{', '.join(f'{k}: {v}' for k, v in items)}}}"
    if is_dataclass(value) and not isinstance(value, type) and not callable(value):
        parts = (f"{field.name}={text_of(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({', '.join(parts)})"
    return LEFT_OUT


# Which parts a source had: offsets and positions are numbers of parts, so these must not shift.

PARTS = "sources.json"
INTERLEAVED = "interleaved"


def require_same_parts(storage: Storage, sources: Mapping[str, Source], *, ended: bool) -> None:
    """Refuse to go on when parts went away, changed places or came in between; remember new ones.

    Parts that come behind those of the run before are read as the stream goes on, unless it has
    ended: what it had to say at its end was said. The parts of an interleaved source are in its
    offsets.
    """
    now = {
        name: [INTERLEAVED] if source.interleaved else list(source.parts())
        for name, source in sources.items()
    }
    data = storage.read(PARTS)
    before = now if data is None else unseal(data, storage.named(PARTS))
    for name, parts in now.items():
        known = before.get(name, [])
        if (known == [INTERLEAVED]) != (parts == [INTERLEAVED]):
            raise StateError(
                name,
                _order_of(known),
                _order_of(parts),
                "let the source be what it was (with `idle_after`, any source is interleaved), or "
                "start afresh in a new checkpoint directory",
            )
        if parts[: len(known)] != known:
            shifted = next(n for n, part in enumerate(known) if parts[n : n + 1] != [part])
            found = repr(parts[shifted]) if shifted < len(parts) else "nothing"
            raise StateError(
                name,
                f"part {shifted} to be {known[shifted]!r}, as when the run began",
                found,
                "give new files names that sort behind the others, put files back that are "
                "missing, or start afresh in a new checkpoint directory",
            )
        if ended and len(parts) > len(known):
            raise StateError(
                name,
                f"the {len(known)} parts of the run, which has ended",
                f"{len(parts) - len(known)} more, such as {parts[len(known)]!r}",
                "read them in a new checkpoint directory",
            )
    if data is None or before != now:
        storage.write(PARTS, seal(now), durable=True)


def _order_of(parts: list[str]) -> str:
    """Say how rows are numbered."""
    if parts == [INTERLEAVED]:
        return "an interleaved source, whose rows are numbered as they are read"
    return "a source whose parts are read one after the other"
