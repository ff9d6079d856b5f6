"""The paper's six topologies (§6.1.1) and its clusters (§6.1), simulated.

The topologies are published, the costs of their operators are not: costs here are chosen, and
plausible for the paper's machines of 2 GHz. Every operator deals its input out by a key of its own,
so that each is a region with its own replicas, as each has its own tasks in Storm, which shuffles
as evenly. Sources and operators that sleep take time but no processor.

Nodes have two cores. A plan's replicas are placed on nodes round-robin, as Storm's scheduler does,
whenever a policy asks for a plan; the policy does not see the placement. A tuple from another node
costs its consumer time for every cache line, which stands for serialization, and no node sends
more than its network takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from anabranch.engines.engine import Options
from anabranch.engines.simulator.engine import SimulatorEngine
from anabranch.engines.simulator.flows import OUTPUT, PLACE, Idle, last_operators
from anabranch.engines.simulator.scenario import Scenario
from anabranch.events import Event, Reconfiguration
from anabranch.flow import Flow, Stream
from anabranch.graph import StateKind
from anabranch.io.collect_sink import collect
from anabranch.io.memory_source import memory
from anabranch.planning.machine import Machine
from anabranch.planning.models.model import Model
from anabranch.planning.plan import Plan
from anabranch.planning.profile import OperatorProfile, Profile, StreamProfile

BUCKETS = 720
"""Divided evenly by most numbers of replicas that occur."""
READ_MS = 0.1
RANDOM_NUMBERS_MS = 1.0
PARSE_MS = 0.3
SLEEP_MS = 5.0
TWEET_BYTES, TEXT_BYTES, WORD_BYTES = 2500.0, 120.0, 20.0


@dataclass(frozen=True)
class Topology:
    """A topology.

    Attributes:
        name: What the paper calls it.
        profile: What its operators cost, in milliseconds.
        sleeping: Operators that wait and need no processor.
        logic: Operators whose output does not grow with their input.
        latency_ms: The bound on latency.
    """

    name: str
    profile: Profile
    sleeping: frozenset[str] = frozenset()
    logic: tuple[str, ...] = ()
    latency_ms: float = 500.0

    @property
    def operators(self) -> tuple[str, ...]:
        """All but the sources."""
        return tuple(o.name for o in self.profile.operators if self.profile.into(o.name))

    def flow(self) -> Flow:
        """A flow of that shape; its sources are those of the profile."""
        keys = [column for operator in self.profile.operators for column in operator.key]
        schema = pa.schema([(name, pa.int64()) for name in keys])
        flow = Flow(self.name, order="key", buckets=BUCKETS)
        streams: dict[str, Stream] = {}
        for operator in self.profile.operators:
            given = [streams[s.producer] for s in self.profile.into(operator.name)]
            if given:
                idle = Idle(operator, len(given))
                streams[operator.name] = given[0].apply(operator.name, idle, *given[1:])
            else:
                streams[operator.name] = flow.source(operator.name, memory([], schema))
        for name in last_operators(self.profile):
            streams[name].sink(name + OUTPUT, collect())
        return flow


def word_count() -> Topology:
    """WC: parse JSON, split into twelve words, count."""
    return Topology("WC", _line(_tweets(), *_counting()))


def synthetic_word_count() -> Topology:
    """SWC: the same with an operator that keeps each tweet for a millisecond."""
    wait = _operator("wait", 1.0, TWEET_BYTES)
    return Topology("SWC", _line(_tweets(), wait, *_counting()), sleeping=frozenset({"wait"}))


def linear(operators: int = 3) -> Topology:
    """A line of operators that all draw random numbers."""
    steps = [_operator(f"op{n + 2}", RANDOM_NUMBERS_MS, TEXT_BYTES) for n in range(operators)]
    return Topology("Linear", _line(_tweets(), *steps))


def mixed_line(operators: int) -> Topology:
    """A line of operators that draw random numbers, parse, or sleep, in turn."""
    costs = (RANDOM_NUMBERS_MS, PARSE_MS, SLEEP_MS)
    steps = [
        _operator(f"op{n + 2}", costs[n % 3], TEXT_BYTES if n else TWEET_BYTES)
        for n in range(operators)
    ]
    sleeping = frozenset(step.name for step in steps if step.cost == SLEEP_MS)
    return Topology(f"Linear, {operators} operators", _line(_tweets(), *steps), sleeping)


def star() -> Topology:
    """Two sources, one operator for both, two behind it; all parse, and pass on much data."""
    sources = [OperatorProfile(f"op{n}", READ_MS) for n in (1, 2)]
    centre = _operator("op3", PARSE_MS, 4 * TWEET_BYTES)
    ends = [_operator(f"op{n}", PARSE_MS, 4 * TWEET_BYTES) for n in (4, 5)]
    pairs = {("op1", "op3"): 1.0, ("op2", "op3"): 1.0, ("op3", "op4"): 1.0, ("op3", "op5"): 1.0}
    return Topology("Star", _graph([*sources, centre, *ends], pairs), latency_ms=100.0)


def diamond() -> Topology:
    """One source for four operators of all kinds, and one behind them."""
    costs = {"op2": RANDOM_NUMBERS_MS, "op3": PARSE_MS, "op4": SLEEP_MS, "op5": SLEEP_MS}
    middle = [_operator(name, cost, TWEET_BYTES) for name, cost in costs.items()]
    last = _operator("op6", 0.05, TEXT_BYTES)
    # What is parsed passes on more, so that its stream is the greatest.
    pairs = {("op1", name): 1.0 for name in costs}
    pairs |= {(name, "op6"): 4.0 if name == "op3" else 1.0 for name in costs}
    given = [OperatorProfile("op1", READ_MS), *middle, last]
    return Topology("Diamond", _graph(given, pairs), sleeping=frozenset({"op4", "op5"}))


def sentiment_analysis() -> Topology:
    """TSA: eleven operators in a tree of eight stages; the last ranking has one task."""
    rank = OperatorProfile("op10 rank all", 0.05, 1.0, StateKind.STATEFUL)
    given = [
        _tweets(),
        _operator("op2 store", 0.08, TWEET_BYTES),
        _operator("op3 language", 0.6, TWEET_BYTES),
        _operator("op4 sentiment", 0.5, TEXT_BYTES),
        _operator("op5 average", 0.02, TEXT_BYTES),
        _operator("op6 report", 0.01, WORD_BYTES),
        _operator("op7 hashtags", 0.05, TEXT_BYTES),
        _operator("op8 count", 0.03, WORD_BYTES),
        _operator("op9 rank", 0.05, WORD_BYTES),
        rank,
        _operator("op11 show", 0.05, WORD_BYTES),
    ]
    pairs = {
        ("spout", "op2 store"): 1.0,
        ("spout", "op3 language"): 1.0,
        ("op3 language", "op4 sentiment"): 0.4,
        ("op4 sentiment", "op5 average"): 1.0,
        ("op5 average", "op6 report"): 1.0,
        ("op4 sentiment", "op7 hashtags"): 1.0,
        ("op7 hashtags", "op8 count"): 0.6,
        ("op8 count", "op9 rank"): 1.0,
        ("op9 rank", "op10 rank all"): 0.01,
        ("op10 rank all", "op11 show"): 1.0,
    }
    return Topology("TSA", _graph(given, pairs), logic=("op9 rank",))


def figure_11() -> tuple[Topology, ...]:
    """The six of figure 11."""
    return (
        linear(),
        star(),
        diamond(),
        word_count(),
        synthetic_word_count(),
        sentiment_analysis(),
    )


def _tweets() -> OperatorProfile:
    return OperatorProfile("spout", READ_MS)


def _counting() -> list[OperatorProfile]:
    return [
        _operator("parse", PARSE_MS, TWEET_BYTES),
        _operator("split", 0.28, TEXT_BYTES, 12.0),
        _operator("count", 0.035, WORD_BYTES),
    ]


def _operator(name: str, cost: float, tuple_bytes: float, passes: float = 1.0) -> OperatorProfile:
    key = (f"key of {name}",)
    return OperatorProfile(name, cost, passes, StateKind.PARTITIONED, key, tuple_bytes=tuple_bytes)


def _line(*operators: OperatorProfile) -> Profile:
    pairs = {(a.name, b.name): a.selectivity for a, b in pairwise(operators)}
    return _graph(list(operators), pairs)


def _graph(operators: list[OperatorProfile], pairs: Mapping[tuple[str, str], float]) -> Profile:
    streams = tuple(StreamProfile(a, b, passes) for (a, b), passes in pairs.items())
    return Profile(tuple(operators), streams, unit="ms")


CORES_PER_NODE = 2
SERIALIZING_NS = 1000.0
"""Time that one cache line of a tuple from another node takes."""
NETWORK_MB_S = 60.0
NETWORK_US = 300.0
SLEEPERS = 48
"""Sockets for those who sleep: room for twice as many tasks."""
NOISE = 0.1
QUEUE, JUMBO = 1024, 16
"""Tuples in front of a task, as in Storm, and tuples that are handed over together."""
PERIOD_S = 2.0


def machine_of(nodes: int) -> Machine:
    """Nodes, and room for those who sleep."""
    sockets = nodes + SLEEPERS
    row = [SERIALIZING_NS] * sockets
    apart = tuple(tuple(0.0 if i == j else row[j] for j in range(sockets)) for i in range(sockets))
    return Machine(
        f"{nodes} nodes",
        sockets,
        CORES_PER_NODE,
        latency_ns=apart,
        nodes=sockets,
        network_us=NETWORK_US,
        network_mb_s=NETWORK_MB_S,
    )


def placed(plan: Plan, topology: Topology, nodes: int) -> Plan:
    """A plan with its tasks dealt out to nodes in turn, and sleepers to themselves.

    Sinks that write nothing stay where they are.
    """
    turn = {True: 0, False: 0}

    def places(region: str, replicas: int) -> Iterator[str]:
        sleeps = region in topology.sleeping
        for _ in range(replicas):
            socket = nodes + turn[True] % SLEEPERS if sleeps else turn[False] % nodes
            turn[sleeps] += 1
            yield f"{PLACE}{socket}"

    known = topology.profile.by_name
    return replace(
        plan,
        regions=tuple(
            replace(r, placement=tuple(places(r.region, r.replicas))) if r.region in known else r
            for r in plan.regions
        ),
    )


def unplaced(plan: Plan) -> Plan:
    """A plan as policies know it."""
    return replace(plan, regions=tuple(replace(r, placement=()) for r in plan.regions))


class Cluster:
    """A run of a topology on a cluster: an engine as policies see it.

    Args:
        topology: What runs.
        nodes: On how many nodes.
        seed: Decides the noise.
    """

    def __init__(self, topology: Topology, nodes: int, seed: int = 0) -> None:
        self.flow: Flow = topology.flow()
        self.cores = CORES_PER_NODE * nodes
        self._topology, self._nodes = topology, nodes
        self.engine = SimulatorEngine(
            self.flow,
            placed(Plan.sequential(self.flow), topology, nodes),
            Options(),
            topology.profile,
            machine_of(nodes),
            Scenario(noise=NOISE, noise_s=1.0, queue_tuples=QUEUE, jumbo_tuples=JUMBO, step_s=0.1),
            seed=seed,
            period_s=PERIOD_S,
        )

    @property
    def plan(self) -> Plan:
        """The plan in force, without places."""
        return unplaced(self.engine.plan)

    def model(self) -> Model | None:
        """Nobody knows what plans promise."""
        return None

    def reconfigure(self, plan: Plan) -> None:
        """Request another plan."""
        self.engine.reconfigure(placed(plan, self._topology, self._nodes))

    def start(self, tell: Callable[[Event], None]) -> None:
        """Begin; events tell of plans without places."""

        def hear(event: Event) -> None:
            if isinstance(event, Reconfiguration):
                event = replace(event, before=_bare(event.before), after=_bare(event.after))
            tell(event)

        self.engine.start(hear)

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.engine.wait(seconds)


def _bare(plan: str) -> str:
    return unplaced(Plan.from_json(plan)).to_json()
