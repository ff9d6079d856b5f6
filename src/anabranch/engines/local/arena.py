"""Shared memory that one process writes, other processes read, and the owner uses again.

The owner copies the buffers of a message into a slot of one of its segments. A reader maps the
segment once and gets Arrow buffers that refer to it without a copy. When the last of them is gone,
the reader reports it, and the slot becomes free. The allocator takes the lowest free range that is
large enough, so that a steady stream of messages goes through the same few pages: these have been
mapped before and need no page fault.

A segment is a file without a name. It disappears with the last process that has it open, however
that process ends.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from anabranch.state.tables.shared_arrays import shared_file

SEGMENT_BYTES = 32 << 20
MAX_GROWTH_BYTES = 1 << 30
ALIGNMENT = 64
"""Bytes that a buffer's start is a multiple of; Arrow recommends this number."""
PAGE_BYTES = 4096
WIPED = 0xA5
WIPE_VARIABLE = "ANABRANCH_WIPE_SLOTS"

_NOTHING = pa.py_buffer(b"")


class Slot(NamedTuple):
    """A range of a segment that holds the buffers of one message.

    Attributes:
        id: Number of the slot, unique among all slots that its arena ever had.
        segment: Number of the segment in its arena.
        offset: First byte of the slot in the segment.
        size: Bytes of the slot.
        starts: First byte in the segment of each buffer.
        lengths: Bytes of each buffer.
    """

    id: int
    segment: int
    offset: int
    size: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]


class Arena:
    """Segments of shared memory that this process owns and writes.

    An arena belongs to one thread.

    Args:
        segment_bytes: Least size of a segment.
        wipe: Whether slots are overwritten when they become free, so that tests notice a use after
            that; None for the environment variable ANABRANCH_WIPE_SLOTS.

    Example:
        >>> arena, mappings = Arena(), Mappings()
        >>> slot = arena.put([b"some", b"bytes"])
        >>> mappings.add(1, slot.segment, *arena.descriptor(slot.segment))
        >>> [buffer.to_pybytes() for buffer in mappings.open(1, slot)]
        [b'some', b'bytes']
        >>> mappings.freed.popleft() == (1, slot.id)
        True
        >>> arena.release(slot.id)
        >>> arena.used
        0
    """

    def __init__(self, segment_bytes: int = SEGMENT_BYTES, wipe: bool | None = None) -> None:
        self.bytes = 0
        """Bytes of all segments; pages that were never written take no memory."""
        self.used = 0
        """Bytes of the slots that are not free."""
        self._segment_bytes = segment_bytes
        self._wipe = os.environ.get(WIPE_VARIABLE) == "1" if wipe is None else wipe
        self._segments: list[_Segment] = []
        self._held: dict[int, _Held] = {}
        self._next_id = 0

    def put(self, buffers: Sequence[memoryview | bytes], readers: int = 1) -> Slot:
        """Copy buffers of bytes into a slot that becomes free after as many releases as readers."""
        lengths = tuple(map(len, buffers))
        size = sum(length + -length % ALIGNMENT for length in lengths)
        size = max(size + -size % PAGE_BYTES, PAGE_BYTES)
        number, offset = self._range(size)
        view = self._segments[number].view
        starts, start = [], offset
        for buffer, length in zip(buffers, lengths, strict=True):
            view[start : start + length] = buffer
            starts.append(start)
            start += length + -length % ALIGNMENT
        slot = Slot(self._next_id, number, offset, size, tuple(starts), lengths)
        self._next_id += 1
        self._held[slot.id] = _Held(slot, readers)
        self.used += size
        return slot

    def release(self, slot_id: int) -> None:
        """Note that one reader is done with a slot."""
        held = self._held[slot_id]
        held.readers -= 1
        if held.readers:
            return
        del self._held[slot_id]
        _, number, offset, size, _, _ = held.slot
        if self._wipe:
            self._segments[number].view[offset : offset + size] = bytes([WIPED]) * size
        self._segments[number].give(offset, offset + size)
        self.used -= size

    def descriptor(self, segment: int) -> tuple[int, int]:
        """Return the file descriptor of a segment, which stays the arena's, and its size."""
        found = self._segments[segment]
        return found.descriptor, len(found.view)

    def close(self) -> None:
        """Close the segments; readers keep what they have mapped."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        self._held.clear()
        self.bytes = self.used = 0

    def _range(self, size: int) -> tuple[int, int]:
        for number, segment in enumerate(self._segments):
            offset = segment.take(size)
            if offset is not None:
                return number, offset
        # The total doubles, so that even a large arena has few file descriptors.
        grown = _Segment(max(self._segment_bytes, size, min(self.bytes, MAX_GROWTH_BYTES)))
        self._segments.append(grown)
        self.bytes += len(grown.view)
        grown.take(size)
        return len(self._segments) - 1, 0


class Mappings:
    """Segments of other processes that this process reads.

    Attributes:
        freed: Owner and id of each slot to which no Arrow buffer refers any more. Finalizers append
            to it at any moment and in any thread.
    """

    def __init__(self) -> None:
        self.freed: deque[tuple[int, int]] = deque()
        self._segments: dict[tuple[int, int], pa.Buffer] = {}

    def add(self, owner: int, segment: int, descriptor: int, size: int) -> None:
        """Map a segment of another process; the descriptor may be closed afterwards."""
        self._segments[owner, segment] = pa.py_buffer(mmap.mmap(descriptor, size))

    def open(self, owner: int, slot: Slot) -> list[pa.Buffer]:
        """Return the buffers of a slot, which is in use until none of them is referred to."""
        memory = self._segments[owner, slot.segment]
        use, address = _Use(memory, self.freed, owner, slot.id), memory.address
        return [
            pa.foreign_buffer(address + start, length, use) if length else _NOTHING
            for start, length in zip(slot.starts, slot.lengths, strict=True)
        ]

    def open_writable(self, owner: int, slot: Slot) -> list[memoryview]:
        """Return the buffers of a slot that has no other reader, who may write to them."""
        memory = self._segments[owner, slot.segment]
        use, address = _Use(memory, self.freed, owner, slot.id), memory.address
        views = []
        for start, length in zip(slot.starts, slot.lengths, strict=True):
            bytes_ = (ctypes.c_ubyte * length).from_address(address + start)
            bytes_.use = use  # type: ignore[attr-defined]  # lives as long as a view of the bytes
            views.append(memoryview(bytes_).cast("B"))
        return views


class _Held:
    """A slot that is not free, and the number of readers that have not released it."""

    __slots__ = ("readers", "slot")

    def __init__(self, slot: Slot, readers: int) -> None:
        self.slot, self.readers = slot, readers


class _Segment:
    """A file without a name, mapped for writing, with its free ranges in ascending order."""

    def __init__(self, size: int) -> None:
        size += -size % PAGE_BYTES
        self.descriptor = shared_file(size)
        self.view = memoryview(mmap.mmap(self.descriptor, size))
        self._free = [(0, size)]

    def take(self, size: int) -> int | None:
        """Return the start of the first free range of this size, which is then taken."""
        for index, (start, end) in enumerate(self._free):
            if end - start > size:
                self._free[index] = (start + size, end)
                return start
            if end - start == size:
                del self._free[index]
                return start
        return None

    def give(self, start: int, end: int) -> None:
        """Make a range free, as one with those that it touches."""
        index = bisect_left(self._free, (start, end))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index and self._free[index - 1][1] == start:
            index -= 1
            start = self._free.pop(index)[0]
        self._free.insert(index, (start, end))

    def close(self) -> None:
        """Close the file; the mapping goes with the last view of it."""
        os.close(self.descriptor)
        self.view = memoryview(b"")


class _Use:
    """Keeps a segment mapped while an Arrow buffer refers to a slot, and notes the end of that."""

    __slots__ = ("_freed", "_memory", "_owner", "_slot_id")

    def __init__(
        self, memory: pa.Buffer, freed: deque[tuple[int, int]], owner: int, slot_id: int
    ) -> None:
        self._memory, self._freed, self._owner, self._slot_id = memory, freed, owner, slot_id

    def __del__(self) -> None:
        # A lock could be held by the very code that this interrupts; an append is atomic.
        self._freed.append((self._owner, self._slot_id))
