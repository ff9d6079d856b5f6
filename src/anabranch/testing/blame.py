"""Who is to blame: the first step that got the same and gave something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.flow import Flow
from anabranch.graph import Output, Role
from anabranch.operators.rows import python_rows
from anabranch.state.positions import Jumbo
from anabranch.testing.result import RunResult, Tap
from anabranch.testing.sequential import run_sequential

Seen = dict[str, tuple[list[str], list[str]]]
"""By step: everything that went in and came out, with positions, in a comparable form."""

Recorded = tuple[RunResult, Seen]


class Recorder:
    """A tap that remembers what every step saw and made; a replay after a crash counts once."""

    def __init__(self) -> None:
        """Nothing seen."""
        self._ins: dict[str, set[str]] = {}
        self._outs: dict[str, set[str]] = {}

    def __call__(
        self, step: str, inputs: Sequence[Jumbo | None], outputs: Sequence[Jumbo | None]
    ) -> None:
        """Remember one call of a kernel."""
        self._ins.setdefault(step, set()).update(_rows(inputs))
        self._outs.setdefault(step, set()).update(_rows(outputs))

    def seen(self) -> Seen:
        """Sorted, to be compared."""
        return {s: (sorted(self._ins[s]), sorted(self._outs[s])) for s in self._ins}


def blame(flow: Flow, left: Seen, right: Seen) -> str | None:
    """The step most likely to blame for two runs that differ.

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


def _rows(jumbos: Sequence[Jumbo | None]) -> list[str]:
    return [
        f"{port} {position} {row}"
        for port, jumbo in enumerate(jumbos)
        if jumbo is not None
        for position, row in zip(jumbo.positions.rows(), python_rows(jumbo.batch), strict=True)
    ]
