"""The sources that a clock tells apart: each part of an interleaved source is one of its own."""

from __future__ import annotations

import numpy as np

from anabranch.operators.base import CLOSING
from anabranch.state.positions import EVERY_PART, Ints, Jumbo, Mark, Positions

RANKS = 1 << 33
"""More than there are ranks, those of closing steps included."""
PARTS = 1 << 30
"""More than a source has parts; multiples of it place tuples behind one of the same part."""


def source_number(rank: int, part: int) -> int:
    """Return one number for a part of a source; that of part 0 is the rank of the source.

    Example:
        >>> rank_of(source_number(3, part=5))
        3
    """
    return part * RANKS + rank


def rank_of(source: int) -> int:
    """Return the rank of a source from the number of one of its parts."""
    return source % RANKS


def sources_of(positions: Positions) -> Ints:
    """Return the number of the source of each tuple; what steps emit at their end has its rank."""
    ranks, subs = positions.columns[1], positions.columns[3]
    if subs.strides == (0,) and (not len(subs) or subs[0] == 0):
        return ranks
    if subs.strides == (0,) and ranks.strides == (0,):
        both = int(ranks[0]), int(subs[0]) % PARTS
        number = both[0] if both[0] >= CLOSING else source_number(*both)
        return np.broadcast_to(np.int64(number), len(ranks))
    numbers: Ints = np.where(ranks >= CLOSING, ranks, subs % PARTS * RANKS + ranks)
    return numbers


def source_of(mark: Mark) -> int:
    """Return the number of the source that a mark is about."""
    return source_number(mark.root.rank, 0 if mark.part == EVERY_PART else mark.part)


def distinct_sources(jumbo: Jumbo) -> list[int]:
    """Return whose tuples or marks these are, without what steps emit at their end."""
    sources = sources_of(jumbo.positions)
    found = {int(s) for s in (sources[:1] if sources.strides == (0,) else np.unique(sources))}
    return sorted(s for s in found | set(map(source_of, jumbo.marks)) if rank_of(s) < CLOSING)


def marks_of(jumbo: Jumbo, source: int) -> list[Mark]:
    """Return the marks that are about a source."""
    return [mark for mark in jumbo.marks if source_of(mark) == source]
