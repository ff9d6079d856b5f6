"""Word count: lines are split into words, words are counted.

The classic first example, and the yardstick of BriskStream and of the stepwise profiling paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.apps.kit.arguments import a_count, a_text, require, unless
from anabranch.apps.kit.columns import LINES
from anabranch.apps.kit.inputs import Input, paths_of, text_files
from anabranch.apps.kit.seeded_random import zipf
from anabranch.apps.kit.summary import AppSummary, Condensed, grouped
from anabranch.flow import Flow, Stream
from anabranch.io import collect, generate, memory
from anabranch.io.source import Source
from anabranch.operators.aggregates.functions import count
from anabranch.operators.row_wise.map_filter_expand import expand

WORDS_A_LINE = 10
TOP = 10


@expand(out="word: string")
def split(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array]:
    """Lines into words; a word's parent is its line."""
    words = pc.split_pattern(batch["line"], " ")
    parents = pc.list_parent_indices(words)
    flat = pc.list_flatten(words)
    if pc.min(pc.binary_length(flat)).as_py() == 0:  # two spaces in a row, or an empty line
        filled = pc.not_equal(flat, "")
        flat, parents = flat.filter(filled), parents.filter(filled)
    return {"word": flat}, parents


def build(
    *,
    text: str | None = None,
    input: Input | None = None,
    rows: int | None = 200_000,
    distinct: int = 10_000,
    seed: int = 0,
) -> Flow:
    """Count the words of a text, of files, or of generated lines.

    Args:
        text: Lines to count.
        input: Text files: a path, a directory, a pattern, or several of those.
        rows: How many lines to generate when neither is given; None for an endless stream.
        distinct: How many different words are generated; their frequencies follow Zipf's law.
        seed: Decides the generated words.

    Example:
        >>> build(text="to be or not to be")
        Flow 'word-count': lines → split → count.combine → count → out
    """
    require("word-count", text=unless(None, a_text(text)), distinct=a_count(distinct, 1))
    flow = Flow("word-count")
    lines = flow.source("lines", lines_of(text, input, zipf_lines(distinct), rows=rows, seed=seed))
    counted(lines).sink("out", collect())
    return flow


def lines_of(text: str | None, input: Input | None, make: Any, **generated: Any) -> Source:
    """The lines of a text or of files; generated ones when neither is given."""
    if text is not None:
        return memory([{"line": line} for line in text.splitlines()], LINES)
    if input is not None:
        return text_files(paths_of(input, "lines", ["lines"]))
    return generate(make, LINES, **generated)


def counted(lines: Stream) -> Stream:
    """How often each word has come, told again whenever that changes."""
    words = lines.apply("split", split)
    return words.aggregate("count", key="word", n=count(), emit="changes")


class Summary(AppSummary):
    """The words that came most often, from all that the sink got.

    Example:
        >>> print(Summary.of({"out": pa.table({"word": ["to", "be", "to"], "n": [1, 2, 3]})}))
        top words of 2:
          to  3
          be  2
    """

    def __init__(self) -> None:
        # Counts only grow, so the greatest one told of a word is its last.
        self._counts = Condensed(grouped(["word"], n="max"))

    def add(self, sink: str, rows: pa.Table) -> None:
        if sink == "out":
            self._counts.add(rows)

    def __str__(self) -> str:
        top = self._counts.rows([("n", "descending"), ("word", "ascending")], TOP)
        shown = [(str(row["word"]), f"{row['n']:,}") for row in top]
        width = max((len(word) for word, _ in shown), default=0)
        places = max((len(n) for _, n in shown), default=0)
        lines = [f"  {word:{width}}  {n:>{places}}" for word, n in shown]
        return "\n".join([f"top words of {len(self._counts):,}:", *lines])


def zipf_lines(distinct: int) -> Any:
    """A generator of lines of ten words; the word of rank r comes in proportion to 1/r."""
    by_rank = zipf(distinct)

    def make(rng: np.random.Generator, index: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
        ranks = np.searchsorted(by_rank, rng.random(len(index) * WORDS_A_LINE))
        words = pc.binary_join_element_wise("w", pa.array(ranks).cast(pa.string()), "")
        offsets = np.arange(0, len(words) + 1, WORDS_A_LINE, dtype=np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), words)
        return {"line": pc.binary_join(lists, " ")}

    return make
