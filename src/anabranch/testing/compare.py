"""Whether two runs of a flow wrote the same: the sequence, per key, or the last row of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.columns.rows import is_nan, python_rows, shown_values
from anabranch.flow import Flow, Order
from anabranch.graph import Output, Role, StateKind
from anabranch.state.positions import Jumbo
from anabranch.testing.result import RunResult, Tap
from anabranch.testing.sequential import run_sequential

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Difference:
    """Where two runs part: at one sink, with what each of them has there."""

    sink: str
    promise: str
    expected: list[Row]
    got: list[Row]

    def __str__(self) -> str:
        """Return the first rows in which the runs differ."""
        at = next(
            (i for i, (e, g) in enumerate(zip(self.expected, self.got, strict=False)) if e != g),
            min(len(self.expected), len(self.got)),
        )
        shown = [
            f"at {self.sink!r} ({self.promise}): {len(self.expected)} row(s) in the "
            f"sequential run, {len(self.got)} in the other; first difference at {at}"
        ]
        shown.append(f"  expected: {self.expected[at : at + 3]}")
        shown.append(f"  got:      {self.got[at : at + 3]}")
        return "\n".join(shown)


def difference(flow: Flow, expected: RunResult, got: RunResult) -> Difference | None:
    """Return the first sink at which a run broke what the flow promises there."""
    for sink in flow.names(Role.SINK):
        promise, left, right = _as_promised(flow, sink, expected.outputs[sink], got.outputs[sink])
        if left != right:
            return Difference(sink, promise, left, right)
    return _counted_differently(flow, expected, got)


def raised(error: Exception) -> Difference:
    """Return a run that ended with an error where the sequential one had none."""
    return Difference("all", "no error", [("a result",)], [(f"{type(error).__name__}: {error}",)])


def _counted_differently(flow: Flow, expected: RunResult, got: RunResult) -> Difference | None:
    """Return the first step that counts differently, but for those downstream of changes."""
    types = flow.resolve().types
    for name in flow.names(Role.OPERATOR):
        inputs = [types[i] for i in flow.graph.steps[name].inputs if i is not None]
        if any(i.changelog is not None for i in inputs):
            continue
        left, right = expected.counters.get(name), got.counters.get(name)
        if left != right:
            return Difference(name, "what is counted", [(left,)], [(right,)])
    return None


def _as_promised(
    flow: Flow, sink: str, expected: pa.Table, got: pa.Table
) -> tuple[str, list[Row], list[Row]]:
    """Both tables, brought into a form that must be equal."""
    changelog = flow.resolve().types[Output(sink)].changelog
    if changelog is not None:
        return (
            f"last row of each {list(changelog)}",
            _last_rows(expected, changelog),
            _last_rows(got, changelog),
        )
    if flow.order is Order.TOTAL:
        return "total order", _rows(expected), _rows(got)
    key = _visible_key(flow, sink)
    if key:
        return f"order per {list(key)}", _by_key(expected, key), _by_key(got, key)
    return "any order", _sorted(_rows(expected)), _sorted(_rows(got))


def _rows(table: pa.Table) -> list[Row]:
    columns = [[_cell(v) for v in _exact(c)] for c in table.columns]
    return list(zip(*columns, strict=True))


def _exact(column: pa.ChunkedArray) -> list[Any]:
    """Values that compare exactly: nanoseconds as numbers, which datetimes cannot hold."""
    nanoseconds = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return shown_values(column.cast(pa.int64()) if nanoseconds else column)


def _cell(value: Any) -> Any:
    """NaN equals NaN here, also inside of lists and structs."""
    if isinstance(value, list):
        return [_cell(v) for v in value]
    if isinstance(value, dict):
        return {k: _cell(v) for k, v in value.items()}
    return "NaN" if is_nan(value) else value


def _last_rows(table: pa.Table, key: tuple[str, ...]) -> list[Row]:
    places = [table.schema.names.index(k) for k in key]
    last = {tuple(row[p] for p in places): row for row in _rows(table)}
    return _sorted(list(last.values()))


def _by_key(table: pa.Table, key: tuple[str, ...]) -> list[Row]:
    places = [table.schema.names.index(k) for k in key]
    return sorted(_rows(table), key=lambda row: repr([row[p] for p in places]))  # stable


def _sorted(rows: list[Row]) -> list[Row]:
    counted = Counter(map(repr, rows))
    by_text = {repr(row): row for row in rows}
    return [by_text[text] for text in sorted(counted) for _ in range(counted[text])]


def _visible_key(flow: Flow, sink: str) -> tuple[str, ...]:
    """Key of the nearest partitioned step upstream, when the sink can see it unchanged."""
    output = flow.graph.steps[sink].inputs[0]
    types = flow.resolve().types
    kept: set[str] = set(types[output].schema.names) if output else set()
    while output is not None:
        step = flow.graph.steps[output.step]
        if step.role is not Role.OPERATOR or len(step.inputs) != 1:
            return ()
        given = types[step.inputs[0]].schema if step.inputs[0] else pa.schema([])
        kept &= step.body.keeps(given)
        if step.body.state is StateKind.PARTITIONED:
            return tuple(step.body.key) if set(step.body.key) <= kept else ()
        if step.body.state is not StateKind.STATELESS:
            return ()
        output = step.inputs[0]
    return ()


# Who is to blame: the first step that got the same and gave something else.

Seen = dict[str, tuple[list[str], list[str]]]
"""By step: everything that went in and came out, with positions, in a comparable form."""

Recorded = tuple[RunResult, Seen]


class Recorder:
    """A tap that remembers what every step saw and made; a replay after a crash counts once."""

    def __init__(self) -> None:
        """Record nothing yet."""
        self._ins: dict[str, set[str]] = {}
        self._outs: dict[str, set[str]] = {}

    def __call__(
        self, step: str, inputs: Sequence[Jumbo | None], outputs: Sequence[Jumbo | None]
    ) -> None:
        """Remember one call of a kernel."""
        self._ins.setdefault(step, set()).update(_positioned_rows(inputs))
        self._outs.setdefault(step, set()).update(_positioned_rows(outputs))

    def seen(self) -> Seen:
        """Return what was recorded, sorted, to be compared."""
        return {s: (sorted(self._ins[s]), sorted(self._outs[s])) for s in self._ins}


def blame(flow: Flow, left: Seen, right: Seen) -> str | None:
    """Return the step most likely to blame for two runs that differ.

    A step that got the same tuples and made others is surely to blame. Where batching changes a
    step's output by design, the next step's input differs too; then the first step whose output
    differs without such a licence is the best guess.
    """
    nothing: tuple[list[str], list[str]] = ([], [])
    suspects = []
    for name in flow.names(Role.OPERATOR):
        (left_in, left_out), (right_in, right_out) = (
            left.get(name, nothing),
            right.get(name, nothing),
        )
        if left_out == right_out or _may_show_batching(flow, name):
            continue
        if left_in == right_in:
            return name
        suspects.append(name)
    return suspects[0] if suspects else None


def _may_show_batching(flow: Flow, name: str) -> bool:
    changes = flow.resolve().types[Output(name)].changelog is not None
    return changes or flow.graph.steps[name].body.batch_dependent


def run_recorded(run: Callable[[Tap], RunResult]) -> Recorded:
    """Run with a recorder."""
    recorder = Recorder()
    result = run(recorder)
    return result, recorder.seen()


def run_sequential_recorded(flow: Flow) -> Recorded:
    """Run a flow sequentially with a recorder."""
    return run_recorded(lambda tap: run_sequential(flow, tap=tap))


def _positioned_rows(jumbos: Sequence[Jumbo | None]) -> list[str]:
    return [
        f"{port} {position} {row}"
        for port, jumbo in enumerate(jumbos)
        if jumbo is not None
        for position, row in zip(jumbo.positions.rows(), python_rows(jumbo.batch), strict=True)
    ]
