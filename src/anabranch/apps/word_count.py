"""Word count: lines are split into words, words are counted.

The classic first example, and the yardstick of BriskStream and of the stepwise profiling paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.flow import Flow
from anabranch.io import collect, files, generate, memory
from anabranch.operators.aggregates import count
from anabranch.operators.shapes import expand

WORDS_A_LINE = 10


@expand(out="word: string")
def split(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array]:
    """Lines into words; a word's parent is its line."""
    words = pc.split_pattern(batch["line"], " ")
    parents = pc.list_parent_indices(words)
    flat = pc.list_flatten(words)
    filled = pc.not_equal(flat, "")
    return {"word": flat.filter(filled)}, parents.filter(filled)


def build(
    *,
    text: str | None = None,
    input: str | None = None,
    sink: Any = None,
    lines: int | None = 1_000,
    distinct: int = 10_000,
    seed: int = 0,
) -> Flow:
    """Count the words of a text, of files, or of generated lines.

    Args:
        text: Lines to count.
        input: A path or pattern of text files.
        sink: Where the counts go; in memory when left out.
        lines: How many lines to generate when neither is given; None for an endless stream.
        distinct: How many different words are generated; their frequencies follow Zipf's law.
        seed: Decides the generated words.

    Example:
        >>> build(text="to be or not to be")
        Flow 'word-count': lines → split → count.combine → count → out
    """
    if text is not None:
        source: Any = memory([{"line": line} for line in text.splitlines()], _LINE)
    elif input is not None:
        source = files(input, format="text")
    else:
        source = generate(zipf_lines(distinct), _LINE, rows=lines, seed=seed)
    flow = Flow("word-count")
    (
        flow.source("lines", source)
        .apply("split", split)
        .aggregate("count", key="word", n=count(), emit="changes")
        .sink("out", sink if sink is not None else collect())
    )
    return flow


def zipf_lines(distinct: int) -> Any:
    """A generator of lines of ten words; the word of rank r comes in proportion to 1/r."""
    weights = np.cumsum(1.0 / np.arange(1, distinct + 1))
    weights /= weights[-1]

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
        ranks = np.searchsorted(weights, rng.random(len(index) * WORDS_A_LINE))
        words = pc.binary_join_element_wise("w", pa.array(ranks).cast(pa.string()), "")
        offsets = np.arange(0, len(words) + 1, WORDS_A_LINE, dtype=np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), words)
        return {"line": pc.binary_join(lists, " ")}

    return make


_LINE = pa.schema([("line", pa.string())])
