"""How the reproduction of Joker looks: tables, text and page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from anabranch.reproduce.joker.adapted import Adapted, Shapes
from anabranch.reproduce.joker.curves import Curves
from anabranch.reproduce.joker.models import MISTAKEN, Compared
from anabranch.reproduce.joker.reproduction import Reproduction
from anabranch.reproduce.joker.setting import (
    CALL_US,
    HARDWARE_THREADS,
    JOKERS_BUCKETS,
    MULTIPLICATION_US,
    OVERHEADS,
    SOURCE_US,
)
from anabranch.reproduce.joker.trace_claims import shape
from anabranch.reproduce.joker.traces import Traces
from anabranch.reproduce.pages import Table, claims_table

COMMAND = "anabranch reproduce joker"
FILES = "joker-"
"""What names of pictures begin with."""


def tables(found: Reproduction) -> list[Table]:
    """The claims first, then what they rest on, figure by figure."""
    curves = {each.figure: _curves(each) for each in found.curves}
    traces = {each.figure: _steps(each) for each in found.traces}
    in_order = sorted(curves | traces, key=lambda figure: int(figure.removeprefix("figure ")))
    return [
        claims_table(found.claims),
        *((curves | traces)[figure] for figure in in_order),
        _plans(found.compared),
    ]


def text(found: Reproduction) -> str:
    """All tables for a terminal."""
    return "\n\n".join([_summary(found), *(table.text() for table in tables(found))])


def page(found: Reproduction) -> str:
    """All tables as a Markdown page, with a picture behind each that has one."""
    about = (
        "Joker: Elastic stream processing with organic adaptation, by Kahveci and Gedik, Journal "
        "of Parallel and Distributed Computing, 2019.\nThe paper's claims beside what the policy "
        f"`organic` does on the simulator. Written by `{COMMAND} --out DIR`; every verdict follows "
        "from the rule beside it."
    )
    parts = ["# Joker, reproduced", about, _summary(found), _differences(found)]
    for table in tables(found):
        parts.append(table.markdown())
        name = table.title.partition(":")[0]
        if name.startswith("Figure"):
            parts.append(f"![{table.title}]({file_name(name)})")
    return "\n\n".join(parts) + "\n"


def file_name(figure: str) -> str:
    """The file that a figure's picture is in."""
    return f"{FILES}{figure.lower().replace(' ', '-').replace('–', '-to-')}.svg"


def _summary(found: Reproduction) -> str:
    counts = Counter(claim.verdict.value for claim in found.claims)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    return (
        f"{len(found.claims)} claims: {told}.\n"
        f"Simulated in {found.seconds:.0f} s, in virtual time: the same numbers on every machine."
    )


def _differences(found: Reproduction) -> str:
    return "\n".join(
        [
            "What differs from the paper's setting:",
            "",
            f"- {HARDWARE_THREADS} hardware threads, each as fast as if it were alone; there two "
            "share a core. Runs have no noise, so one run stands for the paper's three, and two "
            "seconds show what it averages thirty for. A change of plan costs what the paper "
            "reports: a region lacks 30 % of its speed for 3 s.",
            f"- A multiplication takes {1e3 * MULTIPLICATION_US:g} ns, the call of an operator "
            f"{CALL_US:g} µs: 4096 multiplications make the 80 thousand tuples a second of figure "
            f"10a. A source takes {SOURCE_US:g} µs a tuple where the paper tells no rate that "
            "saturates it.",
            f"- Handing a tuple to another thread takes {1e3 * OVERHEADS.thread_switch:g} ns, "
            f"ordering what replicas made {1e3 * OVERHEADS.replication:g} ns for each doubling: "
            "chosen, since the paper does not tell: of three sets the one that agrees best with "
            "figure 5, so that figures 5, 6, 8, 9 and 12 agree partly by choice. Replicas take "
            "turns for both, and a thread that waits for its turn is not busy.",
            "- Costs of the applications and of figures 14 and 21 are ours, too. Those of word "
            "count, of finance, of network monitoring and of figure 14 were chosen such that the "
            "policy gets to the paper's plans and speedups: only the way there says anything.",
            f"- State has 2520 parts, so that up to ten replicas have equal shares; Joker has "
            f"{JOKERS_BUCKETS}, with which replicas alone would end at {found.speedup_271:.1f}×.",
            "- Figures 10 and 20 run on the simulator, and the policy is also shown the "
            "throughputs that the paper measured, plan by plan.",
            "- Joker's policy as published: no replicas of stateless regions, one thread for each "
            "source, one more replica or pipeline at a time.",
        ]
    )


def _curves(curves: Curves) -> Table:
    names = list(curves.series)
    rows = []
    for number, x in enumerate(curves.xs):
        points = [curves.series[name][number] for name in names]
        cells = (f"{p.speedup:.1f}× ({_shapes(p.shapes)}, {p.threads} threads)" for p in points)
        rows.append((f"{x:g}", *cells))
    return Table(
        f"{curves.figure.capitalize()}: speedup by {curves.varied}",
        "Throughput over that of one thread a region; pipelines × replicas of each region, and "
        "all threads with those of sources.",
        (curves.varied, *names),
        rows,
    )


def _shapes(shapes: Shapes) -> str:
    return ", ".join(f"{len(cuts)} × {replicas}" for cuts, replicas in shapes.values())


def _steps(traces: Traces) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, run in traces.runs.items():
        rows.append((name, "0", "", f"{run.before_per_s / 1e3:,.0f}", "", "beginning"))
        rows += [
            (
                name,
                f"{step.at_s:.0f}",
                _lengths(step.shapes),
                f"{step.rate_per_s * (1 + step.gain) / 1e3:,.0f}",
                f"{step.gain:+.0%}",
                "kept" if step.kept else "reverted",
            )
            for step in run.steps
        ]
        rows.append(_end(name, run))
    return Table(
        f"{traces.figure.capitalize()}: {traces.title}",
        "What was tried, second by second; lengths of the pipelines × replicas of each region.",
        ("run", "second", "plan", "thousand tuples/s", "gain", "verdict"),
        rows,
    )


def _end(name: str, run: Adapted) -> tuple[str, ...]:
    rate = f"{run.after_per_s / 1e3:,.0f}"
    return (name, "end", _lengths(run.shapes), rate, f"{run.speedup:.2f}×", "stays")


def _lengths(shapes: Mapping[str, tuple[tuple[int, ...], int]]) -> str:
    return ", ".join(f"{name} {shape(*each)}" for name, each in shapes.items())


def _plans(found: tuple[Compared, ...]) -> Table:
    rows = []
    for each in found:
        for name, planned in (
            ("Joker", each.joker),
            ("model", each.model),
            (f"model told {MISTAKEN:g}× the overheads", each.mistaken),
        ):
            rate = f"{planned.rate_per_s / 1e3:,.0f}"
            plan = _lengths(planned.shapes)
            rows.append((f"{each.factor:g}", name, plan, str(planned.threads), rate))
    return Table(
        "Figures 22–32: Joker and the plans of Pipelined Fission's heuristic",
        "A chain as in figure 21, with costs chosen here; all selectivities are multiplied by the "
        "factor.",
        ("factor", "who", "plan", "threads", "thousand tuples/s"),
        rows,
    )
