"""One account after another, over its last ten transactions, in exact fractions."""

from __future__ import annotations

from collections import defaultdict, deque
from fractions import Fraction
from functools import cache

from tests.apps.cases import Case, Rows

WINDOW = 10
THRESHOLD = Fraction(8, 10)

# Per cent: of the letter that follows (inner) each letter (outer).
CHAINS = (
    {
        "L": {"L": 84, "N": 12, "H": 4},
        "N": {"L": 10, "N": 86, "H": 4},
        "H": {"L": 30, "N": 50, "H": 20},
    },
    {"N": {"N": 96, "H": 4}, "H": {"N": 80, "H": 20}},
    {
        "L": {"L": 80, "N": 16, "S": 4},
        "N": {"L": 8, "N": 88, "S": 4},
        "S": {"L": 10, "N": 60, "S": 30},
    },
)


@cache
def probability(now: str, before: str) -> Fraction:
    likely = Fraction(1)
    for chain, one, other in zip(CHAINS, before, now, strict=True):
        likely *= Fraction(chain[one][other], 100)
    return likely


def expected(rows: Rows) -> Rows:
    recent: dict[int, deque[str]] = defaultdict(lambda: deque(maxlen=WINDOW))
    scored = []
    for row in rows["transactions"]:
        types = recent[row["account"]]
        types.append(row["type"])
        score = None
        if len(types) == WINDOW:
            pairs = list(zip(list(types)[1:], types, strict=False))
            score = sum(1 - probability(*pair) for pair in pairs) / len(pairs)
        scored.append(
            {
                "account": row["account"],
                "transaction": row["transaction"],
                "score": None if score is None else float(score),
                "outlier": score is not None and score > THRESHOLD,
            }
        )
    return {"out": scored, "bad": []}


CASES = [
    Case(
        "fraud-detection",
        {"rows": 90, "accounts": 3, "stolen": 0.3},
        {"rows": 3000, "accounts": 63, "stolen": 0.1},
        expected,
        huge={"accounts": 5_000},
    )
]
