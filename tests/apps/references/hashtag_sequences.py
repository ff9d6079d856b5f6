"""Hashtag by hashtag, over the words of its tweets in a row."""

from __future__ import annotations

import re
from collections import defaultdict
from random import Random

from tests.apps.cases import Case, Row, Rows

SEQUENCE = ("wake", "up", "world")
WAYS = (str, str.upper, str.title, "#{}".format, "{}!".format, "({},".format, "{}\u2026".format)


def as_people_write(many: int, distinct: int) -> list[tuple[str, list[str] | None]]:
    """Tweets with capitals and signs; their hashtags in a list, or in the text."""
    rng = Random(5)

    def written(word: str) -> str:
        way = rng.choice(WAYS)
        return way(word)

    tweets = []
    for _ in range(many):
        words = [written(rng.choice((*SEQUENCE, "rain", "o'clock"))) for _ in range(6)]
        tags = [f"Tag{rng.randrange(distinct)}" for _ in range(rng.randrange(3))]
        tags = [tag.lower() if rng.random() < 0.5 else tag for tag in tags]
        listed = rng.random() < 0.5
        text = " ".join(words if listed else [*words, *(f"#{tag}" for tag in tags)])
        tweets.append((text, tags if listed else None))
    return tweets


def hashtags(tweet: Row) -> set[str]:
    """Those of the list, or those of the text where there is no list."""
    tags = tweet["hashtags"]
    if tags is None:
        tags = re.findall(r"(?<![\w#])#(\w+)", tweet["text"])
    return {tag.lower() for tag in tags}


def expected(rows: Rows) -> Rows:
    texts: dict[str, list[str]] = defaultdict(list)
    for tweet in rows["tweets"]:
        words = re.findall(r"(?:[^\W_]|['-])+", tweet["text"].lower())
        for tag in hashtags(tweet):
            texts[tag] += words
    found = []
    for tag, words in texts.items():
        following = n = 0
        for word in words:
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
        {"tweets": as_people_write(2500, 40)},
        expected,
        unordered=frozenset({"out"}),
        huge={"tweets": None, "distinct": 2_000},
    )
]
