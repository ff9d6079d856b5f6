"""Hashtag sequences: how often some words come in order, by hashtag, across consecutive tweets.

The motivating example of STRETCH (§1). For each hashtag, the words of its tweets are one long text,
in which the sequence is looked for word by word; other words may stand between. Words are runs of
letters, digits, apostrophes and hyphens, and neither they nor hashtags differ by the size of their
letters: `#Monday` is `monday`. A tweet belongs to all its hashtags, so no key routes it. The step
is shared: a bucket holds the hashtags that hash to it, and is shown the tweets that carry one of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import Requirement, a_count, require, some_texts
from anabranch.apps.kit.inputs import Input, paths_of, read_rows
from anabranch.apps.kit.seeded_random import zipf
from anabranch.apps.kit.summary import AppSummary, Condensed, grouped
from anabranch.apps.kit.tweets import hashtags_in, words
from anabranch.flow import Flow
from anabranch.io import collect, generate, memory
from anabranch.operators.base import Operator
from anabranch.operators.keyed.shared import Bucket, buckets_of, shared

SEQUENCE = ("wake", "up", "world")
FILLERS = ("coffee", "rain", "monday", "train", "late", "again", "sun")
WORDS_A_TWEET = 8
MOST_TAGS = 3
TOP = 10

_TWEET = pa.schema(
    [pa.field("text", pa.string(), nullable=False), ("hashtags", pa.list_(pa.string()))]
)


def of_its_hashtags(batch: pa.RecordBatch, buckets: int) -> tuple[pa.Array, Any]:
    """A tweet concerns the buckets of its hashtags."""
    tags = batch["hashtags"]
    return pc.list_parent_indices(tags), buckets_of(pc.list_flatten(tags), buckets)


def sequences(wanted: Sequence[str], buckets: int) -> Operator:
    """The step: emits a hashtag and its count each time the sequence is complete."""

    @shared(out="hashtag: string, n: int64", buckets=buckets, filter=of_its_hashtags)
    def search(batch: pa.RecordBatch, bucket: Bucket) -> tuple[dict[str, list[Any]], list[int]]:
        texts = batch["text"].to_pylist()
        hashtags, counts, parents = [], [], []
        for tweet, tag in _own_tags(batch, bucket):
            following, found = bucket.state.get(tag, (0, 0))
            for word in texts[tweet].split(" "):
                if word == wanted[following]:
                    following = (following + 1) % len(wanted)
                    if following == 0:
                        found += 1
                        hashtags.append(tag)
                        counts.append(found)
                        parents.append(tweet)
            bucket.state[tag] = (following, found)
        return {"hashtag": hashtags, "n": counts}, parents

    return search


def _own_tags(batch: pa.RecordBatch, bucket: Bucket) -> Iterable[tuple[int, str]]:
    """Tweets and those of their hashtags that are the bucket's, each once."""
    tweets, buckets = of_its_hashtags(batch, bucket.count)
    mine = pa.array(buckets == bucket.index)
    tags = pc.list_flatten(batch["hashtags"]).filter(mine).to_pylist()
    return dict.fromkeys(zip(tweets.filter(mine).to_pylist(), tags, strict=True))


def build(
    *,
    input: Input | None = None,
    tweets: Sequence[tuple[str, Sequence[str] | None]] | None = None,
    sequence: Sequence[str] = SEQUENCE,
    rows: int | None = 500_000,
    distinct: int = 200,
    buckets: int = 16,
    seed: int = 0,
) -> Flow:
    """Count sequences of words by hashtag, in files of tweets, given tweets or generated ones.

    Args:
        input: JSON lines or Parquet with the columns `text` and `hashtags`, a list without the
            signs. Where a row of JSON has no such list, as Twitter's own, the hashtags are those
            that are written in the text.
        tweets: (text, hashtags) of each; hashtags without the sign, or None for those in the text.
        sequence: The words to look for, in order; a text of several words stands for those.
        rows: How many tweets to generate when none are given; None for an endless stream.
        distinct: How many hashtags are generated; the one of rank r in proportion to 1/r.
        buckets: Into how many parts the hashtags are dealt, which bounds the replicas.
        seed: Decides the generated tweets.

    Example:
        >>> build(tweets=[("wake up", ["a", "b"]), ("world", ["b"])])
        Flow 'hashtag-sequences': tweets → plain → search → out
    """
    wanted = _words_of(sequence) if some_texts(sequence).holds else ()
    require(
        "hashtag-sequences",
        sequence=Requirement(sequence, len(wanted) > 0, "texts with words, at least one"),
        distinct=a_count(distinct, 1),
        buckets=a_count(buckets, 1),
    )
    flow = Flow("hashtag-sequences")
    if input is not None:
        stream = read_rows(flow, "tweets", paths_of(input, "tweets", ["tweets"]), _TWEET)
    elif tweets is not None:
        rows_given = [{"text": text, "hashtags": tags} for text, tags in tweets]
        stream = flow.source("tweets", memory(rows_given, _TWEET))
    else:
        made = random_tweets(distinct, wanted)
        stream = flow.source("tweets", generate(made, _TWEET, rows=rows, seed=seed))
    if input is not None or tweets is not None:  # generated ones are plain
        stream = stream.map("plain", plain, out=_TWEET)
    stream.apply("search", sequences(wanted, buckets)).sink("out", collect())
    return flow


def _words_of(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, words(pa.array(texts, pa.string())).flatten().to_pylist()))


def plain(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Tweets in small letters, with nothing but a space between words, and with their hashtags."""
    return {"text": pc.binary_join(words(batch["text"]), " "), "hashtags": tags_of(batch)}


def tags_of(batch: pa.RecordBatch) -> pa.ListArray:
    """The hashtags that came along, or where none did, those in the text; in small letters."""
    given, unsaid = batch["hashtags"], pc.is_null(batch["hashtags"])
    own, owners = pc.utf8_lower(given.flatten()), pc.list_parent_indices(given)
    said = pc.is_valid(own)
    found, finders = hashtags_in(batch["text"])
    wanted = unsaid.take(finders)
    tags = pa.concat_arrays([own.filter(said), found.filter(wanted)])
    tweets = np.r_[owners.filter(said).to_numpy(), finders.filter(wanted).to_numpy()]
    counts = np.bincount(tweets, minlength=batch.num_rows)
    offsets = pa.array(np.r_[0, np.cumsum(counts)].astype(np.int32))
    in_order = tags.take(pa.array(np.argsort(tweets, kind="stable")))
    return pa.ListArray.from_arrays(offsets, in_order)


class Summary(AppSummary):
    """The hashtags with most sequences.

    Example:
        >>> print(Summary.of({"out": pa.table({"hashtag": ["b", "a", "b"], "n": [1, 1, 2]})}))
        sequences of 2 hashtags:
          #b  2
          #a  1
    """

    def __init__(self) -> None:
        # Counts only grow, so the greatest one told of a hashtag is its last.
        self._counts = Condensed(grouped(["hashtag"], n="max"))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._counts.add(rows)

    def __str__(self) -> str:
        top = self._counts.rows([("n", "descending"), ("hashtag", "ascending")], TOP)
        shown = [(str(row["hashtag"]), f"{row['n']:,}") for row in top]
        width = max((len(tag) for tag, _ in shown), default=0)
        lines = [f"  #{tag:{width}}  {n}" for tag, n in shown]
        return "\n".join([f"sequences of {len(self._counts):,} hashtags:", *lines])


def random_tweets(distinct: int, sequence: Sequence[str]) -> Any:
    """A generator of tweets with no to three hashtags; half of the words are of the sequence."""
    by_rank = zipf(distinct)
    vocabulary = np.array([*sequence, *FILLERS])
    shares = np.r_[
        np.full(len(sequence), 0.5 / len(sequence)), np.full(len(FILLERS), 0.5 / len(FILLERS))
    ]

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
        chosen = rng.choice(vocabulary, (len(index), WORDS_A_TWEET), p=shares)
        counts = rng.integers(0, MOST_TAGS, len(index), endpoint=True)
        ranks = np.searchsorted(by_rank, rng.random(int(counts.sum())))
        tags = pc.binary_join_element_wise("tag", pa.array(ranks).cast(pa.string()), "")
        offsets = np.r_[0, np.cumsum(counts)].astype(np.int32)
        return {
            "text": pa.array([" ".join(row) for row in chosen.tolist()]),
            "hashtags": pa.ListArray.from_arrays(pa.array(offsets), tags),
        }

    return make
