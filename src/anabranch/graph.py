"""The graph of a flow: steps, their ports, and the streams between them. It knows no operator.

A graph is checked while it grows: a step whose ports are all connected is typed at once, so that a
wrong column is reported where it was written. `resolve` does the rest: open ports, cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import BuildError, Subject


class StateKind(Enum):
    """What an operator remembers, which decides how it may be replicated."""

    STATELESS = "stateless"
    PARTITIONED = "partitioned"
    STATEFUL = "stateful"
    SHARED = "shared"


class Role(Enum):
    """What a step is to the graph."""

    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True)
class StreamType:
    """What flows on a stream.

    Attributes:
        schema: The columns a user sees.
        time: Type of the event time that orders the stream, None when its sequence number does.
        changelog: Key columns when a row replaces the earlier row of its key, None otherwise.
    """

    schema: pa.Schema
    time: pa.DataType | None = None
    changelog: tuple[str, ...] | None = None


@dataclass(frozen=True, order=True)
class Output:
    """One output port of a step: the name of a stream."""

    step: str
    port: int = 0


class Body(Protocol):
    """What the graph asks of whatever it wires: sources, operators and sinks.

    An implementer owes: `types` raises a BuildError naming the step when the inputs do not fit, and
    depends on nothing but its arguments.
    """

    @property
    def in_ports(self) -> int:
        """How many streams go in."""

    @property
    def out_ports(self) -> tuple[str, ...]:
        """Names of the streams that come out, the main one first."""

    def types(self, step: str, inputs: tuple[StreamType, ...]) -> tuple[StreamType, ...]:
        """Type of each output, given the type of each input."""


@dataclass
class Step:
    """A named node of the graph."""

    name: str
    role: Role
    body: Any
    inputs: list[Output | None] = field(default_factory=list)


@dataclass(frozen=True)
class Resolved:
    """A checked graph: steps in topological order, and the type of every stream."""

    order: tuple[str, ...]
    types: dict[Output, StreamType]


class Graph:
    """Steps and streams under construction."""

    def __init__(self) -> None:
        """An empty graph."""
        self.steps: dict[str, Step] = {}
        self._types: dict[Output, StreamType] = {}

    def require_free(self, name: str) -> None:
        """Raise unless a step may be called so."""
        if not name or not isinstance(name, str):
            raise BuildError(str(name), "a non-empty step name", repr(name), "name every step")
        if name in self.steps:
            raise BuildError(
                name,
                "a name used once",
                f"a second step called {name!r}",
                "rename one of the two: errors, metrics and plans refer to steps by name",
            )

    def add(self, name: str, role: Role, body: Body) -> Step:
        """Add a step with open input ports; its name must be new."""
        self.require_free(name)
        step = Step(name, role, body, [None] * body.in_ports)
        self.steps[name] = step
        try:
            self._type_when_connected(step)
        except BuildError:
            del self.steps[name]  # a refused step must not block its name
            raise
        return step

    def connect(self, source: Output, target: str, port: int = 0) -> None:
        """Let a stream flow into an input port."""
        if target not in self.steps:
            raise BuildError(
                target,
                f"one of the steps {sorted(self.steps)}",
                repr(target),
                "add the step before connecting it",
            )
        if source.step not in self.steps:
            raise BuildError(
                target,
                f"an input from one of the steps {sorted(self.steps)}",
                repr(source.step),
                "add the step before connecting it",
            )
        outs = self.steps[source.step].body.out_ports
        if not 0 <= source.port < len(outs):
            raise BuildError(
                source.step,
                f"an output port in {list(outs)}",
                str(source.port),
                "connect one that exists",
            )
        step = self.steps[target]
        if not 0 <= port < len(step.inputs):
            raise BuildError(
                target,
                f"an input port in 0..{len(step.inputs) - 1}",
                str(port),
                "connect one that exists",
            )
        if step.inputs[port] is not None:
            raise BuildError(
                target,
                f"port {port} connected once",
                f"{step.inputs[port]} and {source}",
                "put a union before it",
            )
        step.inputs[port] = source
        try:
            self._type_when_connected(step)
        except BuildError:
            step.inputs[port] = None  # a refused stream must not block the port
            raise

    def discard(self, name: str) -> None:
        """Take back a step that nothing reads yet."""
        ports = len(self.steps.pop(name).body.out_ports)
        for port in range(ports):
            self._types.pop(Output(name, port), None)

    def consumers(self, output: Output) -> list[tuple[str, int]]:
        """Every (step, input port) that reads a stream, in the order the steps were added."""
        return [
            (step.name, port)
            for step in self.steps.values()
            for port, source in enumerate(step.inputs)
            if source == output
        ]

    def successors(self, name: str) -> list[tuple[str, int]]:
        """Every (step, input port) that reads any output of a step."""
        ports = len(self.steps[name].body.out_ports)
        return [c for port in range(ports) for c in self.consumers(Output(name, port))]

    def resolve(self) -> Resolved:
        """Check the whole graph; raise on open ports, cycles and an empty graph."""
        if not any(step.role is Role.SOURCE for step in self.steps.values()):
            raise BuildError(
                Subject("flow"), "at least one source", "none", "start with flow.source(...)"
            )
        for step in self.steps.values():
            for port, source in enumerate(step.inputs):
                if source is None:
                    raise BuildError(
                        step.name,
                        f"input port {port} connected",
                        "nothing on it",
                        "connect a stream to it or remove the step",
                    )
        order = self._topological_order()
        for name in order:
            self._type(self.steps[name])
        return Resolved(order, dict(self._types))

    def type_of(self, output: Output) -> StreamType:
        """Type of a stream that can be typed already."""
        if output not in self._types:
            self.resolve()
        return self._types[output]

    def _topological_order(self) -> tuple[str, ...]:
        """Sources first; among the free steps the one added first (so the order is stable)."""
        done: list[str] = []
        waiting = dict(self.steps)
        while waiting:
            free = next(
                (n for n, s in waiting.items() if all(i and i.step in done for i in s.inputs)), None
            )
            if free is None:
                cycle = self._cycle(waiting)
                raise BuildError(
                    cycle[0],
                    "a graph without cycles",
                    "a cycle through " + " → ".join([*cycle, cycle[0]]),
                    "keep what must be remembered in operator state instead of feeding it back",
                )
            done.append(free)
            del waiting[free]
        return tuple(done)

    @staticmethod
    def _cycle(waiting: dict[str, Step]) -> list[str]:
        """Walk back along unresolved inputs until a step repeats; what lies between is a cycle."""
        path = [next(iter(waiting))]
        while True:
            name = next(i.step for i in waiting[path[-1]].inputs if i and i.step in waiting)
            if name in path:
                cycle = path[path.index(name) :][::-1]
                first = cycle.index(next(n for n in waiting if n in cycle))  # as written
                return cycle[first:] + cycle[:first]
            path.append(name)

    def _type_when_connected(self, step: Step) -> None:
        if all(i is not None and i in self._types for i in step.inputs):
            self._type(step)

    def _type(self, step: Step) -> None:
        if Output(step.name) in self._types:
            return
        inputs = tuple(self._types[i] for i in step.inputs if i is not None)
        self._check_domains(step, inputs)
        for port, kind in enumerate(step.body.types(step.name, inputs)):
            self._types[Output(step.name, port)] = kind

    @staticmethod
    def _check_domains(step: Step, inputs: tuple[StreamType, ...]) -> None:
        """Tuples ordered by time and tuples ordered by number have no common order."""
        if len({i.time for i in inputs}) > 1:
            raise BuildError(
                step.name,
                "inputs ordered alike",
                " and ".join("by number" if i.time is None else f"by {i.time}" for i in inputs),
                "give every source feeding this step a time= of the same type, or none",
            )
