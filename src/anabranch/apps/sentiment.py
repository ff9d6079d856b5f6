"""Sentiment: the mood of tweets, overall and by user, and the hashtags that trend.

The Twitter sentiment analysis of the stepwise profiling paper (§6.1.1): eleven operators, a tree of
eight stages. Op1 `tweets` come as JSON texts; Op2 `stored` keeps them as they are; Op3 `language`
detects how they are written; Op4 `sentiment` adds up the AFINN valences of an English tweet's
words, −5 to 5 each; Op5 `average` and Op6 `user_average` are running means; Op7 `hashtags`, Op8
`worth_counting`, Op9 `rolling_count`, Op10 `intermediate_ranking` and Op11 `total_ranking` find
what trends in a sliding window. The paper does not name the edges of its tree; it has eight stages
when the hashtags hang on Op4, and are of English tweets. `parse`, `dated`, `date`, `clock` and
`leading` are ours.

- The valences are those of AFINN-165, in the package `afinn`, of which this one file is read. Its
  phrases of several words and its emoticons are left out, since sentences are split into words.
- The language is a vote of function words, and `und` (Twitter's word for undetermined) where none
  votes: quick, and the same for a tweet each time, unlike most packages that detect languages.
- A tweet's time is its `created_at`. Without a text, or with a time that cannot be read, it is bad.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from heapq import nsmallest
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_duration, a_number, a_share, a_text, require
from anabranch.apps.kit.columns import LINES
from anabranch.apps.kit.inputs import FAR, Input, paths_of, text_files
from anabranch.apps.kit.summary import AppSummary, Condensed, grouped, last
from anabranch.apps.kit.tweets import (
    LANGUAGES,
    STOP_WORDS,
    TIME_FORMAT,
    Numbers,
    hashtags_in,
    random_tweets,
    words,
)
from anabranch.errors import BuildError, Subject
from anabranch.flow import Flow
from anabranch.io import collect, generate, parquet
from anabranch.operators.aggregates.functions import count, mean
from anabranch.operators.aggregates.windows import sliding
from anabranch.operators.base import Operator
from anabranch.operators.keyed.shared import buckets_of
from anabranch.operators.parsing.parse import parse_json
from anabranch.operators.row_wise.map_filter_expand import Filter, expand
from anabranch.operators.row_wise.screen import screen
from anabranch.operators.tuple_style.invocation import Invocation, Reason
from anabranch.operators.tuple_style.tuples import partitioned, stateful

TWEETS = 159_620  # in the paper's file, which is of three weeks
WEEKS = timedelta(weeks=3)
ENGLISH = "en"
UNDETERMINED = "und"
TOP = 10
PARTS = 4

TWEET = pa.schema(
    [
        pa.field("created_at", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("user", pa.struct([("screen_name", pa.string())])),
    ]
)
SPOKEN = pa.schema([("lang", pa.string()), ("words", pa.list_(pa.string()))])
_NO_TEXT = pa.scalar(None, pa.string())
RANKED = "window_end: timestamp[us], rank: int64, hashtag: string, n: int64"


def build(
    *,
    input: Input | None = None,
    rows: int | None = TWEETS,
    rate_per_s: float = TWEETS / WEEKS.total_seconds(),
    window: timedelta = timedelta(hours=1),
    slide: timedelta = timedelta(minutes=30),
    lateness: timedelta = timedelta(minutes=1),
    users: int = 20_000,
    distinct: int = 1_000,
    malformed: float = 0.001,
    top: int = TOP,
    parts: int = PARTS,
    store: str = "",
    seed: int = 0,
) -> Flow:
    """Find the mood and the trends of tweets, of files or generated.

    Args:
        input: Files of tweets as Twitter writes them, one JSON object a line.
        rows: How many tweets to generate when none are given; None for an endless stream.
        rate_per_s: How many generated tweets fall into a second of event time.
        window: How long a hashtag counts.
        slide: How often the hashtags are ranked.
        lateness: How far out of order a tweet may come; generated ones do, in part.
        users: How many write; their activity follows Zipf's law, as do the hashtags.
        distinct: How many hashtags are generated.
        malformed: The share of generated tweets that are cut off or have an impossible time.
        top: How many hashtags a ranking has.
        parts: Into how many parts the intermediate ranking is divided, which bounds its replicas.
        store: A directory for the raw tweets; they are collected in memory when it is empty.
        seed: Decides the generated tweets.

    Example:
        >>> flow = build(rows=10)
        >>> [name for name in flow.graph.steps if name.endswith("ranking")]
        ['intermediate_ranking', 'total_ranking']
    """
    require(
        "sentiment",
        rate_per_s=a_number(rate_per_s, above=0),
        window=a_duration(window, above_zero=True),
        slide=a_duration(slide, above_zero=True),
        lateness=a_duration(lateness),
        users=a_count(users, 1),
        distinct=a_count(distinct, 1),
        malformed=a_share(malformed),
        top=a_count(top, 1),
        parts=a_count(parts, 1),
        store=a_text(store),
    )
    flow = Flow("sentiment")
    made = random_tweets(rate_per_s, lateness, users, distinct, malformed)
    generated = generate(made, LINES, rows=rows, seed=seed)
    if input is None:
        tweets = flow.source("tweets", generated)
    else:
        paths = paths_of(input, "tweets", ["tweets"])
        tweets = flow.source("tweets", text_files(paths))
    tweets.sink("stored", parquet(store) if store else collect())
    parsed = tweets.apply("parse", parse_json("line", TWEET, on_error="side"))
    parsed.errors.sink("tweets.bad", collect())
    dated = parsed.apply("dated", screen(undated))
    dated.errors.sink("dated.bad", collect())
    timed = dated.map("date", date, out="ts: timestamp[us], user: string", keeps="text").timed(
        "clock", "ts", lateness=lateness, ahead=FAR
    )
    timed.late.sink("late", collect())
    spoken = timed.map("language", language, out=SPOKEN, keeps="*")
    scored = spoken.apply("sentiment", sentiment())
    score = mean("score")
    scored.aggregate("average", tweets=count(), mood=score, emit="changes").sink("mood", collect())
    scored.aggregate("user_average", key="user", tweets=count(), mood=score, emit="changes").sink(
        "users", collect()
    )
    (
        scored.apply("hashtags", hashtags(parts))
        .filter(
            "worth_counting", lambda batch: pc.match_substring_regex(batch["hashtag"], "[^0-9_]")
        )
        .aggregate(
            "rolling_count", key=["part", "hashtag"], window=sliding(window, slide), n=count()
        )
        .apply("leading", Leading(top))
        .apply("intermediate_ranking", intermediate_ranking(top))
        .apply("total_ranking", total_ranking(top))
        .sink("out", collect())
    )
    return flow


class Summary(AppSummary):
    """The mood, how many users there are, and what trended last.

    Example:
        >>> mood = pa.table({"tweets": [1, 2], "mood": [3.0, 1.0]})
        >>> users = pa.table({"user": ["ann", "ben"], "tweets": [1, 1], "mood": [3.0, -1.0]})
        >>> none = pa.table({"window_end": [], "rank": [], "hashtag": [], "n": []})
        >>> print(Summary.of({"mood": mood, "users": users, "out": none}))
        2 English tweets of 2 users, mood +1.00
        no hashtags
    """

    def __init__(self) -> None:
        self._mood, self._users = Condensed(last(1)), Condensed(grouped(["user"]))
        self._rankings = 0
        self._leaders, self._trend = Condensed(grouped(["hashtag"])), Condensed(_last_window)

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "mood":
            self._mood.add(rows)
        elif sink == "users":
            self._users.add(rows)
        elif sink == "out":
            # Each ranking has one first, and they come window by window.
            leading = rows.filter(pc.equal(rows["rank"], 1))
            self._rankings += leading.num_rows
            self._leaders.add(leading)
            self._trend.add(rows)

    def __str__(self) -> str:
        (now,) = self._mood.rows() or [{"tweets": 0, "mood": 0.0}]
        lines = [
            f"{now['tweets']:,} English tweets of {len(self._users):,} users, "
            f"mood {now['mood']:+.2f}"
        ]
        if not self._rankings:
            return "\n".join([*lines, "no hashtags"])
        led = f"led by {len(self._leaders):,} hashtags; the last:"
        lines.append(f"{self._rankings:,} rankings, {led}")
        trend = self._trend.rows()
        lines += [f"  {row['rank']:>2}  #{row['hashtag']}  {row['n']:,}" for row in trend]
        return "\n".join(lines)


def _last_window(ranking: pa.Table) -> pa.Table:
    return ranking.filter(pc.equal(ranking["window_end"], pc.max(ranking["window_end"])))


def undated(batch: pa.RecordBatch) -> pa.Array:
    """What is wrong with tweets whose time cannot be read; null for the others."""
    return pc.if_else(pc.is_null(_times(batch)), f"a time unlike {TIME_FORMAT!r}", _NO_TEXT)


def date(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Twitter's texts of times become times."""
    return {"ts": _times(batch), "user": pc.struct_field(batch["user"], "screen_name")}


def _times(batch: pa.RecordBatch) -> pa.Array:
    return pc.strptime(batch["created_at"], format=TIME_FORMAT, unit="us", error_is_null=True)


@cache
def _voters() -> tuple[pa.Array, Numbers]:
    """All function words, and for each language which of them are its own."""
    known = {name: set(STOP_WORDS[name].split()) for name in LANGUAGES}
    every = sorted(set().union(*known.values()))
    return pa.array(every), np.array([[word in own for word in every] for own in known.values()])


def language(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The language with most function words; of several, the first in `LANGUAGES`."""
    voters, votes = _voters()
    split = words(batch["text"])
    texts, found = known_words(split, voters)
    counts = [np.bincount(texts, each[found], len(split)) for each in votes]
    names = np.where(np.any(counts, axis=0), np.argmax(counts, axis=0), len(LANGUAGES))
    return {"lang": pa.array([*LANGUAGES, UNDETERMINED]).take(pa.array(names)), "words": split}


def known_words(split: pa.ListArray, known: pa.Array) -> tuple[Numbers, Numbers]:
    """For each word that is known: in which text it stands, and which one it is."""
    found = pc.index_in(split.flatten(), known)
    texts = pc.list_parent_indices(split).filter(pc.is_valid(found))
    return texts.to_numpy(), found.drop_null().to_numpy()


def lexicon() -> dict[str, int]:
    """Words and their valences."""
    try:
        file = str(distribution("afinn").locate_file("afinn/data/AFINN-en-165.txt"))
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (PackageNotFoundError, OSError) as error:
        raise BuildError(
            Subject("application", "sentiment"),
            "the package afinn",
            "none",
            "run: pip install 'anabranch[sentiment]'",
        ) from error
    pairs = (line.split("\t") for line in lines)
    return {word: int(valence) for word, valence in pairs if " " not in word}


def sentiment() -> Operator:
    """The step: the score of each English tweet; the others end here."""
    valences = lexicon()
    known, worth = pa.array(valences), np.array(list(valences.values()))

    @expand(out="score: int64", keeps=["ts", "user", "text"])
    def score(batch: pa.RecordBatch) -> tuple[dict[str, Any], Any]:
        english = np.flatnonzero(pc.equal(batch["lang"], ENGLISH).to_numpy(zero_copy_only=False))
        texts, found = known_words(batch["words"].take(pa.array(english)), known)
        return {"score": np.bincount(texts, worth[found], len(english)).astype(np.int64)}, english

    return score


def hashtags(parts: int) -> Operator:
    """The step: each hashtag of each tweet, in small letters, and the part that it belongs to."""

    @expand(out="hashtag: string, part: int64")
    def extract(batch: pa.RecordBatch) -> tuple[dict[str, Any], pa.Array]:
        tags, parents = hashtags_in(batch["text"])
        return {"hashtag": tags, "part": buckets_of(tags, parts)}, parents

    return extract


class Leading(Filter):
    """Counts that not `top` others of their part and window beat in the same batch.

    All others would be remembered and never told. Which ones pass depends on the batch, but never
    whether those of the ranking are among them.
    """

    batch_dependent = True

    def __init__(self, top: int) -> None:
        """Say how many a ranking has."""
        super().__init__(self._leading)
        self.top = top

    def _leading(self, batch: pa.RecordBatch) -> Numbers:
        parts, counts = batch["part"].to_numpy(), batch["n"].to_numpy()
        ends = batch["window_end"].cast(pa.int64()).to_numpy()
        order = np.lexsort((-counts, parts, ends))
        starts = np.flatnonzero(_changes(ends[order]) | _changes(parts[order]))
        lengths = np.diff(np.append(starts, len(order)))
        least = counts[order][starts + np.minimum(lengths, self.top) - 1]
        leads = np.empty(len(order), np.bool_)
        leads[order] = counts[order] >= np.repeat(least, lengths)
        return leads


def _changes(values: Numbers) -> Numbers:
    return np.append(True, values[1:] != values[:-1])


def intermediate_ranking(top: int) -> Operator:
    """The step: of each part of the hashtags, those that came most often in a window."""

    @partitioned(key="part", out=f"part: int64, {RANKED}", timers=True)
    def rank_part(ctx: Invocation) -> None:
        rank(ctx, top)

    return rank_part


def total_ranking(top: int) -> Operator:
    """The step: of what the parts found, those that came most often in a window."""

    @stateful(out=RANKED, timers=True)
    def rank_all(ctx: Invocation) -> None:
        rank(ctx, top)

    return rank_all


def rank(ctx: Invocation, top: int) -> None:
    """Remember the counts of a window, and rank them when all have come; ties by the hashtag."""
    counted = ctx.state.setdefault("counted", [])
    if ctx.reason is Reason.TIMER:
        for place, (minus, hashtag, end) in enumerate(nsmallest(top, counted), 1):
            ctx.emit(window_end=end, rank=place, hashtag=hashtag, n=-minus)
        ctx.state.clear()
        return
    if not counted:  # all counts of a window come at one time, so the next instant is soon enough
        ctx.set_timer(ctx.time + 1)
    counted += [(-row.n, row.hashtag, row.window_end) for row in ctx.tuples()]
