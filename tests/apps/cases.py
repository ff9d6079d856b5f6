"""What the applications are compared with: references in plain Python, by their definitions.

A module in `references` holds `CASES`. It knows nothing of our operators: it gets the rows of every
source in the order of their arrival, and says which rows every sink shall get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from anabranch.apps import APPS
from anabranch.flow import Flow
from anabranch.graph import Output
from anabranch.testing.checking import Recording

Row = dict[str, Any]
Rows = dict[str, list[Row]]

EVERYTHING = 10**7
HUGE_ROWS = 100_000
CLOSE = 1e-9
REFERENCES = Path(__file__).with_name("references")


@dataclass(frozen=True)
class Times:
    """How a source's rows may be disordered.

    Attributes:
        of: The time of a row, None where it has none.
        lateness: How far behind the greatest time before it a row may come; unit of `of`.
    """

    of: Callable[[Row], Any]
    lateness: Any


@dataclass(frozen=True)
class Case:
    """An application and its reference.

    Attributes:
        app: Its name.
        small, large: Arguments of `build` for two sizes of data.
        huge: What is different from `large` for as many rows as fill several batches.
        huge_delay: By what share of the lateness those are delayed: where many rows lie within it,
            most of them would come too late otherwise.
        expected: From the rows of each source, as they arrive, the rows of each sink.
        disorder: Sources whose rows may come out of order, within the lateness.
        unordered: Sinks of which the reference says the rows, but not their order.
    """

    app: str
    small: Mapping[str, Any]
    large: Mapping[str, Any]
    expected: Callable[[Rows], Rows]
    disorder: Mapping[str, Times] = field(default_factory=dict)
    unordered: frozenset[str] = frozenset()
    huge: Mapping[str, Any] = field(default_factory=dict)
    huge_delay: float = 1.0

    def flow(self, size: str) -> Flow:
        """The application on its data, held in memory; the huge ones are out of order, too."""
        flow = APPS[self.app].build(**self._arguments(size))
        recorded = Recording.of(flow, EVERYTHING)
        if size in ("shuffled", "huge"):
            delay = self.huge_delay if size == "huge" else 1.0
            tables = {name: self._shuffled(name, t, delay) for name, t in recorded.tables.items()}
            recorded = Recording(tables, {name: {} for name in tables})
        return recorded.feed(flow)

    def _arguments(self, size: str) -> Mapping[str, Any]:
        if size == "huge":
            return {**self.large, "rows": HUGE_ROWS, **self.huge}
        return self.small if size == "small" else self.large

    def _shuffled(self, source: str, table: pa.Table, share: float) -> pa.Table:
        """Rows in the order of their times, each delayed by less than a share of the lateness."""
        if source not in self.disorder:
            return table
        times, rng = self.disorder[source], Random(7)
        longest = times.lateness * share * 0.99
        due, latest = [], None
        for number, row in enumerate(table.to_pylist()):
            time = times.of(row)
            latest = latest if time is None else time
            due.append((latest + longest * rng.random(), number))
        return table.take(pa.array([number for _, number in sorted(due)]))


@cache
def cases() -> dict[str, Case]:
    """All of them, by the application's name."""
    names = sorted(path.stem for path in REFERENCES.glob("*.py"))
    modules = [import_module(f"tests.apps.references.{name}") for name in names]
    return {case.app: case for module in modules for case in module.CASES}


def rows_of(flow: Flow) -> Rows:
    """What every source of a flow has, in the order of arrival."""
    return Recording.of(flow, EVERYTHING).rows


def disagreement(case: Case, flow: Flow, expected: Rows, got: Mapping[str, pa.Table]) -> str | None:
    """In which sink an application and its reference part, and where; None if nowhere."""
    if set(expected) != set(got):
        return f"sinks {sorted(got)}, and {sorted(expected)} in the reference"
    for sink, wanted in expected.items():
        rows = got[sink].to_pylist()
        changelog = flow.resolve().types[Output(sink)].changelog
        if changelog is not None:
            wanted, rows = _last(wanted, changelog), _last(rows, changelog)
        elif sink in case.unordered:
            wanted, rows = sorted(wanted, key=_sortable), sorted(rows, key=_sortable)
        for number, (one, other) in enumerate(zip(wanted, rows, strict=False)):
            if not _same(one, other):
                return f"{sink!r} row {number}: {one} in the reference, got {other}"
        if len(wanted) != len(rows):
            return f"{sink!r}: {len(wanted)} rows in the reference, got {len(rows)}"
    return None


def _last(rows: list[Row], key: tuple[str, ...]) -> list[Row]:
    """The last row of each key."""
    last = {tuple(row[name] for name in key): row for row in rows}
    return [last[each] for each in sorted(last, key=repr)]


def _sortable(row: Row) -> Any:
    """Numbers that differ by rounding alone must not change places, so they come last."""
    exact = [(name, repr(v)) for name, v in sorted(row.items()) if not isinstance(v, float)]
    return exact, [v for _, v in sorted(row.items()) if isinstance(v, float)]


def _same(one: Any, other: Any) -> bool:
    """Equal, numbers with a fraction to nine digits: sums may be taken in another order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(one == other)
