"""A running word count in tuple style, one invocation per tuple, through the kernel alone.

    python -m benchmarks.tuple_count --words 1000000 --batch-rows 65536

Prints one line of JSON, with the rate that `bytewax_count` gives for the same count on one core.
Time is that of the processor, which neighbours disturb least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.graph import StreamType
from anabranch.operators.base import KernelContext
from anabranch.operators.tuple_style.schedule import Schedule
from anabranch.state.positions import Jumbo, Positions, Root

BUCKETS = 256


@ab.partitioned(key="word", out="word: string, n: int64", schedule=Schedule.exactly(1))
def counted(ctx: ab.Invocation) -> None:
    """Every occurrence of a word with its number, one call for each."""
    for _ in ctx.tuples():
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.emit(n=ctx.state["n"])


def zipf_words(words: int, distinct: int, seed: int) -> pa.Array:
    """Words whose frequencies follow Zipf's law, as in `word_data`."""
    shares = np.cumsum(1.0 / np.arange(1, distinct + 1))
    shares /= shares[-1]
    ranks = np.searchsorted(shares, np.random.default_rng(seed).random(words))
    return pa.array([f"w{rank}" for rank in range(distinct)]).take(pa.array(ranks))


def kernel_seconds(words: pa.Array, batch_rows: int) -> float:
    """CPU seconds that a kernel takes for all words, from an empty state."""
    given = StreamType(pa.schema([("word", pa.string())]), None)
    out = counted.types("count", (given,))
    kernel = counted.kernel(KernelContext("count", 1, (given,), out, 0, BUCKETS))
    jumbos = []
    for start in range(0, len(words), batch_rows):
        part = words.slice(start, batch_rows)
        positions = Positions.of_source(0, np.arange(start, start + len(part)))
        jumbos.append(Jumbo(pa.RecordBatch.from_arrays([part], schema=given.schema), positions))
    told, reached = 0, 0
    start_time = time.process_time()
    for jumbo in jumbos:
        reached += len(jumbo)
        (made,) = kernel.run([jumbo], Root(reached, 0, reached, 0))
        told += 0 if made is None else len(made)
    taken = time.process_time() - start_time
    if told != len(words):
        raise AssertionError(f"{told} counts were told, {len(words)} were due")
    return taken


def tuples_per_s(words: int, distinct: int, seed: int, repeat: int, batch_rows: int) -> float:
    """Median rate of several runs."""
    given = zipf_words(words, distinct, seed)
    return statistics.median(words / kernel_seconds(given, batch_rows) for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--distinct", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--batch-rows", type=int, default=65_536)
    given = parser.parse_args()
    rate = tuples_per_s(given.words, given.distinct, given.seed, given.repeat, given.batch_rows)
    print(json.dumps({"tuples_per_s": rate, "batch_rows": given.batch_rows}))


if __name__ == "__main__":
    main()
