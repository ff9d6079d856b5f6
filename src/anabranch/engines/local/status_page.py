"""A page of shared memory on which a worker notes what it does, readable whatever it does."""

from __future__ import annotations

import mmap
import os
import struct

from anabranch.state.tables.shared_arrays import shared_file

_STEP = struct.Struct("<q")
SIZE = mmap.PAGESIZE
NO_STEP = -1


class StatusPage:
    """One page that two processes map.

    Args:
        descriptor: The file that is mapped; a new one when left out.

    Example:
        >>> page = StatusPage()
        >>> same = StatusPage(os.dup(page.descriptor))
        >>> page.step = 3
        >>> same.step
        3
        >>> page.close()
        >>> same.close()
    """

    def __init__(self, descriptor: int | None = None) -> None:
        fresh = descriptor is None
        self.descriptor = shared_file(SIZE) if descriptor is None else descriptor
        self._page = mmap.mmap(self.descriptor, SIZE)
        if fresh:
            self.step = NO_STEP

    @property
    def step(self) -> int:
        """Return the number of the step that runs; NO_STEP between steps."""
        number: int = _STEP.unpack_from(self._page)[0]
        return number

    @step.setter
    def step(self, number: int) -> None:
        _STEP.pack_into(self._page, 0, number)

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()
        os.close(self.descriptor)
