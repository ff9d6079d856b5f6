"""The cases of `speedup.py`: flows that read stored Parquet files and write files as `--out` does.

Every application of the catalogue is a case, and two flows beside it: a word count in tuple style,
and STRETCH's band join whose condition is a function, so that every pair within the window is
decided. Rows are fixed for each case, so that rates of different versions can be compared: one core
takes about six seconds for them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import harness  # noqa: F401 - makes `papers` importable
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tuple_count import counted

import anabranch as ab
from anabranch.apps import APPS
from anabranch.apps.band_join import R, S, r_rows, s_rows
from anabranch.apps.kit.seeded_random import zipf
from anabranch.cli.results import result_folders
from anabranch.flow import Flow
from papers.stretch.figure5 import every_pair

FILES = 8
ROW_GROUPS = 4
"""At least so many in a file."""
MOST_GROUP_ROWS = 1 << 17

TUPLES, ANY_PAIR = "tuple-word-count", "band-join-any"
DISTINCT = 10_000
PAIR_RATE_PER_S, PAIR_WINDOW = 1_000, timedelta(seconds=5)

ROWS = {
    "word-count": 12_800_000,
    "synthetic-word-count": 6_400,
    "finance": 28_000_000,
    "micro": 22_400_000,
    "micro-two-regions": 24_000_000,
    "micro-tree": 14_400_000,
    "micro-reverse-tree": 12_000_000,
    "micro-selectivity": 7_200_000,
    "micro-joker-chain": 11_200_000,
    "micro-linear": 1_280_000,
    "micro-diamond": 800,
    "micro-star": 960_000,
    "log-watch": 2_800_000,
    "network-monitoring": 2_800_000,
    "band-join": 2_000_000,
    "fraud-detection": 32_000_000,
    "spike-detection": 32_000_000,
    "linear-road": 8_000_000,
    "hashtag-sequences": 3_600_000,
    "sentiment": 560_000,
    "nexmark-q0": 32_000_000,
    "nexmark-q1": 28_000_000,
    "nexmark-q2": 240_000_000,
    "nexmark-q3": 240_000_000,
    "nexmark-q4": 28_000_000,
    "nexmark-q5": 48_000_000,
    "nexmark-q6": 12_800_000,
    "nexmark-q7": 36_000_000,
    "nexmark-q8": 160_000_000,
    "nexmark-q9": 14_400_000,
    "nexmark-q11": 48_000_000,
    "nexmark-q12": 72_000_000,
    "nexmark-q13": 22_400_000,
    "nexmark-q17": 40_000_000,
    "nexmark-q18": 6_400_000,
    "nexmark-q19": 6_400_000,
    TUPLES: 12_800_000,
    ANY_PAIR: 80_000,
}
"""What `build` is asked for: of NEXMark all events, of two streams each."""


def tuple_word_count(*, rows: int | None) -> Flow:
    """Every occurrence of a word with its number, one call of Python for each."""
    by_rank = zipf(DISTINCT)

    def words(rng: np.random.Generator, index: np.ndarray) -> dict[str, pa.Array]:
        ranks = np.searchsorted(by_rank, rng.random(len(index)))
        return {"word": pc.binary_join_element_wise("w", pa.array(ranks).cast(pa.string()), "")}

    flow = Flow(TUPLES)
    source = ab.generate(words, pa.schema([("word", pa.string())]), rows=rows)
    flow.source("words", source).apply("count", counted).sink("out", ab.collect())
    return flow


def any_pair(*, rows: int | None) -> Flow:
    """The band join with the paper's condition as a function of candidate pairs."""

    def times(index: np.ndarray) -> np.ndarray:
        return (index * (1_000_000 // PAIR_RATE_PER_S)).astype("datetime64[us]")

    flow = Flow(ANY_PAIR)
    left, right = (
        flow.source(name, ab.generate(make(times), schema, rows=rows, seed=seed), time="ts")
        for seed, (name, make, schema) in enumerate((("r", r_rows, R), ("s", s_rows, S)))
    )
    left.join_where("join", right, within=PAIR_WINDOW, where=every_pair).sink("out", ab.collect())
    return flow


@dataclass(frozen=True)
class Case:
    """A flow to measure.

    Attributes:
        name: Its name.
        build: Makes the flow; with `rows`, or None for no end.
        rows: How many to ask for.
    """

    name: str
    build: Callable[..., Flow]
    rows: int

    def write(self, root: Path, rows: int) -> Path:
        """Write the files of every source once; return the folder that holds them."""
        folder = root / f"{self.name}-{rows}"
        if folder.exists():
            return folder
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        for name, source in self.build(rows=rows).sources().items():
            [part] = source.parts()
            a_file = max(1, source.extent(part).rows // FILES)
            group = max(1, min(MOST_GROUP_ROWS, a_file // ROW_GROUPS))
            (partial / name).mkdir(parents=True)
            for number in range(FILES):
                batch = source.read(part, number * a_file, a_file).batch
                with pq.ParquetWriter(partial / name / f"{number}.parquet", batch.schema) as file:
                    file.write_batch(batch, row_group_size=group)
        return partial.rename(folder)

    def flow(self, folder: Path, out: Path, files: int = FILES) -> Flow:
        """The flow that reads the first of the files and writes Parquet as `--out` does."""
        flow = self.build(rows=None)
        sources = {
            name: ab.files(sorted((folder / name).iterdir())[:files], schema=source.schema)
            for name, source in flow.sources().items()
        }
        sinks = {
            sink: ab.parquet(place)
            for sink, place in result_folders(flow, out, resumes=False).items()
        }
        return flow.reading(sources).writing(sinks)


def rows_of(flow: Flow) -> dict[str, int]:
    """Rows of each source, all of them files."""
    return {
        name: sum(source.extent(part).rows for part in source.parts())
        for name, source in flow.sources().items()
    }


def _builds() -> dict[str, Callable[..., Flow]]:
    catalogue: dict[str, Any] = {name: app.build for name, app in APPS.items() if name != "nexmark"}
    return {**catalogue, TUPLES: tuple_word_count, ANY_PAIR: any_pair}


CASES = {name: Case(name, build, ROWS[name]) for name, build in _builds().items()}
"""By name; `nexmark` alone would be q5 once more."""
