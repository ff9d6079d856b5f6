"""Where rows that a step set aside stand in their source."""

from __future__ import annotations

from anabranch.events import SkippedRow
from anabranch.flow import Flow
from anabranch.io.reader import part_and_row
from anabranch.operators.base import SkippedAt


def skipped_row(flow: Flow, skipped: SkippedAt | None) -> SkippedRow | None:
    """Return where a row that was set aside stands in its source.

    Example:
        >>> from anabranch.apps import word_count
        >>> flow = word_count.build(text="a b a")
        >>> skipped_row(flow, SkippedAt(rank=0, seq=1, why="too short", text="b"))
        SkippedRow(source='lines', part='memory', row=2, why='too short', text='b')
    """
    if skipped is None:
        return None
    sources = list(flow.sources().items())
    if skipped.rank not in range(len(sources)):  # of a timer, or of the end of the stream
        return SkippedRow("", "", 0, skipped.why, skipped.text)
    name, source = sources[skipped.rank]
    number, row = part_and_row(skipped.seq)
    # Rows that an engine brings have no numbers, and those of an interleaved source others.
    parts = () if source.pushed or source.interleaved else source.parts()
    if number not in range(len(parts)):
        return SkippedRow(name, "", 0, skipped.why, skipped.text)
    return SkippedRow(name, parts[number], row + 1, skipped.why, skipped.text)
