"""Waiting changes nothing: the counts are those of word count."""

from __future__ import annotations

from tests.apps.cases import Case
from tests.apps.references.word_count import expected

QUICK = {"wait_ms": 0.01, "rate_per_s": None}

CASES = [
    Case(
        "synthetic-word-count",
        {"rows": 40, "distinct": 30, **QUICK},
        {"rows": 1000, "distinct": 900, **QUICK},
        expected,
        huge={"distinct": 90_000, "wait_ms": 0.001},
    )
]
