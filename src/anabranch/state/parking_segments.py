"""Buffers in files that processes map: which of them are mapped here, and how new ones are written.

A *segment* is a file with the bytes of one large buffer, or of many small ones. A segment that this
process has claimed and still has mapped can become part of a new entry by a hard link, whatever its
size. Nothing here keeps a mapping alive: the arrays that lie in it do.
"""

from __future__ import annotations

import bisect
import itertools
import mmap
import os
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anabranch.state.parking_place import discard_file

LARGE_BYTES = 1 << 16
# A mapping costs a file descriptor, and a process may have few more than a thousand.
MOST_SEGMENTS = 256
_ALIGNMENT = 64
_NOWHERE = (-1, 0, 0)

Span = tuple[int, int]
"""Address and length of a buffer in this process."""
Place = tuple[int, int, int]
"""Segment, offset and length of a buffer in an entry."""


class SegmentMapping(mmap.mmap):
    """A mapped segment; what `held` refers to lives as long as any array that lies in it."""

    held: object = None


@dataclass(frozen=True, eq=False)
class _Segment:
    """A segment that this process has claimed and mapped, and may link."""

    path: Path
    start: int
    size: int
    mapping: weakref.ref[SegmentMapping]

    @property
    def lot(self) -> Path:
        return self.path.parent.parent


_live: set[_Segment] = set()
# Both sides of a fork have the mappings; only the one that claimed them may link them.
os.register_at_fork(after_in_child=_live.clear)


def map_copy(file: int, held: object) -> SegmentMapping:
    """Map a segment so that changes stay in this process."""
    mapping = SegmentMapping(file, 0, access=mmap.ACCESS_COPY)
    mapping.held = held
    return mapping


def map_claimed(file: int, path: Path) -> SegmentMapping:
    """Map a segment in place; the file is removed when it is neither mapped nor linked any more."""
    mapping = SegmentMapping(file, 0, access=mmap.ACCESS_WRITE)
    start = pa.py_buffer(mapping).address
    segment = _Segment(path, start, len(mapping), weakref.ref(mapping))
    _live.add(segment)
    weakref.finalize(mapping, _let_go, segment)
    return mapping


def _let_go(segment: _Segment) -> None:
    if segment in _live:
        _live.discard(segment)
        discard_file(segment.path)


class SegmentWriter:
    """Brings buffers into the directory of an entry that is being made, by link or by writing.

    Exactly one of `give_away` and `take_back` follows.

    Args:
        directory: The entry's directory, a private one of the lot.
    """

    def __init__(self, directory: Path) -> None:
        self.bytes_total = 0
        self.bytes_written = 0
        self._directory = directory
        self._numbers = itertools.count()
        self._linked: list[_Segment] = []

    def place(self, buffers: Sequence[memoryview]) -> list[Place]:
        """Bring buffers in; returns where each is. What is the same memory stays the same."""
        spans = [(_address(buffer), buffer.nbytes) for buffer in buffers]
        distinct = dict(zip(spans, buffers, strict=True))
        self.bytes_total = sum(size for _, size in distinct)
        large = max(LARGE_BYTES, self.bytes_total // MOST_SEGMENTS)
        places = {span: _NOWHERE for span in distinct if span[1] == 0}
        places |= self._link([span for span in distinct if span[1]], large)
        small: dict[Span, memoryview] = {}
        for span, buffer in distinct.items():
            if span in places:
                continue
            if span[1] < large:
                small[span] = buffer
            else:
                places |= self._write({span: buffer})
        if small:
            places |= self._write(small)
        return [places[span] for span in spans]

    def give_away(self) -> None:
        """The entry is published: what was linked is its own now."""
        for segment in self._linked:
            discard_file(segment.path)

    def take_back(self) -> None:
        """There will be no entry: what was linked may be linked again."""
        _live.update(self._linked)

    def _link(self, spans: Sequence[Span], large: int) -> dict[Span, Place]:
        """Link the segments that spans lie in, if most of a segment is used.

        Small segments are written anew, together, or every batch would add one; so are those of
        which less than half is used, or they would hold the memory of what was let go.
        """
        places: dict[Span, Place] = {}
        for segment, within in self._segments_of(spans).items():
            used = sum(size + -size % _ALIGNMENT for _, size in within)
            if segment.size < large or 2 * used < segment.size:
                continue
            number = self._link_one(segment)
            if number is not None:
                for span in within:
                    places[span] = (number, span[0] - segment.start, span[1])
        return places

    def _segments_of(self, spans: Sequence[Span]) -> dict[_Segment, list[Span]]:
        lot = self._directory.parent
        mapped = [one for one in list(_live) if one.lot == lot and one.mapping() is not None]
        mapped.sort(key=lambda segment: segment.start)
        starts = [segment.start for segment in mapped]
        found: dict[_Segment, list[Span]] = defaultdict(list)
        for span in spans:
            at = bisect.bisect_right(starts, span[0]) - 1
            if at >= 0 and sum(span) <= mapped[at].start + mapped[at].size:
                found[mapped[at]].append(span)
        return found

    def _link_one(self, segment: _Segment) -> int | None:
        """Its number in the new entry; None if it cannot be linked, so that it must be written."""
        try:
            _live.remove(segment)  # a segment belongs to one entry: whoever removes it links it
        except KeyError:
            return None
        number = next(self._numbers)
        try:
            os.link(segment.path, self._directory / str(number))
        except OSError:
            _live.add(segment)
            return None
        self._linked.append(segment)
        return number

    def _write(self, buffers: dict[Span, memoryview]) -> dict[Span, Place]:
        # Written, not mapped and filled: with memory short, that is an error and not a signal.
        number = next(self._numbers)
        places: dict[Span, Place] = {}
        offset = 0
        with (self._directory / str(number)).open("xb") as file:
            for span, buffer in buffers.items():
                padding = -offset % _ALIGNMENT
                file.write(bytes(padding))
                file.write(buffer)
                places[span] = (number, offset + padding, span[1])
                offset += padding + span[1]
        self.bytes_written += offset
        return places


def _address(buffer: memoryview) -> int:
    return int(pa.py_buffer(buffer).address) if buffer.nbytes else 0
