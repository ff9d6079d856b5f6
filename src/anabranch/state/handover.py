"""Buckets on their way from one keyed table to another, by reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.state.key_words import Ints, Mask
from anabranch.state.slab import Slab


class Source(NamedTuple):
    """Rows that travel.

    Attributes:
        slab: Where they are; it has no rows of other buckets.
        touched: Slots of rows that changed in the releaser's open version.
    """

    slab: Slab
    touched: Ints


@dataclass
class Handover:
    """Buckets that one table released and another is to absorb, once.

    Attributes:
        owned: Which buckets, as a mask.
        sources: Where their rows are.
        removed: Keys that the releaser removed in its open version.
    """

    owned: Mask
    sources: list[Source]
    removed: list[list[pa.Array]] = field(default_factory=list)
    absorbed: bool = False

    @property
    def buckets(self) -> frozenset[int]:
        """The buckets that travel."""
        return frozenset(np.flatnonzero(self.owned).tolist())

    @property
    def rows(self) -> int:
        """How many rows travel."""
        return sum(source.slab.rows for source in self.sources)
