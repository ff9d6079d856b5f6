"""Tweet by tweet, word by word, window by window; the lists of words are facts, not code."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timedelta
from importlib.metadata import files
from typing import Any

from anabranch.apps.kit.tweets import STOP_WORDS
from tests.apps.cases import Case, Row, Rows, Times

TIME_FORMAT = "%a %b %d %H:%M:%S +0000 %Y"
EPOCH = datetime(1970, 1, 1)
WINDOW, SLIDE, LATENESS = timedelta(minutes=10), timedelta(minutes=4), timedelta(seconds=90)
DELAY = 1.3 * LATENESS  # of shuffled tweets, so that some come too late
TOP = 3


def valences() -> dict[str, int]:
    (listed,) = [file for file in files("afinn") or [] if file.name == "AFINN-en-165.txt"]
    pairs = [line.rsplit("\t", 1) for line in listed.read_text("utf-8").splitlines()]
    return {word: int(valence) for word, valence in pairs}


def parsed(line: str) -> Row | None:
    """A tweet, its time None where it cannot be read; None for what is no tweet."""
    try:
        tweet = json.loads(line)
    except ValueError:
        return None
    try:
        ts = datetime.strptime(tweet["created_at"], TIME_FORMAT)
    except ValueError:
        ts = None
    user = tweet["user"]["screen_name"]
    return {"text": tweet["text"], "ts": ts, "user": user, "created_at": tweet["created_at"]}


LISTED = {language: set(listed.split()) for language, listed in STOP_WORDS.items()}


def is_english(words: list[str]) -> bool:
    votes = {name: sum(word in listed for word in words) for name, listed in LISTED.items()}
    return 0 < votes["en"] == max(votes.values())


def rankings(mentions: list[tuple[datetime, str]]) -> list[Row]:
    """The first hashtags of each window that has any; windows begin at multiples of the slide."""
    windows: dict[datetime, Counter[str]] = {}
    for ts, tag in mentions:
        begin = EPOCH + (ts - EPOCH) // SLIDE * SLIDE
        while begin + WINDOW > ts:
            windows.setdefault(begin + WINDOW, Counter())[tag] += 1
            begin -= SLIDE
    return [
        {"window_end": end, "rank": place, "hashtag": tag, "n": n}
        for end, counts in sorted(windows.items())
        for place, (tag, n) in enumerate(
            sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:TOP], 1
        )
    ]


def expected(rows: Rows) -> Rows:
    lexicon = valences()
    bad: list[Row] = []
    undated: list[Row] = []
    late: list[Row] = []
    latest = EPOCH
    scores: dict[str, list[int]] = {}
    mentions: list[tuple[datetime, str]] = []
    for row in rows["tweets"]:
        tweet = parsed(row["line"])
        if tweet is None:
            bad.append({"line": row["line"], "error": "no JSON object"})
            continue
        if tweet["ts"] is None:
            user = {"screen_name": tweet["user"]}
            given = {"created_at": tweet["created_at"], "text": tweet["text"], "user": user}
            undated.append({**given, "error": f"a time unlike {TIME_FORMAT!r}"})
            continue
        latest = max(latest, tweet["ts"])
        if tweet["ts"] < latest - LATENESS:
            late.append({name: tweet[name] for name in ("text", "ts", "user")})
            continue
        text: Any = tweet["text"].lower()
        words = re.findall(r"(?:[^\W_]|['-])+", text)
        if is_english(words):
            score = sum(lexicon.get(word, 0) for word in words)
            scores.setdefault(tweet["user"], []).append(score)
            tags = re.findall(r"(?<![\w#])#(\w+)", text)
            mentions += [(tweet["ts"], tag) for tag in tags if not tag.isdigit()]
    every = [score for given in scores.values() for score in given]
    return {
        "stored": rows["tweets"],
        "tweets.bad": bad,
        "dated.bad": undated,
        "late": late,
        "mood": [{"tweets": len(every), "mood": sum(every) / len(every)}],
        "users": [
            {"user": user, "tweets": len(given), "mood": sum(given) / len(given)}
            for user, given in scores.items()
        ],
        "out": rankings(mentions),
    }


def time_of(row: Row) -> datetime | None:
    tweet = parsed(row["line"])
    return tweet and tweet["ts"]


SHAPE = {
    "window": WINDOW,
    "slide": SLIDE,
    "top": TOP,
    "users": 40,
    "malformed": 0.1,
    "lateness": LATENESS,
}

CASES = [
    Case(
        "sentiment",
        {"rows": 60, "rate_per_s": 0.1, "distinct": 15, **SHAPE},
        {"rows": 240, "rate_per_s": 0.2, "distinct": 40, **SHAPE},
        expected,
        {"tweets": Times(time_of, DELAY)},
        huge={"users": 20_000, "distinct": 1_000},
    )
]
