"""Policies side by side: medians, 95th percentiles, places, and who is as good in everything.

A policy *dominates* another if it is at least as good in all four measures and better in one.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from harness import Report
from policies_runs import Score

from anabranch.adapt.registry import DEFAULT

MEASURES = ("changes", "regret", "over", "rescales")
MORE = ("first",)
LEVELS = ("median", "p95")
MEDIAN_CHANGES, P95_CHANGES = 2, 4

Row = dict[str, float]
Table = Mapping[str, Row]


@dataclass(frozen=True)
class Done:
    """What policies did in one scenario."""

    number: int
    kind: str
    scores: Mapping[str, Score]


def quantile(values: Sequence[float], part: float) -> float:
    """The least of the values that such a part of them does not exceed.

    It is one of them: beside infinite ones, there is nothing in between.
    """
    ordered = sorted(values)
    return ordered[max(0, ceil(part * len(ordered)) - 1)] if ordered else 0.0


def values(done: Sequence[Done], policy: str, measure: str) -> list[float]:
    """All values of a measure: one per scenario, or one per while in which changes were needed."""
    found: list[float] = []
    for each in done:
        value = getattr(each.scores[policy], measure)
        found += value if isinstance(value, tuple) else [value]
    return found


def summary(done: Sequence[Done], policies: Sequence[str]) -> dict[str, Row]:
    """By policy: median, 95th percentile and mean of each measure."""
    found: dict[str, Row] = {}
    for policy in policies:
        row: Row = {}
        for measure in (*MEASURES, *MORE):
            known = values(done, policy, measure)
            row[f"{measure}_median"] = quantile(known, 0.5)
            row[f"{measure}_p95"] = quantile(known, 0.95)
            if measure in ("changes", "first"):
                row[f"{measure}_never"] = sum(v == inf for v in known) / max(1, len(known))
            else:
                row[f"{measure}_mean"] = statistics.fmean(known)
        row["failures"] = sum(values(done, policy, "failures"))
        found[policy] = row
    return found


def dominators(table: Table, policy: str, level: str) -> list[str]:
    """Policies that dominate one, at the median or at the 95th percentile."""
    own = [table[policy][f"{measure}_{level}"] for measure in MEASURES]
    found = []
    for other, row in table.items():
        theirs = [row[f"{measure}_{level}"] for measure in MEASURES]
        pairs = list(zip(theirs, own, strict=True))
        if other != policy and all(a <= b for a, b in pairs) and any(a < b for a, b in pairs):
            found.append(other)
    return found


def place(table: Table, policy: str, column: str) -> int:
    """1 for the best; equals share a place."""
    return 1 + sum(row[column] < table[policy][column] for row in table.values())


def as_json(done: Sequence[Done], policies: Sequence[str]) -> str:
    """One object, as `write_docs.py` takes it: a row of figures for each policy, and bars."""
    table = summary(done, policies)
    report = Report("policies", claim(done, policies))
    rows: dict[str, dict[str, Any]] = {
        policy: {**row, "dominated_by": ", ".join(_dominated(table, policy))}
        for policy, row in table.items()
    }
    if DEFAULT in table:
        columns = [f"{measure}_{level}" for measure in MEASURES for level in LEVELS]
        rows[f"place of {DEFAULT}"] = {c: place(table, DEFAULT, c) for c in columns}
        add_bars(report, table)
    found = json.loads(report.to_json())
    return json.dumps(_finite({**found, "figures": rows}))


def claim(done: Sequence[Done], policies: Sequence[str]) -> str:
    """What the figures shall show."""
    needed = sum(len(each.scores[policies[0]].changes) for each in done)
    return (
        f"`{DEFAULT}` finds a plan within 5 % of the best that a search in the simulator finds in "
        "two changes, and no policy is as good in all of changes, regret, over-provisioning and "
        f"rescales per hour: {len(done)} random flows, machines, loads and troubles, {needed} "
        f"times in which `{policies[0]}` had to change something"
    )


def add_bars(report: Report, table: Table) -> None:
    """What is claimed of the default policy."""
    own = table[DEFAULT]
    report.add_bar(f"{DEFAULT}_changes_median", own["changes_median"], MEDIAN_CHANGES, False)
    report.add_bar(f"{DEFAULT}_changes_p95", own["changes_p95"], P95_CHANGES, False)
    for level in LEVELS:
        better = len(dominators(table, DEFAULT, level))
        report.add_bar(f"policies_that_dominate_{DEFAULT}_at_{level}", better, 0, False)


def _dominated(table: Table, policy: str) -> list[str]:
    return [f"{other} ({level})" for level in LEVELS for other in dominators(table, policy, level)]


def _finite(value: Any) -> Any:
    """JSON knows no infinite numbers."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return "never" if value == inf else value


# For people


def show_scenarios(done: Sequence[Done], policies: Sequence[str]) -> None:
    """Each scenario and policy: changes while by while, regret, over-provisioning, rescales."""
    width = 30
    print(f"{'id':>4} {'kind':20}", *(f"{name:>{width}}" for name in policies))
    for each in done:
        cells = [f"{cell(each.scores[name]):>{width}}" for name in policies]
        print(f"{each.number:4} {each.kind:20}", *cells)


def cell(score: Score) -> str:
    """A score in a few characters."""
    changes = ",".join("∞" if c == inf else f"{c:.0f}" for c in score.changes) or "-"
    failed = f" !{score.failures}" if score.failures else ""
    return f"{changes} {score.regret:.1%} +{score.over:.0%} {score.rescales:.0f}/h{failed}"


def show_summary(done: Sequence[Done], policies: Sequence[str]) -> None:
    """Medians, 95th percentiles, places and dominance."""
    table = summary(done, policies)
    columns = list(next(iter(table.values())))
    print(f"\n{'':10}", *(f"{column.replace('_', ' '):>15}" for column in columns))
    for name, row in table.items():
        print(f"{name:10}", *(f"{row[column]:15.3f}" for column in columns))
    for level in LEVELS:
        for measure in MEASURES:
            column = f"{measure}_{level}"
            places = sorted(table, key=lambda name: table[name][column])
            print(f"{column}:", ", ".join(f"{place(table, n, column)}. {n}" for n in places))
    for name in policies:
        print(f"{name} is dominated by {', '.join(_dominated(table, name)) or 'nobody'}")
    if DEFAULT in table:
        report = Report("bars")
        add_bars(report, table)
        report.print()
