"""What `speedup.py` finds: a row for each case, and the bars that the rows are held against."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness import Report
from speedup_data import ANY_PAIR, TUPLES

BYTEWAX_BAR = 2.0
DISTURBED = 0.05
"""From this share of the cores on, other processes disturb a run."""
BASELINE_BAR = 0.95
"""Of the rate that was stored; what is missing is noise."""


@dataclass(frozen=True)
class Bars:
    """What the speedups on an engine are held against; where there is no bar, None.

    Attributes:
        name: Of the report.
        claim: What the bars stand for.
        median: The median of all applications.
        least: The least of all applications.
        least_timed: The least of those that know event time.
        tuples: The word count in tuple style.
        any_pair: The band join that decides every pair.
    """

    name: str
    claim: str
    median: float
    least: float | None = None
    least_timed: float | None = None
    tuples: float | None = None
    any_pair: float | None = None


BARS = {
    "local": Bars(
        "speedup",
        "The second core pays for every application",
        median=1.6,
        least=1.2,
        tuples=1.7,
        any_pair=1.6,
    ),
    "spark": Bars(
        "speedup_spark",
        "The second core pays on Spark, with event time, too",
        median=1.6,
        least_timed=1.3,
    ),
}
"""By engine."""


@dataclass(frozen=True)
class Row:
    """What was found of one case; what was not measured is None.

    Attributes:
        rows: Rows of input.
        one_core_rows_per_s: Median on one core.
        one_core_best_rows_per_s: Best on one core, which a baseline is compared by.
        one_core_rows_per_cpu_s: Best on one core by processor time, which neighbours disturb least.
        one_core_plan: The plan there.
        input_share: Part of the time on one core that reading the input takes by itself.
        one_core_switches_per_s: Context switches a second on one core.
        one_core_kernel_share: Part of the processor time that was the system's.
        one_core_disturbed_share: Part of the core that other processes took, at best.
        over_baseline: Best rate on one core over the stored one; by processor time where others
            disturbed either.
        two_cores_rows_per_s: Median on two cores.
        two_cores_plan: The plan there.
        speedup: Median of the ratios.
        two_cores_switches_per_s: Context switches a second on two cores.
        two_cores_kernel_share: As on one core.
        two_cores_disturbed_share: As on one core.
        timed: Whether it knows event time.
    """

    rows: int
    one_core_rows_per_s: float
    one_core_best_rows_per_s: float
    one_core_rows_per_cpu_s: float
    one_core_plan: str
    input_share: float
    one_core_switches_per_s: float
    one_core_kernel_share: float
    one_core_disturbed_share: float
    over_baseline: float | None = None
    two_cores_rows_per_s: float | None = None
    two_cores_plan: str | None = None
    speedup: float | None = None
    two_cores_switches_per_s: float | None = None
    two_cores_kernel_share: float | None = None
    two_cores_disturbed_share: float | None = None
    timed: bool = False


class BaselineDiffers(Exception):
    """The baseline is of other input."""


def compared(row: Row, stored: Mapping[str, Any]) -> Row:
    """The row, held against what was stored of the same case."""
    before = Row(**stored)
    if row.rows != before.rows:
        raise BaselineDiffers(f"the baseline read {before.rows} rows, not {row.rows}")
    disturbed = max(row.one_core_disturbed_share, before.one_core_disturbed_share) > DISTURBED
    by = "one_core_rows_per_cpu_s" if disturbed else "one_core_best_rows_per_s"
    return replace(row, over_baseline=getattr(row, by) / getattr(before, by))


def judge(
    found: dict[str, Row], bytewax: float | None, failed: Sequence[str], bars: Bars
) -> Report:
    """The bars; a case that failed breaks those that each application is held against."""
    report = Report(bars.name, bars.claim)
    speedups = {name: row.speedup for name, row in found.items() if row.speedup is not None}
    apps = {name: up for name, up in speedups.items() if name not in (TUPLES, ANY_PAIR)}
    if apps:
        report.add_bar("median_speedup", statistics.median(apps.values()), bars.median)
    timed = [up for name, up in apps.items() if found[name].timed]
    for key, ups, limit in (
        ("least_speedup", list(apps.values()), bars.least),
        ("least_timed_speedup", timed, bars.least_timed),
    ):
        if ups and limit is not None:
            report.add_bar(key, 0.0 if failed else min(ups), limit)
    for name, limit in ((TUPLES, bars.tuples), (ANY_PAIR, bars.any_pair)):
        if name in speedups and limit is not None:
            report.add_bar(f"{name.replace('-', '_')}_speedup", speedups[name], limit)
    if bytewax is not None:
        report.add_figure("bytewax_two_workers_tuples_per_s", bytewax)
        ratio = (found[TUPLES].two_cores_rows_per_s or 0.0) / bytewax
        report.add_bar("tuple_word_count_over_bytewax", ratio, BYTEWAX_BAR)
    if kept := [row.over_baseline for row in found.values() if row.over_baseline is not None]:
        report.add_bar("least_one_core_over_baseline", min(kept), BASELINE_BAR)
    return report


HEADER = (
    f"{'application':<22}{'1 core/s':>12}{'2 cores/s':>12}{'speedup':>9}{'input':>7}"
    f"{'switches/s':>16}{'kernel':>11}{'others':>11}{'before':>8}  plans"
)


def line(name: str, row: Row) -> str:
    """A line of the table; where there are two figures, they are of one core and of two."""
    two, up, old = row.two_cores_rows_per_s, row.speedup, row.over_baseline
    switches = _both(row.one_core_switches_per_s, row.two_cores_switches_per_s, ",.0f")
    kernel = _both(row.one_core_kernel_share, row.two_cores_kernel_share, ".0%")
    others = _both(row.one_core_disturbed_share, row.two_cores_disturbed_share, ".0%")
    return (
        f"{name:<22}{row.one_core_rows_per_s:>12,.0f}{_shown(two, ',.0f'):>12}"
        f"{_shown(up, '.2f'):>9}{row.input_share:>7.0%}{switches:>16}{kernel:>11}"
        f"{others:>11}{_shown(old, '.2f'):>8}  {row.one_core_plan} | {row.two_cores_plan or '-'}"
    )


def _both(one: float, two: float | None, form: str) -> str:
    return f"{one:{form}} {_shown(two, form)}"


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
