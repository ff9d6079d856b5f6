"""What every benchmark shares: noisy machines, honest tables, one JSON object.

A script measures inside a function and hands it to `main`:

    def measure(quick: bool) -> Report:
        report = Report("state", "one sentence: the claim")
        samples = interleave({"ours": run_ours, "theirs": run_theirs}, 3 if quick else 9)
        report.add_sample("ours_keys_per_s", samples["ours"])
        report.add_bar("ours_keys_per_s", samples["ours"].median, 5e6)
        return report

    if __name__ == "__main__":
        main(measure)

`--json` prints exactly one object; `--quick` answers within 45 s. A bar that does not hold is said
in the table and in the JSON, and is no failure of the script.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # benchmarks share inputs with `papers`

LIBRARIES = ("numpy", "pyarrow", "pyspark", "polars")


@dataclass(frozen=True)
class Sample:
    """What repetitions of one case gave: median, quartiles, and the values in their order."""

    median: float
    low: float
    high: float
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        if len(values) == 1:
            return cls(values[0], values[0], values[0], tuple(values))
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, tuple(values))


@dataclass(frozen=True)
class Bar:
    """A limit that a claim rests on."""

    value: float
    limit: float
    at_least: bool

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def interleave(
    cases: Mapping[str, Callable[[], float]], repetitions: int, warm_up: int = 1
) -> dict[str, Sample]:
    """Run cases in turn (A, B, A, B, …), so that a slow moment of the machine hits all alike.

    Args:
        cases: Each returns its figure: a rate, a time, whatever is compared.
        repetitions: Rounds that count.
        warm_up: Rounds before, that do not.
    """
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(-warm_up, repetitions):
        for name, case in cases.items():
            figure = case()
            if turn >= 0:
                figures[name].append(figure)
    return {name: Sample.of(values) for name, values in figures.items()}


def ratios(ours: Sample, theirs: Sample) -> Sample:
    """Ours over theirs in each round; what slows the machine down for a while is in both.

    Example:
        >>> ratios(Sample.of([4.0, 2.0, 9.0]), Sample.of([2.0, 1.0, 3.0])).median
        2.0
    """
    return Sample.of([a / b for a, b in zip(ours.values, theirs.values, strict=True)])


def seconds(action: Callable[[], Any]) -> float:
    """How long an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def machine() -> dict[str, Any]:
    """The note that makes figures comparable; names no host and no path."""
    note: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "os": platform.system(),
        "python": platform.python_version(),
    }
    for library in LIBRARIES:
        try:
            note[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return note


@dataclass
class Report:
    """Figures and bars of one benchmark."""

    name: str
    claim: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    spreads: dict[str, Sample] = field(default_factory=dict)
    bars: dict[str, Bar] = field(default_factory=dict)

    def add_figure(self, key: str, value: float) -> None:
        """A number worth telling; its unit is in the key."""
        self.figures[key] = value

    def add_sample(self, key: str, sample: Sample) -> None:
        """A median, told with its quartiles."""
        self.figures[key] = sample.median
        self.figures[f"{key}_q1"] = sample.low
        self.figures[f"{key}_q3"] = sample.high
        self.spreads[key] = sample

    def add_bar(self, key: str, value: float, limit: float, at_least: bool = True) -> None:
        """A limit: `value` at least it, or at most."""
        self.bars[key] = Bar(value, limit, at_least)

    def to_json(self) -> str:
        """One object, on one line."""
        bars = {
            key: {
                "value": bar.value,
                "limit": bar.limit,
                "kind": "at least" if bar.at_least else "at most",
                "holds": bar.holds,
            }
            for key, bar in self.bars.items()
        }
        content = {"name": self.name, "claim": self.claim, "machine": machine()}
        return json.dumps({**content, "figures": self.figures, "bars": bars})

    def print(self) -> None:
        """Figures and bars as a table."""
        print(f"{self.name}: {self.claim}")
        print("  " + ", ".join(f"{key} {value}" for key, value in machine().items()))
        quartiles = {f"{key}_{end}" for key in self.spreads for end in ("q1", "q3")}
        shown = {key: value for key, value in self.figures.items() if key not in quartiles}
        width = max((len(key) for key in [*shown, *self.bars]), default=0)
        for key, value in shown.items():
            spread = self.spreads.get(key)
            note = "" if spread is None else f"   [{_number(spread.low)} … {_number(spread.high)}]"
            print(f"  {key:<{width}}  {_number(value):>14}{note}")
        for key, bar in self.bars.items():
            word = "holds" if bar.holds else "DOES NOT HOLD"
            sign = "≥" if bar.at_least else "≤"
            limit = f"{sign} {_number(bar.limit)}"
            print(f"  {key:<{width}}  {_number(bar.value):>14}   bar {limit:<14} {word}")


def main(measure: Callable[[bool], Report], arguments: Sequence[str] | None = None) -> None:
    """Read `--json` and `--quick`, measure, tell."""
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: within 45 s")
    options = parser.parse_args(arguments)
    report = measure(options.quick)
    if options.json:
        print(report.to_json())
    else:
        report.print()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return round(total / 2**30, 1)
