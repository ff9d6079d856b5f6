"""Flow and Stream: how an application is written. No word about parallelism is possible here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import pyarrow as pa

from anabranch.columns.schemas import without_dictionaries
from anabranch.compositions import Compositions
from anabranch.errors import BuildError, SchemaError, Subject, chosen
from anabranch.events import Shape, StepShape, StreamShape
from anabranch.graph import Graph, Output, Resolved, Role, StreamType
from anabranch.io.sink import Sink, require_sink
from anabranch.io.source import IdleAfter, Source, require_source
from anabranch.operators.base import Kernel, KernelContext, Operator, Outputs, whole_of
from anabranch.state.positions import Jumbo, Root

DEFAULT_BUCKETS = 256


class Order(Enum):
    """What the sinks promise: the sequential order of all tuples, or of those of one key."""

    TOTAL = "total"
    KEY = "key"


@dataclass(frozen=True)
class SourceBody:
    """A source as a step."""

    source: Source
    order: Order
    in_ports: int = 0
    out_ports: tuple[str, ...] = ("out",)

    def types(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """What the source reads, ordered by number."""
        require_source(step, self.source)
        if self.source.order is None and self.order is Order.TOTAL:
            raise BuildError(
                step,
                "a source that names what orders its tuples",
                "an unordered one",
                "name an order column, or build the flow with order='key'",
            )
        return (StreamType(without_dictionaries(self.source.schema)),)


@dataclass(frozen=True)
class SinkBody:
    """A sink as a step; its pseudo output remembers the type of what it receives."""

    sink: Sink
    in_ports: int = 1
    out_ports: tuple[str, ...] = ("written",)

    def types(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Anything can be written."""
        require_sink(step, self.sink)
        return inputs

    def kernel(self, context: KernelContext) -> Kernel:
        """Hands on what came; whoever runs it writes."""
        return SinkKernel(context)


def _idle_after(step: str, source: Source, time: object) -> Source:
    require_source(step, source)
    if not isinstance(time, timedelta) or time <= timedelta(0):
        raise BuildError(
            step, "idle_after, a time such as timedelta(seconds=5)", repr(time), "pass a timedelta"
        )
    if source.bounded or source.pushed:
        raise BuildError(
            step,
            "idle_after for a source that waits for rows",
            "one that is read to its end" if source.bounded else "one whose rows an engine brings",
            "leave idle_after out",
        )
    return IdleAfter(source, time.total_seconds())


def require_operator(step: str, operator: object) -> None:
    """Raise a BuildError for what is no operator, such as a function without a decorator."""
    if not isinstance(operator, Operator):
        raise BuildError(
            step,
            "an operator",
            type(operator).__name__,
            "decorate the function with ab.map, ab.partitioned, …",
        )


class SinkKernel(Kernel):
    """Lets everything through."""

    def step(self, inputs: Sequence[Jumbo | None], frontier: Root) -> Outputs:
        """What came in."""
        return list(inputs)


class Flow:
    """A streaming application: sources, operators, sinks, wired into a graph.

    Example:
        >>> from anabranch.io import memory, collect
        >>> flow = Flow("hello")
        >>> rows = memory([{"word": "a"}, {"word": "b"}])
        >>> _ = (
        ...     flow.source("words", rows)
        ...     .filter("some", lambda b: [True, False])
        ...     .sink("out", collect())
        ... )
        >>> flow
        Flow 'hello': words → some → out
    """

    def __init__(
        self, name: str, *, buckets: int = DEFAULT_BUCKETS, order: Order | str = Order.TOTAL
    ) -> None:
        """An empty flow; `buckets` is fixed for the life of its state."""
        self.order = chosen(Subject("flow", name), "order", order, Order)
        self.name, self.buckets = name, whole_of(Subject("flow", name), "buckets", buckets)
        self.graph = Graph()

    def source(
        self,
        name: str,
        source: Source,
        *,
        time: str | None = None,
        lateness: int | timedelta = 0,
        ahead: int | timedelta | None = None,
        idle_after: timedelta | None = None,
    ) -> Stream:
        """Read from a source; `time` names the column that orders its tuples from here on.

        Tuples more than `lateness` behind the greatest time seen before them, or more than `ahead`
        beyond it, leave by `.late`. See `Stream.timed`.

        Event time waits for the slowest source and, where several parts are read side by side, for
        the slowest part. Those of this source that have had no rows for `idle_after` are not waited
        for until they have rows again; these are late if event time has passed them meanwhile.
        """
        if time is None and (lateness or ahead is not None):
            raise BuildError(
                name,
                "time=, the column that lateness= and ahead= are about",
                f"lateness={lateness!r} and ahead={ahead!r} without it",
                "name the column: time='at'",
            )
        if idle_after is not None:
            source = _idle_after(name, source, idle_after)
        self.graph.add(name, Role.SOURCE, SourceBody(source, self.order))
        stream = Stream(self, Output(name))
        if time is None:
            return stream
        try:
            return stream.timed(f"{name}.time", time, lateness=lateness, ahead=ahead)
        except BuildError:
            self.graph.discard(name)  # a refused step must not block its name
            raise

    def add(self, name: str, operator: Operator) -> Stream:
        """Add an operator with open ports, to be wired by `connect`."""
        require_operator(name, operator)
        self.graph.add(name, Role.OPERATOR, operator)
        return Stream(self, Output(name))

    def connect(self, stream: Stream, target: str | Stream, port: int = 0) -> None:
        """Let a stream flow into a port of a step."""
        name = target if isinstance(target, str) else target.output.step
        if not isinstance(stream, Stream):
            raise BuildError(
                name, "a stream", type(stream).__name__, "pass what a step of the flow returns"
            )
        if stream.flow is not self:
            raise BuildError(
                name,
                f"a stream of flow {self.name!r}",
                f"one of flow {stream.flow.name!r}",
                "build what belongs together in one flow",
            )
        self.graph.connect(stream.output, name, port)

    def resolve(self) -> Resolved:
        """Check the whole graph."""
        return self.graph.resolve()

    def names(self, role: Role) -> tuple[str, ...]:
        """Steps of one role, in topological order."""
        return tuple(n for n in self.resolve().order if self.graph.steps[n].role is role)

    def sinks(self) -> dict[str, Sink]:
        """The sinks by the names of their steps, in topological order."""
        return {name: self.graph.steps[name].body.sink for name in self.names(Role.SINK)}

    def shape(self) -> Shape:
        """The graph as a value, to be drawn."""
        resolved = self.resolve()
        ends: dict[str, Source | Sink] = {**self.sources(), **self.sinks()}
        steps = []
        for name in resolved.order:
            step = self.graph.steps[name]
            body = ends.get(name, step.body)
            state = getattr(step.body, "state", None)
            columns = ", ".join(f"{f.name}: {f.type}" for f in resolved.types[Output(name)].schema)
            promise = f", {body.traits.guarantee.value}" if step.role is Role.SINK else ""
            steps.append(
                StepShape(
                    name,
                    step.role.value,
                    state.value if state else "",
                    tuple(getattr(step.body, "key", ())),
                    f"{getattr(body, '__name__', type(body).__name__)}{promise} → {columns}",
                )
            )
        streams = [
            StreamShape(i.step, self.graph.steps[i.step].body.out_ports[i.port], name)
            for name in resolved.order
            for i in self.graph.steps[name].inputs
            if i is not None
        ]
        return Shape(tuple(steps), tuple(streams))

    def fingerprint(self) -> str:
        """Tells whether a plan belongs to this flow: steps, keys, buckets and wiring, hashed."""
        resolved = self.resolve()
        steps = []
        for name in resolved.order:
            step = self.graph.steps[name]
            state = getattr(step.body, "state", None)
            steps.append(
                [
                    name,
                    step.role.value,
                    state.value if state else "",
                    list(getattr(step.body, "key", ())),
                    getattr(step.body, "own_buckets", None),
                    [[i.step, i.port] for i in step.inputs if i is not None],
                ]
            )
        text = json.dumps([self.name, self.buckets, steps])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def contexts(self) -> dict[str, KernelContext]:
        """Where each operator stands: rank, types, position depth, sources that reach it."""
        resolved = self.resolve()
        depths: dict[str, int] = {}
        sources: dict[str, frozenset[int]] = {}
        contexts: dict[str, KernelContext] = {}
        source_ranks = {name: rank for rank, name in enumerate(self.names(Role.SOURCE))}
        for rank, name in enumerate(resolved.order, start=1):
            step = self.graph.steps[name]
            inputs = [i for i in step.inputs if i is not None]
            depth = max((depths[i.step] for i in inputs), default=0)
            sources[name] = frozenset().union(*(sources[i.step] for i in inputs))
            if step.role is Role.SOURCE:
                sources[name] = frozenset([source_ranks[name]])
            depths[name] = step.body.levels(depth) if step.role is Role.OPERATOR else depth
            contexts[name] = KernelContext(
                step=name,
                rank=rank,
                inputs=tuple(resolved.types[i] for i in inputs),
                outputs=tuple(
                    resolved.types[Output(name, p)] for p in range(len(step.body.out_ports))
                ),
                depth=depth,
                buckets=self.buckets,
                sources=tuple(sorted(sources[name])),
            )
        return contexts

    def sources(self) -> dict[str, Source]:
        """Return the sources by name, in topological order: the first one has rank 0."""
        return {name: self.graph.steps[name].body.source for name in self.names(Role.SOURCE)}

    def reading(self, sources: Mapping[str, Source]) -> Flow:
        """The same flow with other sources of the same columns: for tests and replays."""
        self._require_steps(Role.SOURCE, sources)
        replaced: dict[str, Source] = {}
        for name, source in sources.items():
            require_source(name, source)
            old = self.sources()[name]
            schema = old.schema
            if isinstance(old, IdleAfter) and not source.bounded:
                source = old.around(source)
            replaced[name] = source
            if not source.schema.equals(schema):
                raise SchemaError(
                    name,
                    f"the columns {schema.names}",
                    f"{source.schema.names}",
                    "give a source of the same schema",
                )
        return self._with({name: SourceBody(s, self.order) for name, s in replaced.items()})

    def writing(self, sinks: Mapping[str, Sink]) -> Flow:
        """The same flow with other sinks: results go elsewhere, plans stay valid.

        Example:
            >>> from anabranch.apps import word_count
            >>> from anabranch.io import parquet
            >>> flow = word_count.build(text="a b a")
            >>> flow.writing({"out": parquet("counts/")}).fingerprint() == flow.fingerprint()
            True
        """
        self._require_steps(Role.SINK, sinks)
        return self._with({name: SinkBody(sink) for name, sink in sinks.items()})

    def _require_steps(self, role: Role, names: Iterable[str]) -> None:
        known = self.names(role)
        if unknown := sorted(set(names) - set(known)):
            raise BuildError(
                Subject("flow", self.name),
                f"{role.value}s among {list(known)}",
                str(unknown),
                f"replace {role.value}s that the flow has",
            )

    def _with(self, bodies: Mapping[str, Any]) -> Flow:
        """A copy in which some steps have other bodies."""
        copy = Flow(self.name, buckets=self.buckets, order=self.order)
        for name in self.resolve().order:
            step = self.graph.steps[name]
            copy.graph.add(name, step.role, bodies.get(name, step.body))
            for port, output in enumerate(step.inputs):
                if output is not None:
                    copy.graph.connect(output, name, port)
        return copy

    def _repr_svg_(self) -> str | None:
        """The picture that notebooks show; None while something is missing, then they print."""
        from anabranch.pictures.svg import flow_svg  # few processes draw

        try:
            return flow_svg(self.shape(), self.name)
        except BuildError:
            return None

    def __repr__(self) -> str:
        """Name and steps, in topological order."""
        try:
            steps = self.resolve().order
        except BuildError:
            steps = tuple(self.graph.steps)
        return f"Flow {self.name!r}: " + " → ".join(steps)


@dataclass(frozen=True)
class Stream(Compositions):
    """One output port of a step; using it twice sends every tuple both ways."""

    flow: Flow
    output: Output

    @property
    def type(self) -> StreamType:
        """Columns, time and changelog key."""
        return self.flow.graph.type_of(self.output)

    @property
    def schema(self) -> pa.Schema:
        """The columns that flow here."""
        return self.type.schema

    def out(self, name: str) -> Stream:
        """Another output of the same step, by name."""
        ports = self.flow.graph.steps[self.output.step].body.out_ports
        if name not in ports:
            raise BuildError(
                self.output.step,
                f"an output among {list(ports)}",
                repr(name),
                "late exists behind time=, errors behind on_error='side'",
            )
        return Stream(self.flow, Output(self.output.step, ports.index(name)))

    @property
    def late(self) -> Stream:
        """Tuples that came too late for their source's allowed lateness."""
        return self.out("late")

    @property
    def errors(self) -> Stream:
        """Tuples on which the author's code raised, with the error."""
        return self.out("errors")

    def apply(self, name: str, operator: Operator, *others: Stream) -> Stream:
        """Send this stream (and others, port by port) through an operator."""
        require_operator(name, operator)
        streams = (self, *others)
        if len(streams) > operator.in_ports:
            raise BuildError(
                name,
                f"{operator.in_ports} input stream(s)",
                f"{len(streams)}",
                "give as many streams as the operator has ports",
            )
        self.flow.graph.add(name, Role.OPERATOR, operator)
        try:
            for port, stream in enumerate(streams):
                self.flow.connect(stream, name, port)
        except BuildError:
            self.flow.graph.discard(name)
            raise
        return Stream(self.flow, Output(name))

    def sink(self, name: str, sink: Sink) -> Flow:
        """Write the stream; gives the flow back."""
        self.flow.graph.add(name, Role.SINK, SinkBody(sink))
        try:
            self.flow.graph.connect(self.output, name)
        except BuildError:
            self.flow.graph.discard(name)
            raise
        return self.flow

    def require_free(self, name: str) -> None:
        """Raise unless a step of the flow may be called so."""
        self.flow.graph.require_free(name)
