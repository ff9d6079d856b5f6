"""A running word count in Bytewax, in one process on one core: the other side of `tuple_count`.

    python benchmarks/bytewax_count.py --words 300000 --distinct 10000

Prints one line of JSON. Time is that of the processor, which neighbours disturb least. Runs under
an interpreter of its own that has Bytewax, and needs nothing else: not this library, nor NumPy.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import random
import statistics
import sys
import time
from importlib import metadata
from typing import Any

REQUIREMENT = "bytewax==0.21.*"
BATCH_SIZES = (100, 1_000, 10_000)


def zipf_words(words: int, distinct: int, seed: int) -> list[str]:
    """Words whose frequencies follow Zipf's law, as in `word_data`."""
    shares = list(itertools.accumulate(1.0 / rank for rank in range(1, distinct + 1)))
    rng = random.Random(seed)
    vocabulary = [f"w{rank}" for rank in range(distinct)]
    return [vocabulary[bisect.bisect(shares, rng.random() * shares[-1])] for _ in range(words)]


def count(words: list[str], batch_size: int) -> float:
    """CPU seconds for a count of every occurrence, told to a sink that only counts them."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main

    seen = [0]

    class Counting(StatelessSinkPartition[Any]):
        def write_batch(self, items: list[Any]) -> None:
            seen[0] += len(items)

    class Sink(DynamicSink[Any]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
            return Counting()

    def running(held: int | None, _: str) -> tuple[int, int]:
        number = (held or 0) + 1
        return number, number

    flow = Dataflow("word_count")
    given = op.input("words", flow, TestingSource(words, batch_size=batch_size))
    keyed = op.key_on("key", given, lambda word: word)
    op.output("out", op.stateful_map("count", keyed, running), Sink())
    start = time.process_time()
    run_main(flow)
    taken = time.process_time() - start
    if seen[0] != len(words):
        raise AssertionError(f"{seen[0]} counts were told, {len(words)} were due")
    return taken


def best_rate(words: list[str], repeat: int) -> tuple[float, int]:
    """Median rate of the batch size that is fastest, and that size."""
    rates = {
        size: statistics.median(len(words) / count(words, size) for _ in range(repeat))
        for size in BATCH_SIZES
    }
    fastest = max(rates, key=lambda size: rates[size])
    return rates[fastest], fastest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--distinct", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    try:
        version = metadata.version("bytewax")
    except metadata.PackageNotFoundError:
        print(
            f"bytewax is not installed here: {sys.executable} -m pip install '{REQUIREMENT}'",
            file=sys.stderr,
        )
        return 1
    rate, batch_size = best_rate(zipf_words(given.words, given.distinct, given.seed), given.repeat)
    print(json.dumps({"tuples_per_s": rate, "version": version, "batch_size": batch_size}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
