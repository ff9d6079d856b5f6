"""The setting of Joker's experiments: its machine, its costs and its applications.

The paper reports its machine (24 hardware threads) and a few absolute throughputs. From these:
- 4096 multiplications a tuple in one thread make 80 thousand tuples a second (figure 10a), so a
  multiplication takes about 3 ns, calls and queues included. (Pipelined Fission's 95 ns would
  make 2.6 thousand tuples.)
- The costs of handing tuples to another thread and of ordering what replicas made are not
  published. They are chosen such that replicas alone bring at least 5× to the cheapest operators,
  as the paper says of figure 5; all experiments have the same.
- Sources are as fast as the paper's throughputs at saturation say, else there is no bound.

Where the text gives multiplications, the applications have them; where it gives throughputs, costs
follow from them. What only a picture shows is chosen here, and each application says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from anabranch.adapt.history import Limits
from anabranch.adapt.policies.organic import Organic
from anabranch.adapt.policy import Cadence
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
PACE = Cadence(settle=4, periods=2, most=2)
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


HAND_ON_US = OVERHEADS.thread_switch
"""A source's period is its own cost and the time to hand a tuple on."""


def read_at(rate_per_s: float, name: str = "source", rate: float = 1.0) -> OperatorProfile:
    """A source that is saturated at a rate."""
    return source(name, 1e6 / rate_per_s - HAND_ON_US, rate)


def one_region(*multiplications: float) -> Application:
    """Figures 4 to 6, 12 and 16: a source and a region with partitioned state."""
    operators = [
        multiply(f"m{number}", count, "k" if number == 1 else "")
        for number, count in enumerate(multiplications, start=1)
    ]
    return in_a_row("one-region", [source(), *operators])


def tree(multiplications: float) -> Application:
    """Figure 7a: a region that hands every tuple to two others."""
    operators = [source(), *(multiply(n, multiplications, f"k{n}") for n in "abc")]
    return graph("tree", operators, {"source": "a", "a": "bc"})


def reverse_tree(multiplications: float) -> Application:
    """Figure 7b: two regions whose tuples meet in a third; each has a source of its own here."""
    operators = [
        source("left", rate=0.5),
        source("right", rate=0.5),
        *(multiply(n, multiplications, f"k{n}") for n in "abc"),
    ]
    return graph("reverse-tree", operators, {"left": "a", "right": "b", "a": "c", "b": "c"})


def chain_of_2(multiplications: float) -> Application:
    """Figure 7c: two regions of one operator, with different keys."""
    operators = [multiply(n, multiplications, f"k{n}") for n in "ab"]
    return in_a_row("chain-of-2", [source(), *operators])


def chain_of_4(multiplications: float) -> Application:
    """Figure 7d: two regions of two operators."""
    operators = [
        multiply(name, multiplications, key)
        for name, key in (("a1", "ka"), ("a2", ""), ("b1", "kb"), ("b2", ""))
    ]
    return in_a_row("chain-of-4", [source(), *operators])


TOPOLOGIES: dict[str, Callable[[float], Application]] = {
    "tree": tree,
    "reverse tree": reverse_tree,
    "chain of 2": chain_of_2,
    "chain of 4": chain_of_4,
}


def costly_and_cheap(multiplications: float) -> Application:
    """Figure 9: the first region costs eight times as much as the second."""
    first = multiply("costly", multiplications, "k1")
    return in_a_row(
        "costly-and-cheap", [source(), first, multiply("cheap", multiplications / 8, "k2")]
    )


def selectivities() -> Application:
    """Figure 10: four operators of equal cost per tuple of the source, with others in between.

    The source is saturated at 230 thousand tuples a second, as the paper says.
    """
    return in_a_row(
        "selectivities",
        [
            read_at(230e3),
            multiply("m1", 1024, "k"),
            multiply("s1", 0, selectivity=4.0),
            multiply("m2", 256),
            multiply("s2", 0, selectivity=0.25),
            multiply("m3", 1024),
            multiply("s3", 0, selectivity=0.5),
            multiply("m4", 2048),
        ],
    )


def one_operator() -> Application:
    """Figure 11: one replica handles 500 thousand tuples a second."""
    return in_a_row("one-operator", [source(), work("m", 2.0 - HAND_ON_US, "k")])


TWO_OPERATORS_US = 0.4
"""Both operators of figure 13 together: an overhead of 5 % of the thread's time; there it is 15 %,
which the simulator would make the replicas take turns for."""


def two_operators(first: float, second: float, saturated_per_s: float | None) -> Application:
    """Figure 13: two operators with costs in a ratio; the source may be saturated at a rate."""
    unit = TWO_OPERATORS_US / (first + second)
    reader = source(cost_us=0.0) if saturated_per_s is None else read_at(saturated_per_s)
    operators = [reader, work("m1", first * unit, "k"), work("m2", second * unit)]
    return in_a_row("two-operators", operators)


def word_count() -> Application:
    """Figure 17a: the splitter is stateless; 3.2 million tuples a second saturate the source.

    What a counter costs is chosen: one handles a fifth of that, as the speedup of five says.
    """
    return in_a_row(
        "word-count",
        [read_at(3.2e6), work("split", 0.2), work("count", 1e6 / 0.64e6 - HAND_ON_US, "word")],
        keyless=frozenset({"split"}),
    )


def finance() -> Application:
    """Figure 17b: trades are averaged, quotes meet the averages; 9 million tuples in the end.

    Costs are chosen such that 4 and 6 replicas are needed for that.
    """
    operators = [
        read_at(4.5e6, "trades", 0.5),
        read_at(4.5e6, "quotes", 0.5),
        work("volume", 0.66, "symbol"),
        work("average", 0.05),
        work("bargain", 0.5, "stock"),
    ]
    edges = {
        "trades": ["volume"],
        "volume": ["average"],
        "average": ["bargain"],
        "quotes": ["bargain"],
    }
    return graph("finance", operators, edges)


def monitoring() -> Application:
    """Figure 17c: a stateless region, then one whose first operator is partitioned.

    From 2.1 to 6 million lines a second; every second line is a failure that is parsed.
    """
    return in_a_row(
        "monitoring",
        [
            read_at(6e6),
            work("filter", 0.1, selectivity=0.5),
            work("parse", 0.16),
            work("window", 0.84, "host"),
            work("cut-off", 0.06),
            work("diff", 0.04),
        ],
        keyless=frozenset({"filter", "parse"}),
    )


def compared(factor: float) -> Application:
    """Figure 21: seven operators in three regions, the one in the middle stateful.

    The text gives one of them: the third makes 20 multiplications and lets nine tenths through.
    The others are chosen here, such that the middle one bounds the throughput when all
    selectivities are 0.9, as the paper says of its chain.
    """
    passed = 0.9 * factor
    middle = OperatorProfile("mult4", multiply("mult4", 200).cost, passed, StateKind.STATEFUL)
    return in_a_row(
        "compared",
        [
            source(),
            multiply("mult1", 400, "k1", passed),
            multiply("mult2", 240, selectivity=passed),
            multiply("mult3", 20, selectivity=passed),
            middle,
            multiply("mult5", 1600, "k2", passed),
            multiply("mult6", 800, selectivity=passed),
            multiply("mult7", 400, selectivity=passed),
        ],
    )
