"""Files of generated lines, cut into micro-batches, and the counts that must come out of them.

Lines have ten words, frequencies follow Zipf's law. All contenders read the same files; a batch is
a few of them, so that every core has one to scan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

WORDS_A_LINE = 10
FILES_A_BATCH = 4
ROW_GROUP_LINES = 1 << 17
# Files are read in the order of their modification times: they are spaced, and lie in the past.
FIRST_TIME_S = 1_700_000_000


@dataclass(frozen=True)
class WordFiles:
    """A folder of files; every `FILES_A_BATCH` of them, in the order of names, are a batch.

    Attributes:
        folder: Where the files are, and nothing else.
        format: "parquet" (one text column, `line`) or "text".
        batches: How many micro-batches the files make.
        words_a_batch: Words in each of them.
        counts: How often each word occurs in all files; word `w<i>` at index i.
    """

    folder: Path
    format: str
    batches: int
    words_a_batch: int
    counts: np.ndarray

    @property
    def lines_a_batch(self) -> int:
        return self.words_a_batch // WORDS_A_LINE

    @property
    def words(self) -> int:
        return self.batches * self.words_a_batch

    @property
    def paths(self) -> list[Path]:
        return sorted(self.folder.iterdir())


@dataclass(frozen=True)
class Pass:
    """What one contender did with all batches of a `WordFiles`, from an empty state.

    Attributes:
        batch_seconds: How long each micro-batch took, in their order.
        output: The Parquet files that it left, with columns `word` and `n`, the count so far.
    """

    batch_seconds: tuple[float, ...]
    output: tuple[Path, ...]


def write_words(
    folder: Path,
    *,
    batches: int,
    words_a_batch: int,
    distinct: int,
    seed: int = 0,
    format: str = "parquet",
) -> WordFiles:
    """Generate the files; the same arguments give the same words."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1.0 / np.arange(1, distinct + 1))
    shares /= shares[-1]
    vocabulary = pa.array([f"w{rank}" for rank in range(distinct)])
    counts = np.zeros(distinct, np.int64)
    words_a_file, rest = divmod(words_a_batch, FILES_A_BATCH)
    if rest or words_a_file % WORDS_A_LINE:
        raise ValueError(f"{words_a_batch} words do not fill {FILES_A_BATCH} files of whole lines")
    for number in range(batches * FILES_A_BATCH):
        ranks = np.searchsorted(shares, rng.random(words_a_file)).astype(np.int32)
        counts += np.bincount(ranks, minlength=distinct)
        path = folder / f"{number:05d}.{format}"
        write_lines(path, vocabulary.take(pa.array(ranks)), format)
        os.utime(path, (FIRST_TIME_S + number, FIRST_TIME_S + number))
    return WordFiles(folder, format, batches, words_a_batch, counts)


def write_lines(path: Path, words: pa.Array, format: str) -> None:
    """One file of lines of ten words."""
    offsets = pa.array(np.arange(0, len(words) + 1, WORDS_A_LINE, dtype=np.int32))
    lines = pc.binary_join(pa.ListArray.from_arrays(offsets, words), " ")
    if format == "text":
        path.write_text("\n".join(lines.to_pylist()) + "\n", encoding="utf-8")
        return
    # No two lines are alike: a dictionary would cost both sides and save nothing.
    table = pa.table({"line": lines})
    pq.write_table(table, path, row_group_size=ROW_GROUP_LINES, use_dictionary=False)


def check_counts(files: WordFiles, output: Iterable[Path], rows: int | None = None) -> None:
    """Stop unless the output ends in the counts that a sequential run ends in.

    Counts only grow, so the greatest that was written for a word is the last.

    Args:
        files: What was read.
        output: Parquet files with columns `word` and `n`.
        rows: How many rows they must hold together, where that is known.
    """
    found, found_rows = np.zeros_like(files.counts), 0
    for path in output:
        table = pq.ParquetFile(path).read(columns=["word", "n"])
        found_rows += len(table)
        greatest = table.group_by("word").aggregate([("n", "max")])
        rank = pc.utf8_slice_codeunits(greatest["word"], 1).cast(pa.int64()).to_numpy()
        found[rank] = np.maximum(found[rank], greatest["n_max"].to_numpy())
    wrong = int(np.count_nonzero(found != files.counts))
    if wrong:
        raise AssertionError(f"{wrong} of {len(found)} words have a wrong count")
    if rows is not None and found_rows != rows:
        raise AssertionError(f"{found_rows} rows were written, {rows} were due")
