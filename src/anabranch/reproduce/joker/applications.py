"""The applications of Joker's experiments, figure by figure.

Where the text gives multiplications, they are taken; where it gives throughputs, costs follow from
them. What only a picture shows is chosen here, and said so.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.graph import StateKind
from anabranch.planning.profile import OperatorProfile
from anabranch.reproduce.joker.setting import (
    OVERHEADS,
    Application,
    graph,
    in_a_row,
    multiply,
    source,
    work,
)

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
