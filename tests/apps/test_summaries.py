"""Summaries take rows as they come: how they come does not show, and they are not kept."""

from __future__ import annotations

import weakref

import pyarrow as pa
import pytest

from anabranch.apps import APPS
from anabranch.apps.kit import summary as summary_module
from anabranch.apps.kit.summary import Condensed, distinct, first, greatest, grouped, last
from anabranch.cli.results import Results
from anabranch.engines.process_memory import keep_freed_memory
from anabranch.running import run
from anabranch.testing.sequential import run_sequential
from tests.apps.cases import cases

MODULES = {name: case for name, case in cases().items() if not APPS[name].given}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_how_the_rows_are_cut_does_not_show_in_a_summary(name, monkeypatch):
    monkeypatch.setattr(summary_module, "LOOSE_ROWS", 5)  # so that few rows are merged often, too
    found = run_sequential(MODULES[name].flow("small")).outputs
    summary = APPS[name].summary()
    for sink, rows in found.items():
        for start in range(0, max(rows.num_rows, 1), 3):
            summary.add(sink, rows.slice(start, 3))
    assert str(summary) == str(APPS[name].module.Summary.of(found))


NUMBERS = pa.table({"key": ["a", None, "b", "a"], "n": [1, 5, 2, 3]})


@pytest.mark.parametrize(
    ("condense", "expected"),
    [
        (first(2), [{"key": "a", "n": 1}, {"key": None, "n": 5}]),
        (last(1), [{"key": "a", "n": 3}]),
        (greatest(2, [("n", "descending")]), [{"key": None, "n": 5}, {"key": "a", "n": 3}]),
        (distinct("key"), [{"key": "a"}, {"key": "b"}]),
        (
            grouped(["key"], n="sum"),
            [{"key": "a", "n": 4}, {"key": None, "n": 5}, {"key": "b", "n": 2}],
        ),
    ],
)
@pytest.mark.parametrize("rows_at_once", [1, 4])
def test_condensed_rows_follow_from_all_rows(condense, expected, rows_at_once):
    condensed = Condensed(condense)
    for start in range(0, NUMBERS.num_rows, rows_at_once):
        condensed.add(NUMBERS.slice(start, rows_at_once))
    assert (condensed.rows(), len(condensed)) == (expected, len(expected))


def test_nothing_was_condensed_from_no_rows():
    condensed = Condensed(first(3))
    condensed.add(NUMBERS.slice(0, 0))
    assert (condensed.rows(), len(condensed)) == ([], 0)


def test_many_tables_of_a_row_are_not_kept_apart():
    made = []

    def condense(rows):
        made.append(weakref.ref(table := added(rows)))
        return table

    added = grouped(["key"], n="sum")
    condensed = Condensed(condense)
    for _ in range(1_000):
        condensed.add(pa.table({"key": ["a"], "n": [1]}))
    assert sum(table() is not None for table in made) < 100
    assert condensed.rows() == [{"key": "a", "n": 1_000}]


def test_a_run_keeps_no_rows_that_its_summary_does_not_show():
    keep_freed_memory()  # it chooses where Arrow's memory comes from
    flow = APPS["spike-detection"].build(rows=200_000)
    results = Results("spike-detection", flow, "local", None, overwrite=False, resumes=False)
    before = pa.total_allocated_bytes()
    assert run(results.flow, engine="local", policy="none").rows_out == 200_000
    assert " of 200,000 readings are spikes" in results.found()[0]
    assert pa.total_allocated_bytes() - before < 1_000_000  # the rows have seven times that
