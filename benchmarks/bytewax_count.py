"""A running word count in Bytewax: the other side of `tuple_count`, and of that in `speedup`.

    python benchmarks/bytewax_count.py --words 300000 --distinct 10000
    python benchmarks/bytewax_count.py --words 2000000 --workers 2

Prints one line of JSON. One worker is measured in processor time, which neighbours disturb least.
Several are measured by the clock, as threads of one process and as one process each; the faster
counts. Runs under an interpreter of its own that has Bytewax, and needs nothing else: not this
library, nor NumPy.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import multiprocessing
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
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


def word_count(source: Any, seen: list[tuple[float, int]]) -> Any:
    """The flow: a count of every occurrence, for a sink that notes when it got how many."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Counting(StatelessSinkPartition[Any]):
        def write_batch(self, items: list[Any]) -> None:
            seen.append((time.monotonic(), len(items)))

    class Sink(DynamicSink[Any]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
            return Counting()

    def running(held: int | None, _: str) -> tuple[int, int]:
        number = (held or 0) + 1
        return number, number

    flow = Dataflow("word_count")
    keyed = op.key_on("key", op.input("words", flow, source), lambda word: word)
    op.output("out", op.stateful_map("count", keyed, running), Sink())
    return flow


def count(words: list[str], batch_size: int) -> float:
    """Tuples per second of processor time, with one worker."""
    from bytewax.testing import TestingSource, run_main

    seen: list[tuple[float, int]] = []
    flow = word_count(TestingSource(words, batch_size=batch_size), seen)
    start = time.process_time()
    run_main(flow)
    taken = time.process_time() - start
    require_all(words, sum(number for _, number in seen))
    return len(words) / taken


def count_with(words: list[str], batch_size: int, workers: int, *, processes: bool) -> float:
    """Tuples per second by the clock, with workers that each read a share of the words."""
    threads, count = (1, workers) if processes else (workers, 1)
    with ExitStack() as held:
        ports = [held.enter_context(socket.socket()) for _ in range(count)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    shared = (words, batch_size, addresses if processes else [], threads, found)
    running = [context.Process(target=work, args=(*shared, number)) for number in range(count)]
    for process in running:
        process.start()
    began, ended, seen = zip(*(found.get() for _ in running), strict=True)
    for process in running:
        process.join()
    require_all(words, sum(seen))
    return len(words) / (max(ended) - min(began))


def work(
    words: list[str], batch_size: int, addresses: list[str], threads: int, found: Any, number: int
) -> None:
    """One process of a cluster: reports its first read, its last write, and how many it wrote."""
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.testing import cluster_main

    began: list[float] = []
    seen: list[tuple[float, int]] = []

    class Share(StatelessSourcePartition[str]):
        def __init__(self, share: list[str]) -> None:
            self._batches = batches(share, batch_size)

        def next_batch(self) -> list[str]:
            if not began:
                began.append(time.monotonic())
            return next(self._batches)

    class Words(DynamicSource[str]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Share:
            return Share(words[worker_index::worker_count])

    flow = word_count(Words(), seen)
    cluster_main(flow, addresses, number, worker_count_per_proc=threads)
    found.put((began[0], seen[-1][0], sum(number for _, number in seen)))


def batches(words: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(words), size):
        yield words[start : start + size]


def require_all(words: list[str], seen: int) -> None:
    if seen != len(words):
        raise AssertionError(f"{seen} counts were told, {len(words)} were due")


def best_rate(words: list[str], repeat: int, workers: int) -> tuple[float, str]:
    """Median rate of the fastest way, and that way."""
    ways: dict[str, Callable[[], float]] = {}
    for size in BATCH_SIZES:
        if workers == 1:
            ways[f"batches of {size}"] = partial(count, words, size)
            continue
        for kind in ("threads", "processes"):
            ways[f"{workers} {kind}, batches of {size}"] = partial(
                count_with, words, size, workers, processes=kind == "processes"
            )
    rates = {name: statistics.median(way() for _ in range(repeat)) for name, way in ways.items()}
    fastest = max(rates, key=lambda name: rates[name])
    return rates[fastest], fastest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=300_000)
    parser.add_argument("--distinct", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    try:
        version = metadata.version("bytewax")
    except metadata.PackageNotFoundError:
        print(
            f"bytewax is not installed here: {sys.executable} -m pip install '{REQUIREMENT}'",
            file=sys.stderr,
        )
        return 1
    words = zipf_words(given.words, given.distinct, given.seed)
    rate, way = best_rate(words, given.repeat, given.workers)
    print(json.dumps({"tuples_per_s": rate, "version": version, "way": way}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
