"""A stepwise auto-profiling method (Liu et al., 2017): figures 11 to 14 on simulated clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.pictures import plots
from papers.claims import Claim, Machine
from papers.paper import Paper, Picture, Reproduction, Table, Tell
from papers.stepwise.claims import claims_of, nodes_for
from papers.stepwise.cluster import (
    NETWORK_MB_S,
    QUEUE,
    SERIALIZING_NS,
    Topology,
    figure_11,
    mixed_line,
    sentiment_analysis,
    word_count,
)
from papers.stepwise.profiling import METHODS, READINGS, STELA, STEPWISE, Runs, Scaling

PARAMETERS: Mapping[str, tuple[float, ...]] = {
    "latency_ms": (300.0, 500.0, 700.0),
    "unit": (0.1, 0.3, 0.5),
    "k": (1.5, 2.0, 3.0),
}
"""Table 3; the one in the middle is the default."""
RATE = "tuples/s"
NAMES = {"latency_ms": "bound on latency (ms)", "unit": "slice", "k": "k"}
PARTS = {"latency_ms": "a", "unit": "b", "k": "c"}


@dataclass(frozen=True)
class Effort:
    """How much is simulated.

    Attributes:
        nodes: Of figure 11.
        rounds: Configurations of stepwise profiling at most; the others get as many, or `least`.
        least: Configurations of the others at least.
        topologies: Of figure 11; None for all.
        lengths: Operators of the lines of figure 12 (a).
        sizes: Nodes of figure 12 (b).
        platforms: Nodes of figure 13.
        parameter_nodes: Nodes of figure 14.
        parameters: Which ones figure 14 varies.
    """

    nodes: int = 6
    rounds: int = 20
    least: int = 12
    topologies: tuple[str, ...] | None = None
    lengths: tuple[int, ...] = (6, 8, 12)
    sizes: tuple[int, ...] = (6, 10, 14)
    platforms: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 14)
    parameter_nodes: int = 4
    parameters: tuple[str, ...] = tuple(PARAMETERS)


@dataclass(frozen=True)
class Results:
    """All that was simulated.

    Attributes:
        figure_11: By topology and method.
        figure_12a: Stepwise profiling, by operators.
        figure_12b: Stepwise profiling, by nodes.
        figure_13: By nodes and method.
        figure_14: Stepwise profiling, by parameter and its value.
    """

    figure_11: dict[str, dict[str, Scaling]]
    figure_12a: dict[int, Scaling]
    figure_12b: dict[int, Scaling]
    figure_13: dict[int, dict[str, Scaling]]
    figure_14: dict[str, dict[float, Scaling]]


def measure(effort: Effort, tell: Tell) -> Results:
    """Simulate everything, one figure after the other."""
    runs = Runs(effort.rounds, effort.least)
    compared = {}
    for topology in figure_11():
        if effort.topologies is None or topology.name in effort.topologies:
            tell(f"figure 11: {topology.name} on {effort.nodes} nodes")
            compared[topology.name] = runs.methods(topology, effort.nodes, METHODS)
    tell("figure 12: longer lines, and more nodes")
    lines = {n: runs.scaling(mixed_line(n), STEPWISE, effort.nodes) for n in effort.lengths}
    sizes = {n: runs.scaling(word_count(), STEPWISE, n) for n in effort.sizes}
    tell("figure 13: what nodes are needed for")
    needed = {n: runs.methods(word_count(), n, (STEPWISE, STELA)) for n in effort.platforms}
    tell("figure 14: parameters")
    varied = {
        name: {
            value: runs.scaling(
                sentiment_analysis(), STEPWISE, effort.parameter_nodes, **_other(name, value)
            )
            for value in PARAMETERS[name]
        }
        for name in effort.parameters
    }
    return Results(compared, lines, sizes, needed, varied)


def _other(name: str, value: float) -> dict[str, Any]:
    """A parameter, unless it has its default."""
    return {} if value == PARAMETERS[name][1] else {name: value}


def claims(found: Results, machine: Machine) -> list[Claim]:
    """Judge the claims that the runs at hand allow to judge."""
    return claims_of(
        found.figure_11, found.figure_12a, found.figure_12b, found.figure_13, found.figure_14
    )


def tables(found: Reproduction[Effort, Results]) -> list[Table]:
    """Return the tables figure by figure."""
    results = found.results
    return [
        _topologies(),
        *(_figure_11(name, runs) for name, runs in results.figure_11.items()),
        _by_number("Figure 12a: longer lines", "operators", results.figure_12a),
        _by_number("Figure 12b: WC on more nodes", "nodes", results.figure_12b),
        _figure_13(results),
        _nodes_for(results),
        *(_figure_14(name, runs) for name, runs in results.figure_14.items()),
    ]


def differences(found: Reproduction[Effort, Results]) -> list[str]:
    """Return what differs from the paper's setting."""
    return [
        "Nodes of two cores are simulated; nothing runs on Storm. Tasks are placed in turn, "
        f"queues hold {QUEUE} tuples, one from another node costs {SERIALIZING_NS:g} ns for "
        f"each 64 bytes, and a node sends {NETWORK_MB_S:g} MB/s. There are no garbage "
        "collector, acknowledgements or context switches: too many tasks harm only where they "
        "load nodes unevenly or make more tuples cross nodes.",
        "The costs of operators are not published. Those in the table below are chosen, so "
        "numbers of tuples and of tasks are ours; directions and reasons can be compared.",
        "Sleeping operators and sources take time but no core: they sit beside the nodes.",
        "Output in proportion to input is all that the simulator knows: what ranks is made "
        "known to the profiler by name, and passes on one tuple in a hundred.",
        f"A round has {READINGS} readings of two seconds after six seconds, there 20 of 30 "
        "after ten minutes. Rounds in which the load is turned down are not counted.",
        "Capacity counts processor time, so nobody seems overloaded where cores are short: "
        "the baselines stop there. Neither of them adds readers to sources.",
        f"`stela` and `threshold` get as many rounds as `stepwise`, at least {found.effort.least}.",
    ]


def _picture(title: str, across: str, series: Mapping[str, plots.Points]) -> Picture:
    name = "".join(letter for letter in title.lower() if letter not in ":,()")
    return Picture(
        f"stepwise-{name.replace(' ', '-')}.svg",
        lambda: plots.lines(title, across, f"throughput ({RATE})", series),
    )


def _rounds(run: Scaling) -> plots.Points:
    return [(float(number + 1), each.rate) for number, each in enumerate(run.rounds)]


def _topologies() -> Table:
    return Table(
        "Topologies",
        "Milliseconds a tuple that comes in, sources without their cost; * sleeps.",
        ("topology", "operators", "latency bound"),
        [(each.name, _costs(each), f"{each.latency_ms:g} ms") for each in figure_11()],
    )


def _costs(topology: Topology) -> str:
    told = []
    for name in topology.operators:
        operator = topology.profile.by_name[name]
        told.append(f"{name} {operator.cost:g}{'*' if name in topology.sleeping else ''}")
    return ", ".join(told)


def _figure_11(name: str, runs: Mapping[str, Scaling]) -> Table:
    rows = []
    for number in range(max(len(run.rounds) for run in runs.values())):
        cells = [str(number + 1)]
        for method in METHODS:
            rounds = runs[method].rounds
            cells += _cells(runs[method], number) if number < len(rounds) else ["", ""]
        rows.append(tuple(cells))
    header = [column for method in METHODS for column in (method, "tasks")]
    nodes = next(iter(runs.values())).nodes
    title, series = f"Figure 11: {name}", {m: _rounds(run) for m, run in runs.items()}
    return Table(
        title,
        f"Throughput in {RATE} on {nodes} nodes, round by round; tasks of sources and operators.",
        ("round", *header),
        rows,
        _picture(title, "round", series),
    )


def _cells(run: Scaling, number: int) -> list[str]:
    each = run.rounds[number]
    return [f"{each.rate:,.0f}", " ".join(map(str, each.tasks))]


def _by_number(title: str, what: str, runs: Mapping[int, Scaling]) -> Table:
    series = {f"{number} {what}": _rounds(run) for number, run in runs.items()}
    return Table(
        title,
        f"Stepwise profiling; throughput in {RATE}.",
        (what, "rounds", "first", "final", "gain", "tasks in the end"),
        [
            (
                str(number),
                str(len(run.rounds)),
                f"{run.first:,.0f}",
                f"{run.final:,.0f}",
                f"{run.final / run.first - 1:.0%}",
                " ".join(map(str, run.rounds[-1].tasks)),
            )
            for number, run in runs.items()
        ],
        _picture(title, "round", series),
    )


def _figure_13(found: Results) -> Table:
    title = "Figure 13: WC, what nodes reach"
    series = {
        method: [(float(n), each[method].final) for n, each in found.figure_13.items()]
        for method in (STEPWISE, STELA)
    }
    return Table(
        title,
        f"Final throughput in {RATE}; stela with as many rounds as stepwise profiling.",
        ("nodes", STEPWISE, STELA),
        [
            (str(n), f"{runs[STEPWISE].final:,.0f}", f"{runs[STELA].final:,.0f}")
            for n, runs in found.figure_13.items()
        ],
        _picture(title, "nodes", series),
    )


def _nodes_for(found: Results) -> Table:
    return Table(
        "Figure 13: nodes for a target",
        f"Fewest of the simulated sizes that reach a throughput in {RATE}.",
        ("target", STEPWISE, STELA, "saved"),
        [
            (f"{target:,.0f}", str(ours), str(theirs), f"{saved:.0%}")
            for target, ours, theirs, saved in nodes_for(found.figure_13)
        ],
    )


def _figure_14(name: str, runs: Mapping[float, Scaling]) -> Table:
    title = f"Figure 14{PARTS[name]}: {NAMES[name]}"
    series = {f"{NAMES[name]} {value:g}": _rounds(run) for value, run in runs.items()}
    return Table(
        title,
        f"TSA; throughput in {RATE}.",
        (NAMES[name], "rounds", "first", "best", "final", "median latency"),
        [
            (
                f"{value:g}",
                str(len(run.rounds)),
                f"{run.first:,.0f}",
                f"{max(r.rate for r in run.rounds):,.0f}",
                f"{run.final:,.0f}",
                f"{run.rounds[-1].latency_ms:,.0f} ms",
            )
            for value, run in runs.items()
        ],
        _picture(title, "round", series),
    )


PAPER = Paper(
    name="stepwise",
    title="Stepwise profiling",
    citation="A stepwise auto-profiling method for performance optimization of streaming "
    "applications, by Liu, Dastjerdi, Calheiros, Qu and Buyya, ACM Transactions on Autonomous and "
    "Adaptive Systems, 2017.",
    beside="what our policies `stepwise`, `stela` and `threshold` do on simulated clusters",
    full=Effort(),
    quick=Effort(
        rounds=14,
        least=6,
        topologies=("Linear", "WC", "SWC", "TSA"),
        lengths=(6,),
        sizes=(6, 14),
        platforms=(2, 6, 14),
        parameters=("unit",),
    ),
    measure=measure,
    results=Results,
    claims=claims,
    tables=tables,
    differences=differences,
    reasons=(
        "Under full load tuples wait in front of some operator whatever k is, so the third step "
        "begins with every k and ends by revocations (figures 11d, 11e and 14c).",
        "A throttle shortens queues without starving operators, so even the strictest bound "
        "costs next to nothing (14a).",
        "Tasks beyond the cores harm only by unevenness, so finer and coarser ratios end alike "
        "(14b), and so do the tasks that Stela adds in vain (11f).",
        "Sleeping needs no core, so SWC can do what WC can, give or take how tasks fall on nodes "
        "(11d, 11e). In Diamond the sleepers are the dearest, and the ratios leave the operator "
        "that parses enough (11c).",
        "Nearly all tuples cross nodes on 6 nodes as on 14, so their part of the work is the "
        "same (12b).",
    ),
    virtual=True,
)
