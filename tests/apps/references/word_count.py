"""Words are what stands between spaces; each has been counted as often as it stood there."""

from __future__ import annotations

from collections import Counter

from tests.apps.cases import Case, Rows


def expected(rows: Rows) -> Rows:
    words = Counter(word for row in rows["lines"] for word in row["line"].split(" ") if word)
    return {"out": [{"word": word, "n": n} for word, n in words.items()]}


CASES = [
    Case(
        "word-count",
        {"rows": 40, "distinct": 30},
        {"rows": 4000, "distinct": 900},
        expected,
        huge={"distinct": 90_000},
    )
]
