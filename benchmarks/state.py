"""The keyed table on one core: look-up and update beside a dict, memory per key, cost of deltas."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from harness import Report, Sample, interleave, main, seconds

from anabranch.state.tables.keyed_table import KeyedTable

KEYS = 1_000_000
BATCH_ROWS = 100_000
BATCHES = 10
TOUCHED = KEYS // 100
Keys = Callable[[np.ndarray], pa.Array]


def integer_keys(numbers: np.ndarray) -> pa.Array:
    # Spread over 63 bits: consecutive numbers would be an easier case than real identifiers.
    return pa.array(numbers.astype(np.int64) * 0x9E3779B97F4A % (2**62 - 57))


def string_keys(numbers: np.ndarray) -> pa.Array:
    return pa.array([f"user-{number:06d}" for number in numbers.tolist()], pa.string())


def filled(keys: Keys) -> KeyedTable:
    key_type = keys(np.zeros(1, np.int64)).type
    table = KeyedTable(pa.schema([("key", key_type)]), pa.schema([("n", pa.int64())]), 256)
    for start in range(0, KEYS, BATCH_ROWS):
        count(table, keys(np.arange(start, start + BATCH_ROWS)))
    table.commit()
    table.forget(table.version)
    return table


def count(table: KeyedTable, batch: pa.Array) -> None:
    """What an operator does with a jumbo tuple: look up, add, write."""
    groups = table.groups([batch])
    added = np.bincount(groups.codes, minlength=len(groups.slots))
    table.set("n", groups.slots, table.get("n", groups.slots) + added)


def count_in_dict(counts: dict[object, int], batch: list[object]) -> None:
    for key in batch:
        counts[key] = counts.get(key, 0) + 1


def dict_of(keys: Keys) -> tuple[dict[object, int], float]:
    """A dict of all keys, and the bytes it takes for each, keys and counts included.

    Counts above 256 are objects of their own, so counts start there: small ones would be free.
    """
    tracemalloc.start()
    counts: dict[object, int] = {}
    for start in range(0, KEYS, BATCH_ROWS):
        for place, key in enumerate(keys(np.arange(start, start + BATCH_ROWS)).to_pylist()):
            counts[key] = 1000 + start + place
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return counts, held / KEYS


def compare(report: Report, kind: str, keys: Keys, bar: float, repetitions: int) -> KeyedTable:
    """Rates of table and dict over the same batches, in turn."""
    table = filled(keys)
    counts, dict_bytes = dict_of(keys)
    random = np.random.default_rng(7)
    batches = [keys(random.integers(0, KEYS, BATCH_ROWS)) for _ in range(BATCHES)]
    lists = [batch.to_pylist() for batch in batches]
    # Each repetition takes a few batches further on, so that neither side sees only warm keys.
    ours, theirs = in_turn(batches), in_turn(lists)

    def table_rate() -> float:
        some = list(itertools.islice(ours, 5))
        rate = 5 * BATCH_ROWS / seconds(lambda: [count(table, batch) for batch in some])
        table.commit()
        table.forget(table.version)
        return rate

    def dict_rate() -> float:
        some = list(itertools.islice(theirs, 2))
        return 2 * BATCH_ROWS / seconds(lambda: [count_in_dict(counts, batch) for batch in some])

    samples = interleave({"table": table_rate, "dict": dict_rate}, repetitions)
    report.add_sample(f"{kind}_table_keys_per_s", samples["table"])
    report.add_sample(f"{kind}_dict_keys_per_s", samples["dict"])
    report.add_figure(f"{kind}_table_bytes_per_key", table.nbytes / KEYS)
    report.add_figure(f"{kind}_dict_bytes_per_key", dict_bytes)
    report.add_bar(f"{kind}_keys_per_s", samples["table"].median, bar)
    return table


def in_turn(batches: list[object]) -> Iterator[object]:
    return itertools.cycle(batches)


def deltas(report: Report, kind: str, table: KeyedTable, keys: Keys, repetitions: int) -> None:
    """A delta of one percent of the keys, beside a snapshot of all.

    As at a checkpoint, a delta is taken right after the batch that touched the keys; each
    repetition touches others.
    """
    random = np.random.default_rng(11)
    sizes: dict[str, int] = {}

    def delta_s() -> float:
        since = table.commit()
        table.forget(since)
        count(table, keys(random.choice(KEYS, TOUCHED, replace=False)))
        return seconds(lambda: sizes.update(delta=len(table.delta(since).to_ipc())))

    def snapshot_s() -> float:
        return seconds(lambda: sizes.update(snapshot=len(table.snapshot().to_ipc())))

    samples = interleave({"delta": delta_s, "snapshot": snapshot_s}, repetitions)
    for name, sample in samples.items():
        milliseconds = Sample(1000 * sample.median, 1000 * sample.low, 1000 * sample.high)
        report.add_sample(f"{kind}_{name}_ms", milliseconds)
        report.add_figure(f"{kind}_{name}_bytes", sizes[name])
    time_share = samples["delta"].median / samples["snapshot"].median
    report.add_bar(f"{kind}_delta_time_share", time_share, 0.05, at_least=False)
    report.add_bar(f"{kind}_delta_bytes_share", sizes["delta"] / sizes["snapshot"], 0.05, False)


def measure(quick: bool) -> Report:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    report = Report(
        "state", "A keyed table looks up and updates millions of keys a second, on one core"
    )
    repetitions = 5 if quick else 15
    for kind, keys, bar in [("integer", integer_keys, 5e6), ("string", string_keys, 2e6)]:
        table = compare(report, kind, keys, bar, repetitions)
        deltas(report, kind, table, keys, repetitions)
    return report


if __name__ == "__main__":
    main(measure)
