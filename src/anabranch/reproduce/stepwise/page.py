"""How the reproduction of the stepwise profiling paper looks: tables, pictures, text and page."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.pictures import plots
from anabranch.reproduce.pages import Table, claims_table, summary
from anabranch.reproduce.stepwise.claims import nodes_for
from anabranch.reproduce.stepwise.cluster import NETWORK_MB_S, QUEUE, SERIALIZING_NS
from anabranch.reproduce.stepwise.profiling import METHODS, READINGS, STELA, STEPWISE, Scaling
from anabranch.reproduce.stepwise.reproduction import Reproduction
from anabranch.reproduce.stepwise.topologies import Topology, figure_11

COMMAND = "anabranch reproduce stepwise"
FILES = "stepwise-"
RATE = "tuples/s"
NAMES = {"latency_ms": "bound on latency (ms)", "unit": "slice", "k": "k"}
PARTS = {"latency_ms": "a", "unit": "b", "k": "c"}


def tables(found: Reproduction) -> list[Table]:
    """The claims first, then what they rest on, figure by figure."""
    return [
        claims_table(found.claims),
        _topologies(),
        *(_figure_11(name, runs) for name, runs in found.figure_11.items()),
        _by_number("Figure 12a: longer lines", "operators", found.figure_12a),
        _by_number("Figure 12b: WC on more nodes", "nodes", found.figure_12b),
        _figure_13(found),
        _nodes_for(found),
        *(_figure_14(name, runs) for name, runs in found.figure_14.items()),
    ]


def text(found: Reproduction) -> str:
    """All tables for a terminal."""
    told = summary(found.claims, found.machine, found.seconds)
    return "\n\n".join([told, *(table.text() for table in tables(found))])


def page(found: Reproduction) -> str:
    """All tables as a Markdown page, with a picture behind each that has one."""
    about = (
        "A stepwise auto-profiling method for performance optimization of streaming applications, "
        "by Liu, Dastjerdi, Calheiros, Qu and Buyya, ACM Transactions on Autonomous and Adaptive "
        "Systems, 2017.\nThe paper's claims beside what our policies `stepwise`, `stela` and "
        f"`threshold` do on simulated clusters. Written by `{COMMAND} --out DIR`; every verdict "
        "follows from the rule beside it."
    )
    told = summary(found.claims, found.machine, found.seconds)
    parts = ["# Stepwise profiling, reproduced", about, told, _differences(found), REASONS]
    drawn = _drawn(found)
    for table in tables(found):
        parts.append(table.markdown())
        if table.title in drawn:
            parts.append(f"![{table.title}]({_file(table.title)})")
    return "\n\n".join(parts) + "\n"


def pictures(found: Reproduction) -> dict[str, str]:
    """An SVG text for each figure, by file name."""
    return {
        _file(title): plots.lines(title, across, f"throughput ({RATE})", series)
        for title, (across, series) in _drawn(found).items()
    }


def _drawn(found: Reproduction) -> dict[str, tuple[str, dict[str, plots.Points]]]:
    """Series by title of the table that they belong to."""
    drawn: dict[str, tuple[str, dict[str, plots.Points]]] = {}
    for name, runs in found.figure_11.items():
        drawn[f"Figure 11: {name}"] = ("round", {m: _rounds(run) for m, run in runs.items()})
    for title, unit, lines in (
        ("Figure 12a: longer lines", "operators", found.figure_12a),
        ("Figure 12b: WC on more nodes", "nodes", found.figure_12b),
    ):
        drawn[title] = ("round", {f"{n} {unit}": _rounds(run) for n, run in lines.items()})
    drawn[FIGURE_13] = (
        "nodes",
        {
            method: [(float(n), each[method].final) for n, each in found.figure_13.items()]
            for method in (STEPWISE, STELA)
        },
    )
    for name, varied in found.figure_14.items():
        series = {f"{NAMES[name]} {value:g}": _rounds(run) for value, run in varied.items()}
        drawn[_title_14(name)] = ("round", series)
    return drawn


FIGURE_13 = "Figure 13: WC, what nodes reach"
REASONS = "\n".join(
    [
        "Why some claims do not come out, as far as the journals of the runs tell:",
        "",
        "- Under full load tuples wait in front of some operator whatever k is, so the third step "
        "begins with every k and ends by revocations (figures 11d, 11e and 14c).",
        "- A throttle shortens queues without starving operators, so even the strictest bound "
        "costs next to nothing (14a).",
        "- Tasks beyond the cores harm only by unevenness, so finer and coarser ratios end alike "
        "(14b), and so do the tasks that Stela adds in vain (11f).",
        "- Sleeping needs no core, so SWC can do what WC can, give or take how tasks fall on nodes "
        "(11d, 11e). In Diamond the sleepers are the dearest, and the ratios leave the operator "
        "that parses enough (11c).",
        "- Nearly all tuples cross nodes on 6 nodes as on 14, so their part of the work is the "
        "same (12b).",
    ]
)


def _title_14(name: str) -> str:
    return f"Figure 14{PARTS[name]}: {NAMES[name]}"


def _rounds(run: Scaling) -> plots.Points:
    return [(float(number + 1), each.rate) for number, each in enumerate(run.rounds)]


def _file(title: str) -> str:
    name = title.lower().replace(":", "").replace(",", "").replace("(", "").replace(")", "")
    return f"{FILES}{name.replace(' ', '-')}.svg"


def _differences(found: Reproduction) -> str:
    return "\n".join(
        [
            "What differs from the paper's setting:",
            "",
            "- Nodes of two cores are simulated; nothing runs on Storm. Tasks are placed in turn, "
            f"queues hold {QUEUE} tuples, one from another node costs {SERIALIZING_NS:g} ns for "
            f"each 64 bytes, and a node sends {NETWORK_MB_S:g} MB/s. There are no garbage "
            "collector, acknowledgements or context switches: too many tasks harm only where they "
            "load nodes unevenly or make more tuples cross nodes.",
            "- The costs of operators are not published. Those in the table below are chosen, so "
            "numbers of tuples and of tasks are ours; directions and reasons can be compared.",
            "- Sleeping operators and sources take time but no core: they sit beside the nodes.",
            "- Output in proportion to input is all that the simulator knows: what ranks is made "
            "known to the profiler by name, and passes on one tuple in a hundred.",
            f"- A round has {READINGS} readings of two seconds after six seconds, there 20 of 30 "
            "after ten minutes. Rounds in which the load is turned down are not counted.",
            "- Capacity counts processor time, so nobody seems overloaded where cores are short: "
            "the baselines stop there. Neither of them adds readers to sources.",
            f"- `stela` and `threshold` get as many rounds as `stepwise`, at least "
            f"{found.effort.least}.",
        ]
    )


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
    return Table(
        f"Figure 11: {name}",
        f"Throughput in {RATE} on {nodes} nodes, round by round; tasks of sources and operators.",
        ("round", *header),
        rows,
    )


def _cells(run: Scaling, number: int) -> list[str]:
    each = run.rounds[number]
    return [f"{each.rate:,.0f}", " ".join(map(str, each.tasks))]


def _by_number(title: str, what: str, runs: Mapping[int, Scaling]) -> Table:
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
    )


def _figure_13(found: Reproduction) -> Table:
    return Table(
        FIGURE_13,
        f"Final throughput in {RATE}; stela with as many rounds as stepwise profiling.",
        ("nodes", STEPWISE, STELA),
        [
            (str(n), f"{runs[STEPWISE].final:,.0f}", f"{runs[STELA].final:,.0f}")
            for n, runs in found.figure_13.items()
        ],
    )


def _nodes_for(found: Reproduction) -> Table:
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
    return Table(
        _title_14(name),
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
    )
