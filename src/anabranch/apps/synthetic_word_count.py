"""Synthetic word count: word count with an operator in front that keeps every line for a while.

An application of the stepwise profiling paper (§6.1.1): it gives the same counts as word count, and
needs other plans, since its first operator takes time but no processor.
"""

from __future__ import annotations

from anabranch.apps.kit.arguments import a_count, a_number, a_text, require, unless
from anabranch.apps.kit.inputs import Input
from anabranch.apps.micro.operators import wait
from anabranch.apps.word_count import Summary, counted, lines_of, zipf_lines
from anabranch.flow import Flow
from anabranch.io import collect

__all__ = ["Summary", "build"]

WAIT_MS = 1.0


def build(
    *,
    text: str | None = None,
    input: Input | None = None,
    rows: int | None = 15_000,
    wait_ms: float = WAIT_MS,
    rate_per_s: float | None = 2_000.0,
    distinct: int = 10_000,
    seed: int = 0,
) -> Flow:
    """Count the words of lines that wait first.

    Args:
        text: Lines to count.
        input: Text files: a path, a directory, a pattern, or several of those.
        rows: How many lines to generate when neither is given; None for an endless stream.
        wait_ms: How long each line waits, in milliseconds.
        rate_per_s: How many generated lines become due in a second, since batches that hold all
            lines there are would wait for all of them; None for all at once.
        distinct: How many different words are generated; their frequencies follow Zipf's law.
        seed: Decides the generated words.

    Example:
        >>> build(text="to be or not to be")
        Flow 'synthetic-word-count': lines → wait → split → count.combine → count → out
    """
    require(
        "synthetic-word-count",
        text=unless(None, a_text(text)),
        wait_ms=a_number(wait_ms, 0),
        rate_per_s=unless(None, a_number(rate_per_s, above=0)),
        distinct=a_count(distinct, 1),
    )
    flow = Flow("synthetic-word-count")
    make = zipf_lines(distinct)
    given = lines_of(text, input, make, rows=rows, rate_per_s=rate_per_s, seed=seed)
    lines = flow.source("lines", given)
    counted(lines.apply("wait", wait(wait_ms))).sink("out", collect())
    return flow
