"""Count the words of text files: a complete program.

    python examples/word_count.py books/*.txt
    spark-submit --master 'local[2]' examples/word_count.py books/*.txt

Prints the words that come most often, and how many lines were read in a second.
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc

import anabranch as ab

TOP = 10


@ab.expand(out="word: string")
def split(batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array]:
    """Lines into words; a word's parent is its line."""
    words = pc.utf8_split_whitespace(pc.utf8_lower(batch["line"]))
    parents, flat = pc.list_parent_indices(words), pc.list_flatten(words)
    filled = pc.not_equal(flat, "")
    return {"word": flat.filter(filled)}, parents.filter(filled)


def main(paths: list[str]) -> None:
    """Count and print; nothing here says how many threads, tasks or partitions."""
    counts = ab.collect()
    flow = ab.Flow("word-count")
    (
        flow.source("lines", ab.files(paths, format="text"))
        .apply("split", split)
        .aggregate("count", key="word", n=ab.count(), emit="final")
        .sink("out", counts)
    )
    result = ab.run(flow)
    table = counts.table().sort_by([("n", "descending"), ("word", "ascending")])
    for row in table.slice(0, TOP).to_pylist():
        print(row["word"], row["n"])
    print(f"{result.rows_in} lines, {result.rate_per_s:,.0f} a second")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} FILE…")
    main(sys.argv[1:])
