"""Regions: the longest runs of operators that can be replicated as a whole.

Joker §3.2, with these deviations:
- A run of stateless operators is a region of its own that may be replicated, since order is
  restored behind it (from Pipelined Fission); so stateful regions hold stateful operators only.
- A stateless operator before a partitioned one joins its region only if its input carries the key
  *unchanged* up to there (`Operator.keeps`), not merely a column of that name.
- Shared operators stand alone: their input is copied to every replica.
- So do clocks, which put a stream in the order of event time, where their tuples come as runs of
  one source's rows. Each replica judges some of the runs, by what a small memory holds of those
  before. Elsewhere a clock is a stateful operator like any other.
- Sinks, like sources, have regions of their own. The replicas of a sink take ranges of positions in
  turn, so that order is kept without a place that all rows pass.

Regions follow from the flow alone and never change while it lives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from anabranch.events import Shape
from anabranch.flow import Flow, Order
from anabranch.graph import Output, Role, StateKind, Step


class RegionKind(Enum):
    """How a region may be replicated."""

    SOURCE = "source"
    STATELESS = "stateless"
    PARTITIONED = "partitioned"
    STATEFUL = "stateful"
    SHARED = "shared"
    CLOCK = "clock"
    SINK = "sink"


class Serial(Enum):
    """Why all rows of a region pass one place, whatever a plan says; the words follow its name."""

    STATEFUL = "is stateful"
    CLOCK = "puts its stream in the order of event time"
    ONE_BUCKET = "has one bucket"
    ONE_READER = "is read in the order in which its rows come"
    KEY_ORDER = "keeps the order of each key only"
    EVENT_TIME = "writes in the order of event time"
    CHANGELOG = "takes a changelog"
    DATAFRAMES = "takes DataFrames"
    STAGED = "gets its rows in the process that started the run"
    """Replicas of such a sink are allowed, and make nothing faster."""


CLOCK_REPLICAS_COST = 0.25
"""Several replicas of a clock cost so much more, as a part of its cost (decision 0046)."""

_KINDS = {
    StateKind.STATELESS: RegionKind.STATELESS,
    StateKind.PARTITIONED: RegionKind.PARTITIONED,
    StateKind.STATEFUL: RegionKind.STATEFUL,
    StateKind.SHARED: RegionKind.SHARED,
}


@dataclass(frozen=True)
class Region:
    """A run of steps with one entry and one exit.

    Attributes:
        name: The step that gives the region its kind: the first partitioned one, else the first.
        kind: How it may be replicated.
        steps: In the order of the stream.
        key: Columns that route a tuple to its bucket, for partitioned regions.
        buckets: How many buckets its state has; 0 without state.
        ordered: Whether it could tell the order of its input, so that order must be restored.
        serial: Why all its rows pass one place; None where replicas share them.
    """

    name: str
    kind: RegionKind
    steps: tuple[str, ...]
    key: tuple[str, ...] = ()
    buckets: int = 0
    ordered: bool = True
    serial: Serial | None = None

    @property
    def mapped(self) -> bool:
        """Whether a plan says which replica owns which bucket."""
        return self.kind in (RegionKind.PARTITIONED, RegionKind.SHARED)

    @property
    def replicable(self) -> bool:
        """Whether more than one replica is allowed."""
        return self.serial in (None, Serial.STAGED)

    @property
    def replicas_cost(self) -> float:
        """Return what several replicas cost more than one, as a part of the cost of its steps."""
        return CLOCK_REPLICAS_COST if self.kind is RegionKind.CLOCK else 0.0


def regions(flow: Flow) -> tuple[Region, ...]:
    """The regions of a flow, upstream first.

    Example:
        >>> from anabranch.apps import word_count
        >>> for region in regions(word_count.build()):
        ...     print(region.kind.value, region.steps)
        source ('lines',)
        stateless ('split', 'count.combine')
        partitioned ('count',)
        sink ('out',)
    """
    order, sources = flow.resolve().order, flow.sources()
    found: list[Region] = []
    placed: set[str] = set()
    for name in order:
        step = flow.graph.steps[name]
        if step.role is Role.SOURCE:
            serial = Serial.ONE_READER if sources[name].one_reader else None
            found.append(Region(name, RegionKind.SOURCE, (name,), ordered=False, serial=serial))
        elif step.role is Role.SINK:
            ordered = flow.order is Order.TOTAL or _loses_key_order(found, step)
            serial = _why_one_writer(flow, step) if ordered else Serial.KEY_ORDER
            region = Region(name, RegionKind.SINK, (name,), ordered=ordered, serial=serial)
            found.append(region)
        elif name not in placed:
            chain = _chain(flow, name)
            placed.update(chain)
            found.extend(_cut(flow, chain))
    return tuple(sorted(found, key=lambda r: order.index(r.steps[0])))


def _loses_key_order(found: list[Region], sink: Step) -> bool:
    """Whether a sink reads from replicas among which the tuples of a key are dealt out."""
    producer = sink.inputs[0].step if sink.inputs[0] is not None else ""
    dealing = (RegionKind.STATELESS, RegionKind.CLOCK)
    return any(r.kind in dealing and producer in r.steps for r in found)


def _why_one_writer(flow: Flow, sink: Step) -> Serial | None:
    """Return why replicas of a sink cannot take ranges of positions in turn, or gain nothing.

    Ranges are counted in rows of sources: nothing says how many rows a stretch of event time has.
    A changelog needs only the order of each key. Rows of a staged sink pass the driver in any case.
    """
    types = [flow.resolve().types[given] for given in sink.inputs if given is not None]
    traits = flow.sinks()[sink.name].traits
    reasons = {
        Serial.CHANGELOG: any(each.changelog is not None for each in types),
        Serial.EVENT_TIME: any(each.time is not None for each in types),
        Serial.DATAFRAMES: traits.dataframes,
        Serial.STAGED: traits.staged,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def profiled_state(step: Step, region: Region) -> StateKind:
    """Return the state of a step as profiles have it: what keeps its region from being replicated.

    Replicas of sources and sinks share nothing. Those of a clock share a memory, which is there in
    profiles as what they cost more (`Region.replicas_cost`).
    """
    if step.role is Role.OPERATOR and region.kind is not RegionKind.CLOCK:
        state: StateKind = step.body.state
        return state
    return StateKind.STATELESS if region.serial is None else StateKind.STATEFUL


def sources_of(flow: Flow, step: Step) -> set[str]:
    """Return the sources that reach a step."""
    if step.role is Role.SOURCE:
        return {step.name}
    upstream = {given.step for given in step.inputs if given is not None}
    return {name for each in upstream for name in sources_of(flow, flow.graph.steps[each])}


def _chain(flow: Flow, first: str) -> tuple[str, ...]:
    """Follow the stream while there is one way on and one way in."""
    chain = [first]
    while True:
        successors = flow.graph.successors(chain[-1])
        if len(successors) != 1:
            return tuple(chain)
        following = flow.graph.steps[successors[0][0]]
        # Fused steps hand on their main output only.
        if following.role is not Role.OPERATOR or following.inputs != [Output(chain[-1])]:
            return tuple(chain)
        chain.append(following.name)


def _cut(flow: Flow, chain: tuple[str, ...]) -> list[Region]:
    """Cut a chain where neighbours are incompatible."""
    runs: list[tuple[StateKind, tuple[str, ...], list[str]]] = []  # kind, key, steps
    for name in chain:
        body = flow.graph.steps[name].body
        kind, key, steps = runs[-1] if runs else (None, (), [])
        if body.state is StateKind.PARTITIONED:
            if (
                kind is StateKind.PARTITIONED
                and set(key) <= set(body.key)
                and (_carries(flow, [*steps, name], key))
            ):
                steps.append(name)
                continue
            suffix = (
                _longest_carrying(flow, steps, name, body.key)
                if (kind is StateKind.STATELESS)
                else []
            )
            if suffix:
                del steps[len(steps) - len(suffix) :]
                if not steps:
                    runs.pop()
            runs.append((body.state, body.key, [*suffix, name]))
        elif _joins(flow, kind, key, steps, name):
            steps.append(name)
        else:
            runs.append((body.state, (), [name]))
    return [_region(flow, kind, key, tuple(steps)) for kind, key, steps in runs]


def _joins(
    flow: Flow, kind: StateKind | None, key: tuple[str, ...], steps: list[str], name: str
) -> bool:
    state = flow.graph.steps[name].body.state
    if state is StateKind.STATELESS:
        if kind is StateKind.PARTITIONED:
            return _carries(flow, [*steps, name], key)
        return kind is StateKind.STATELESS
    clocks = any(_judges_slices(flow, each) for each in (*steps, name))
    return bool(state is StateKind.STATEFUL and kind is StateKind.STATEFUL and not clocks)


def _longest_carrying(flow: Flow, steps: list[str], name: str, key: tuple[str, ...]) -> list[str]:
    for start in range(len(steps)):
        run = steps[start:]
        # What combines before the shuffle belongs in front of it, with the steps upstream.
        if any(flow.graph.steps[n].body.before_shuffle for n in run):
            continue
        if _carries(flow, [*run, name], key):
            return run
    return []


def _carries(flow: Flow, run: list[str], key: tuple[str, ...]) -> bool:
    """Whether the key passes unchanged from the input of the first step to that of the last."""
    types = flow.resolve().types
    for name in run[:-1]:
        step = flow.graph.steps[name]
        inputs = [types[i].schema for i in step.inputs if i is not None]
        if not all(set(key) <= set(s.names) for s in inputs):
            return False
        if not set(key) <= step.body.keeps(inputs[0]):
            return False
    last = flow.graph.steps[run[-1]]
    return all(set(key) <= set(types[i].schema.names) for i in last.inputs if i is not None)


def _region(flow: Flow, kind: StateKind, key: tuple[str, ...], steps: tuple[str, ...]) -> Region:
    bodies = {name: flow.graph.steps[name].body for name in steps}
    name = next((n for n, b in bodies.items() if b.state is kind), steps[0])
    buckets = {
        StateKind.STATELESS: 0,
        StateKind.PARTITIONED: flow.buckets,
        StateKind.STATEFUL: 1,
        StateKind.SHARED: bodies[name].own_buckets or flow.buckets,
    }[kind]
    ordered = kind is not StateKind.STATELESS
    if _judges_slices(flow, name):
        return Region(name, RegionKind.CLOCK, steps, key, buckets, ordered)
    serial = Serial.ONE_BUCKET if buckets == 1 else None
    if kind is StateKind.STATEFUL:
        clocks = all(bodies[step].clock for step in steps)
        serial = Serial.CLOCK if clocks else Serial.STATEFUL
    return Region(name, _KINDS[kind], steps, key, buckets, ordered, serial)


def _judges_slices(flow: Flow, name: str) -> bool:
    """Return whether a step is a clock that gets runs of one source's rows."""
    step = flow.graph.steps[name]
    if not (step.role is Role.OPERATOR and step.body.clock):
        return False
    while len(step.inputs) == 1 and step.inputs[0] is not None:
        step = flow.graph.steps[step.inputs[0].step]
        if step.role is Role.SOURCE:
            return not flow.sources()[step.name].pushed
        if step.body.state is not StateKind.STATELESS:
            return False
    return False  # tuples of one row come on several ways


@dataclass(frozen=True)
class Edge:
    """A stream from one region into another.

    Attributes:
        number: Place in the flow's list of such streams.
        producer: Region that it leaves.
        out_port: Port of the producer's last step.
        consumer: Region that it enters.
        in_port: Port of the consumer's first step.
    """

    number: int
    producer: str
    out_port: int
    consumer: str
    in_port: int


def region_edges(flow: Flow, found: tuple[Region, ...]) -> list[Edge]:
    """Streams that cross from one region to another."""
    entries = {r.steps[0]: r.name for r in found}
    edges: list[Edge] = []
    for region in found:
        for port in range(len(flow.graph.steps[region.steps[-1]].body.out_ports)):
            for step, in_port in flow.graph.consumers(Output(region.steps[-1], port)):
                edges.append(Edge(len(edges), region.name, port, entries[step], in_port))
    return edges


def needs_order(flow: Flow, region: Region) -> bool:
    """Whether order has to be restored in front of a region.

    A changelog is read by the last row of each key. Behind the step that makes it, those come from
    one replica, in order; behind stateless steps they come from any of their replicas.
    """
    step = flow.graph.steps[region.steps[0]]
    if step.role is Role.SINK and flow.contexts()[step.name].inputs[0].changelog is not None:
        before = {given.step for given in step.inputs if given is not None}
        producers = (r for r in regions(flow) if before.intersection(r.steps))
        return any(r.kind is RegionKind.STATELESS for r in producers)
    return region.ordered


# What a flow looks like: its graph as a value, with the regions that plans are made of.


def shape_of(flow: Flow) -> Shape:
    """The shape of a flow, its steps told which region is theirs, and why that is serial.

    Example:
        >>> from anabranch.apps import word_count
        >>> [(s.step, s.region) for s in shape_of(word_count.build()).steps]
        [('lines', 'lines'), ('split', 'split'), ('count.combine', 'split'), \
('count', 'count'), ('out', 'out')]
    """
    homes = {step: region for region in regions(flow) for step in region.steps}
    shape = flow.shape()
    steps = (
        replace(s, region=region.name, serial=region.serial.value if region.serial else "")
        for s in shape.steps
        for region in [homes[s.step]]
    )
    return replace(shape, steps=tuple(steps))
