"""The setting of Joker's experiments: its machine, its costs, and applications to run there.

The paper tells its machine (24 hardware threads) and a few absolute throughputs. From these:
- 4096 multiplications a tuple in one thread make 80 thousand tuples a second (figure 10a), so a
  multiplication takes about 3 ns, calls and queues included. (Pipelined Fission's 95 ns would
  make 2.6 thousand tuples.)
- What it costs to hand tuples to another thread and to order what replicas made is not published.
  It is chosen such that replicas alone bring at least 5× to the cheapest operators, as the paper
  says of figure 5; all experiments have the same.
- Sources are as fast as the paper's throughputs at saturation say, else no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from anabranch.adapt.policies.organic import Organic
from anabranch.adapt.policy import Pace
from anabranch.adapt.seen import Limits
from anabranch.engines.simulator.flows import Idle
from anabranch.engines.simulator.scenario import JOKER_SWITCH, Scenario
from anabranch.flow import Flow, Order, Stream
from anabranch.graph import StateKind
from anabranch.io.collect_sink import collect
from anabranch.io.memory_source import memory
from anabranch.planning.machine import Machine
from anabranch.planning.profile import OperatorProfile, Overheads, Profile, StreamProfile

HARDWARE_THREADS = 24
MACHINE = Machine.of_cores(HARDWARE_THREADS)
LIMITS = Limits(cores=HARDWARE_THREADS, replicas=16, threads=200)
"""Joker bounds replicas at 16, and threads by nothing."""

MULTIPLICATION_US = 0.0025
CALL_US = 0.15
"""Calling an operator with a tuple, and moving the tuple within a pipeline."""
OVERHEADS = Overheads(thread_switch=0.02, replication=0.002)
SOURCE_US = 0.1
BUCKETS, JOKERS_BUCKETS = 2520, 271
"""Up to ten replicas get the same share of 2520; Joker's public sources have 271."""

SCENARIO = Scenario(switch=JOKER_SWITCH, step_s=0.05)
PACE = Pace(settle=4, periods=2, most=2)
"""Runs here have no noise: two seconds show what the paper averages thirty for."""
JOKER = Organic(stateless=False, pace=PACE)
"""The thresholds of the paper: 0.8, 0.2 and 0.1."""


class Work(Idle):
    """An operator of an experiment: lets everything through, and costs what its profile says.

    Args:
        operator: What is known of it.
        ports: Streams that come into it.
        keys: Whether keys are known in front of it: else its region ends before a partitioned one.
    """

    def __init__(self, operator: OperatorProfile, ports: int, keys: bool) -> None:
        super().__init__(operator, ports)
        self._keys = keys

    def keeps(self, given: pa.Schema) -> frozenset[str]:
        """Everything, unless it is the one that makes the keys."""
        return super().keeps(given) if self._keys else frozenset()


@dataclass(frozen=True)
class Application:
    """A flow with its costs.

    Attributes:
        name: What it is called.
        operators: Producers first; those that nothing comes into are sources.
        streams: Between them.
        keyless: Operators that know no keys yet.
        buckets: Parts of the state; 2520, so that up to ten replicas get the same share.
    """

    name: str
    operators: tuple[OperatorProfile, ...]
    streams: tuple[StreamProfile, ...]
    keyless: frozenset[str] = field(default=frozenset())
    buckets: int = BUCKETS

    def profile(self) -> Profile:
        """Its costs."""
        return Profile(self.operators, self.streams, OVERHEADS, "us", app=self.name)

    def flow(self) -> Flow:
        """The flow; what nothing comes out of ends in a sink that costs nothing."""
        columns = {c for o in self.operators for c in o.key} or {"value"}
        schema = pa.schema([(name, pa.int64()) for name in sorted(columns)])
        flow = Flow(self.name, order=Order.KEY, buckets=self.buckets)
        made: dict[str, Stream] = {}
        for operator in self.operators:
            given = [made[s.producer] for s in self.streams if s.consumer == operator.name]
            if not given:
                made[operator.name] = flow.source(operator.name, memory([], schema))
                continue
            work = Work(operator, len(given), operator.name not in self.keyless)
            made[operator.name] = given[0].apply(operator.name, work, *given[1:])
        producers = {stream.producer for stream in self.streams}
        for name, stream in made.items():
            if name not in producers:
                stream.sink(f"{name}-out", collect())
        return flow


def source(name: str = "source", cost_us: float = SOURCE_US, rate: float = 1.0) -> OperatorProfile:
    """One thread that reads."""
    return OperatorProfile(name, cost_us, state=StateKind.STATEFUL, rate=rate)


def multiply(
    name: str, multiplications: float, key: str = "", selectivity: float = 1.0
) -> OperatorProfile:
    """The operator of the micro-benchmarks: so many multiplications a tuple.

    Example:
        >>> multiply("m", 1024).cost
        2.71
    """
    return work(name, CALL_US + multiplications * MULTIPLICATION_US, key, selectivity)


def work(name: str, cost_us: float, key: str = "", selectivity: float = 1.0) -> OperatorProfile:
    """An operator of a cost; with a key it is partitioned."""
    state = StateKind.PARTITIONED if key else StateKind.STATELESS
    return OperatorProfile(name, round(cost_us, 9), selectivity, state, key=(key,) if key else ())


def in_a_row(
    name: str, operators: Sequence[OperatorProfile], keyless: frozenset[str] = frozenset()
) -> Application:
    """Operators one behind the other, a source first."""
    streams = tuple(
        StreamProfile(one.name, other.name, one.selectivity) for one, other in pairwise(operators)
    )
    return Application(name, tuple(operators), streams, keyless)


def graph(
    name: str, operators: Sequence[OperatorProfile], edges: Mapping[str, Sequence[str]]
) -> Application:
    """Operators with the ones that each hands its tuples to."""
    streams = tuple(
        StreamProfile(one.name, other, one.selectivity)
        for one in operators
        for other in edges.get(one.name, ())
    )
    return Application(name, tuple(operators), streams)
