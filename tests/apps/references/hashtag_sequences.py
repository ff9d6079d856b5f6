"""Hashtag by hashtag, over the words of its tweets in a row."""

from __future__ import annotations

from tests.apps.cases import Case, Rows

SEQUENCE = ("wake", "up", "world")


def expected(rows: Rows) -> Rows:
    tags = {tag for tweet in rows["tweets"] for tag in tweet["hashtags"]}
    found = []
    for tag in tags:
        following = n = 0
        for tweet in rows["tweets"]:
            for word in tweet["text"].split() if tag in tweet["hashtags"] else ():
                if word == SEQUENCE[following]:
                    following = (following + 1) % len(SEQUENCE)
                    if following == 0:
                        n += 1
                        found.append({"hashtag": tag, "n": n})
    return {"out": found}


CASES = [
    Case(
        "hashtag-sequences",
        {"rows": 60, "distinct": 12},
        {"rows": 2500, "distinct": 40},
        expected,
        unordered=frozenset({"out"}),
    )
]
