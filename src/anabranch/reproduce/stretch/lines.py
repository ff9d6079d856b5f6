"""Figure 4's two operators: one with work to share among threads, one that only forwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.flow import Flow
from anabranch.io import collect, generate
from anabranch.io.generate_source import BLOCK_ROWS
from anabranch.operators.shared import Bucket, Shared, shared

BUCKETS = 8
ROUNDS = 112
"""Sines per tuple of figure 4a: about 16 times what T^I spends on one, by measurement."""
TWEET_LENGTH = 140

_NUMBERED = pa.schema([("id", pa.int64()), ("x", pa.float64())])
_TWEETS = pa.schema([("id", pa.int64()), ("text", pa.string())])


def working(rows: int, rounds: int = ROUNDS) -> Flow:
    """Figure 4a: one stream; each tuple is worked on in one bucket, which counts it.

    Example:
        >>> working(1000)
        Flow 'figure-4a': tuples → work → out
    """
    flow = Flow("figure-4a")
    source = generate(_numbers, _NUMBERED, rows=rows)
    flow.source("tuples", source).apply("work", _work(rounds)).sink("out", collect())
    return flow


def forwarding(rows: int) -> Flow:
    """Figure 4b: two streams, merged and passed on; no work but to choose one's own tuples.

    Example:
        >>> forwarding(1000)
        Flow 'figure-4b': left → right → both → forward → out
    """
    flow = Flow("figure-4b")
    sources = [generate(_tweets(), _TWEETS, rows=rows // 2, seed=seed) for seed in (1, 2)]
    left = flow.source("left", sources[0])
    right = flow.source("right", sources[1])
    left.union("both", right).apply("forward", forward).sink("out", collect())
    return flow


def _own(batch: pa.RecordBatch, bucket: Bucket) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rows of a batch that one bucket is to look at; others have the rest."""
    return np.flatnonzero(batch["id"].to_numpy() % bucket.count == bucket.index)


def _work(rounds: int) -> Shared:
    @shared(out="id: int64, nth: int64, y: double", buckets=BUCKETS)
    def work(batch: pa.RecordBatch, bucket: Bucket) -> Any:
        rows = _own(batch, bucket)
        before = bucket.state.get("seen", 0)
        bucket.state["seen"] = before + len(rows)
        y = batch["x"].to_numpy().take(rows)
        for _ in range(rounds):
            y = np.sin(y)
        nth = np.arange(before, before + len(rows))
        return {"id": batch["id"].take(pa.array(rows)), "nth": nth, "y": y}, rows

    return work


@shared(out="id: int64, text: string", buckets=BUCKETS)
def forward(batch: pa.RecordBatch, bucket: Bucket) -> Any:
    """What one bucket is to pass on."""
    rows = _own(batch, bucket)
    taken = batch.take(pa.array(rows))
    return {"id": taken["id"], "text": taken["text"]}, rows


def _numbers(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"id": index, "x": rng.random(len(index))}


def _tweets() -> Any:
    """Tuples of a tweet's size; the texts are made once, so that T^I is fast, as in the paper."""
    letters = np.random.default_rng(0).integers(97, 123, (BLOCK_ROWS, TWEET_LENGTH), np.uint8)
    texts = pa.array([row.tobytes().decode() for row in letters])

    def tweets(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"id": index, "text": texts}

    return tweets
