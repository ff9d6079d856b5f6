"""The distinct keys of a batch, numbered in order of first occurrence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.state.key_words import Ints, Mask


@dataclass(frozen=True)
class KeyGroups:
    """The distinct keys of a batch, numbered in order of first occurrence.

    Attributes:
        slots: Slot of each group.
        codes: Group number of each row of the batch.
        fresh: Which groups were not in the table before.
    """

    slots: Ints
    codes: Ints
    fresh: Mask


class SlotGroups:
    """Numbers the distinct slots of a batch; keeps its scratch array, which holds no state."""

    def __init__(self) -> None:
        self._first_row: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def __reduce__(self) -> Any:
        return SlotGroups, ()

    @property
    def nbytes(self) -> int:
        """Bytes of the scratch array."""
        return int(self._first_row.nbytes)

    def number(self, slots: Ints, fresh: Mask, capacity: int) -> KeyGroups:
        """The groups of a batch; `slots` and `fresh` are by row, all slots below `capacity`."""
        rows = np.arange(len(slots), dtype=np.int32)
        if len(self._first_row) < capacity:
            self._first_row = np.zeros(capacity, np.int32)
        self._first_row[slots] = len(slots)
        np.minimum.at(self._first_row, slots, rows)
        firsts = self._first_row.take(slots)
        leads = firsts == rows
        if leads.all():
            return KeyGroups(slots, rows.astype(np.int64), fresh)
        codes = np.cumsum(leads)
        codes -= 1
        return KeyGroups(slots[leads], codes.take(firsts), fresh[leads])
