"""What an operator is (a description) and what runs it (a kernel).

An `Operator` says what the graph and the planner must know: state kind, key, ports, types, which
columns pass unchanged. A `Kernel` is one running copy of it on one replica. Engines know kernels
only through `step`; they never look inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from anabranch.columns.rows import python_rows
from anabranch.columns.schemas import check_key_types, column_names
from anabranch.errors import About, BuildError, OperatorError, SchemaError, chosen
from anabranch.graph import StateKind, StreamType
from anabranch.state.positions import Jumbo, Mark, Root
from anabranch.state.tables.store import Store

Made = TypeVar("Made")


class OnError(Enum):
    """What happens to tuples on which the author's code raises."""

    FAIL = "fail"
    SKIP = "skip"
    SIDE = "side"


def on_error_of(about: About, value: OnError | str) -> OnError:
    """The policy a user named."""
    return chosen(about, "on_error", value, OnError)


def function_of(about: About, function: Made) -> Made:
    """The author's function, if it is one."""
    if isinstance(function, Operator):
        got = f"an operator ({type(function).__name__})"
        raise BuildError(about, "a function", got, "put it into the stream with .apply(…)")
    if not callable(function):
        raise BuildError(about, "a function", repr(function), "pass the function itself")
    return function


def whole_of(about: About, argument: str, value: int) -> int:
    """Return the whole number that a user gave, which must be at least 1."""
    if type(value) is not int or value < 1:
        expected = f"a whole number of at least 1 in {argument}="
        raise BuildError(about, expected, repr(value), f"write {argument}=1, for example")
    return value


def flag_of(about: About, argument: str, value: bool) -> bool:
    """Return the truth value that a user gave."""
    if not isinstance(value, bool):
        raise BuildError(
            about, f"True or False in {argument}=", repr(value), f"write {argument}=True"
        )
    return value


class SkippedAt(NamedTuple):
    """A row that a kernel set aside; the least one is the first in sequential order.

    Attributes:
        rank: Number of the source that it stems from.
        seq: Its sequence number within the source.
        why: What is wrong with it.
        text: What it holds, shortened.
    """

    rank: int
    seq: int
    why: str
    text: str


_COUNTS = ("skipped", "late", "behind", "most_behind", "ahead")


@dataclass
class Counters:
    """What a kernel lost on purpose, by name of the reason; never silently.

    Attributes:
        skipped: Tuples that were malformed, or on which the author's code raised.
        late: Tuples that a clock set aside.
        behind: Those of the late ones that were further behind than `lateness`.
        most_behind: How far the furthest of them was behind, in the unit of the stream's time.
        ahead: Those of the late ones that were further ahead than `ahead`.
    """

    skipped: int = 0
    late: int = 0
    behind: int = 0
    most_behind: int = 0
    ahead: int = 0
    first: SkippedAt | None = field(default=None, compare=False)

    def skip(self, jumbo: Jumbo, bad: Sequence[tuple[int, str]]) -> None:
        """Count rows that are set aside, each given by its index and what is wrong with it."""
        if not bad:
            return
        self.skipped += len(bad)
        _, ranks, seqs, *_ = jumbo.positions.columns
        rows = np.array([row for row, _ in bad])
        first = np.lexsort((seqs[rows], ranks[rows]))[0]
        row, why = bad[first]
        rank, seq = int(ranks[row]), int(seqs[row])
        if self.first is None or (rank, seq) < self.first[:2]:
            self.note(SkippedAt(rank, seq, why, _shown(jumbo.batch, row)))

    def note(self, row: SkippedAt | None) -> None:
        """Remember a row, if it comes before the one that is known."""
        if row is not None and (self.first is None or row < self.first):
            self.first = row

    def add(self, other: Counters) -> None:
        """Count in what another kernel of the same step lost."""
        self.skipped += other.skipped
        self.late += other.late
        self.behind += other.behind
        self.most_behind = max(self.most_behind, other.most_behind)
        self.ahead += other.ahead
        self.note(other.first)

    def take(self) -> Counters:
        """Return what was counted, and begin at zero."""
        taken = replace(self)
        self.__dict__.update(vars(Counters()))
        return taken

    def counts(self) -> dict[str, int]:
        """Return the numbers alone, as checkpoints keep them."""
        return {name: getattr(self, name) for name in _COUNTS}

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Counters:
        """Return counters with the numbers of `counts`; those that are missing are 0."""
        skipped, late, behind, most_behind, ahead = (counts.get(name, 0) for name in _COUNTS)
        return cls(skipped, late, behind, most_behind, ahead)


class StepResources:
    """What all kernels of a step have in common in one process, for as long as a run lasts.

    Spark starts kernels with every batch, threads with every change of plan: what is dear to make
    and never changes, such as a table beside the stream, is made once.
    """

    def __init__(self) -> None:
        """Nothing is made yet."""
        self._lock = Lock()
        self._made: list[Any] = []

    def once(self, make: Callable[[], Made]) -> Made:
        """What the first one who asked has made; others wait for it."""
        with self._lock:
            if not self._made:
                self._made.append(make())
            found: Made = self._made[0]
            return found


CLOSING = 1 << 32


@dataclass(frozen=True)
class KernelContext:
    """Where a kernel stands in its flow.

    Attributes:
        step: Name of the step, for errors.
        rank: Topological number of the step (from 1), which orders timers and closings.
        inputs: Type of each input stream.
        outputs: Type of each output stream.
        depth: Number of position levels of its inputs (the deepest one).
        buckets: Number of buckets the flow's keys are hashed into.
        routing: Columns whose values decide the bucket: the key of the region, which every key in
            the region contains. Empty: the operator's own key.
        sources: Ranks of the sources whose tuples can reach this step.
        owned: Buckets of this replica, for shared operators, which must know them all; others
            between two steps, when the plan changes.
        counters: What the kernel lost on purpose, added up by whoever runs it.
        shared: The same one for all kernels of the step.
    """

    step: str
    rank: int
    inputs: tuple[StreamType, ...]
    outputs: tuple[StreamType, ...]
    depth: int
    buckets: int
    routing: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    owned: tuple[int, ...] = ()
    counters: Counters = field(default_factory=Counters)
    shared: StepResources = field(default_factory=StepResources, compare=False)

    @property
    def closing_rank(self) -> int:
        """Orders what steps emit at the end, upstream first; no source has such a rank."""
        return CLOSING + self.rank


Outputs = list[Jumbo | None]
"""One entry per output port; None where nothing came out."""


class Kernel:
    """One running copy of an operator.

    An implementer owes: `step` gets, per input port, the tuples between the previous frontier and
    this one, in sequential order, and returns the outputs of exactly those, in sequential order;
    nothing that comes out later stands before the frontier. All that is remembered is in `stores`.
    At the end of the stream it emits what it has left and forgets it, so that being told the end
    again changes nothing.
    """

    stores: tuple[Store, ...] = ()
    hears_marks: bool = False  # a clock takes the marks of the sources in; others let them pass
    condenses: bool = False  # whether several outputs in a row can be made a smaller one

    def __init__(self, context: KernelContext) -> None:
        """Remember the place in the flow."""
        self.context = context
        self.last_time: int | None = None  # greatest time of the stream, known once it is over

    def run(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """What engines call: a step, with the marks of the sources carried past it."""
        outputs = self.step(inputs, frontier)
        marks = tuple(m for j in inputs if j is not None for m in j.marks)
        if not marks or self.hears_marks:
            return outputs
        return [self._marked(port, jumbo, marks) for port, jumbo in enumerate(outputs)]

    def _marked(self, port: int, jumbo: Jumbo | None, marks: tuple[Mark, ...]) -> Jumbo:
        if jumbo is None:
            return Jumbo.empty(self.context.outputs[port].schema, 0, marks)
        return Jumbo(jumbo.batch, jumbo.positions, marks)

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """Process all input up to a frontier."""
        raise NotImplementedError

    def frontier(self, frontier: Root, port: int = 0) -> Root:
        """How far an output has come when the inputs have come to `frontier`."""
        return frontier

    def condense(self, parts: Sequence[Jumbo]) -> Jumbo:
        """What several outputs come to together; for kernels that say they can."""
        raise NotImplementedError

    def next_timer(self) -> int | None:
        """The earliest time at which something is due, None when nothing waits for time."""
        return None


class Operator:
    """Description of an operator; subclasses are values and start nothing.

    An implementer owes: the same arguments give the same types and kernels; `keeps` names only
    columns that every output tuple takes unchanged from the input tuple that caused it.
    """

    state: StateKind = StateKind.STATELESS
    key: tuple[str, ...] = ()
    in_ports: int = 1
    out_ports: tuple[str, ...] = ("out",)
    accepts_changes: bool = False
    needs_time: bool = False
    own_buckets: int | None = None
    clock: bool = False  # puts tuples in the order of event time, and can judge slices of a stream
    batch_dependent: bool = False  # by design, in a way that later steps make good
    before_shuffle: bool = False  # works only in front of the next key's routing

    def types(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Check the inputs and say what comes out."""
        for given in inputs:
            check_key_types(step, self.key, given.schema)
            if given.changelog is not None and not self.accepts_changes:
                raise BuildError(
                    step,
                    "a stream of tuples",
                    "changes, whose number depends on batching",
                    "aggregate with emit='every' or 'final', or write the changes to a sink",
                )
            if self.needs_time and given.time is None:
                raise BuildError(
                    step,
                    "a stream ordered by event time",
                    "one ordered by number",
                    "give its source time=…, or put .timed(…) before it",
                )
        return self.outputs(step, inputs)

    def outputs(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Type of each output; inputs are already checked against the declared properties."""
        raise NotImplementedError

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """Columns that pass through unchanged, which lets later steps share this one's region."""
        return frozenset()

    def levels(self, depth: int) -> int:
        """Number of position levels of the outputs when the inputs have `depth`."""
        return depth

    def kernel(self, context: KernelContext) -> Kernel:
        """A running copy for one replica."""
        raise NotImplementedError


def key_columns(key: str | Sequence[str] | None, about: About) -> tuple[str, ...]:
    """A key as the user wrote it: one name or several."""
    names = column_names(() if key is None else key, "key", about)
    if len(set(names)) < len(names):
        raise SchemaError(about, "each key column once", str(list(names)), "drop the doubled one")
    return names


def required_key(about: About, key: str | Sequence[str] | None) -> tuple[str, ...]:
    """A key as the user wrote it, which must name at least one column."""
    names = key_columns(key, about)
    if not names:
        raise BuildError(
            about, "one or several key columns", repr(key), "name the key: key='column'"
        )
    return names


def describe_row(batch: pa.RecordBatch, row: int) -> str:
    """One row as text, short enough for an error message."""
    return _cut(str(python_rows(batch.slice(row, 1))[0]))


def _shown(batch: pa.RecordBatch, row: int) -> str:
    """One row as text; a line of a file as it is."""
    if batch.num_columns == 1 and pa.types.is_string(batch.schema.field(0).type):
        return _cut(str(batch.column(0)[row]))
    return describe_row(batch, row)


def _cut(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."


def failure(step: str, error: BaseException, row: str) -> OperatorError:
    """The author's exception, with the step and the row on which it came."""
    return OperatorError(
        step,
        "a result for every tuple",
        f"{type(error).__name__}: {error} on {row}",
        "mend the operator or the data, or declare on_error='skip' or 'side'",
    )
