"""Slots of shared memory are used again, and not before the last reference to them is gone."""

import os
import pickle
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engines.local.arena import ALIGNMENT, PAGE_BYTES, WIPED, Arena, Mappings, Slot

OWNER = 3
SMALL_SEGMENT = 16 * PAGE_BYTES


class Pair:
    """An arena, and the mappings of a process that reads it."""

    def __init__(self) -> None:
        self.arena, self.mappings = Arena(SMALL_SEGMENT, wipe=True), Mappings()
        self._mapped: set[int] = set()

    def open(self, slot: Slot) -> list[pa.Buffer]:
        if slot.segment not in self._mapped:
            self._mapped.add(slot.segment)
            self.mappings.add(OWNER, slot.segment, *self.arena.descriptor(slot.segment))
        return self.mappings.open(OWNER, slot)

    def release_freed(self) -> None:
        while self.mappings.freed:
            owner, slot_id = self.mappings.freed.popleft()
            assert owner == OWNER
            self.arena.release(slot_id)


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.arena.close()


def test_a_reader_gets_the_buffers_that_were_put(pair):
    slot = pair.arena.put([b"one", b"", memoryview(b"three" * 1000)])
    assert [b.to_pybytes() for b in pair.open(slot)] == [b"one", b"", b"three" * 1000]


def test_each_buffer_is_aligned(pair):
    buffers = pair.open(pair.arena.put([b"a", b"bc", b"def"]))
    assert [buffer.address % ALIGNMENT for buffer in buffers] == [0, 0, 0]


def test_a_slot_can_be_pickled(pair):
    slot = pair.arena.put([b"one", b"two"])
    assert pickle.loads(pickle.dumps(slot)) == slot


def test_a_slot_is_used_again_after_its_release(pair):
    first = pair.arena.put([b"x" * 5000])
    pair.arena.release(first.id)
    second = pair.arena.put([b"y" * 5000])
    assert (second.segment, second.offset) == (first.segment, first.offset)


def test_a_steady_stream_of_messages_needs_one_segment(pair):
    for number in range(100):
        buffers = pair.open(pair.arena.put([bytes([number % 256]) * 10_000]))
        assert buffers[0][9_999:].to_pybytes() == bytes([number % 256])
        del buffers
        pair.release_freed()
    assert pair.arena.bytes == SMALL_SEGMENT


@pytest.mark.parametrize(
    "view",
    [
        lambda buffer: buffer,
        lambda buffer: buffer.slice(1, 2),
        lambda buffer: np.frombuffer(buffer, dtype=np.uint8)[2:],
        lambda buffer: pa.Array.from_buffers(pa.uint8(), 4, [None, buffer]).slice(3).to_numpy(),
        memoryview,
    ],
    ids=["buffer", "slice", "numpy", "array", "memoryview"],
)
def test_a_slot_is_not_free_while_a_view_of_one_buffer_lives(pair, view):
    kept = view(pair.open(pair.arena.put([b"1" * 5000, b"\7\7\7\7"]))[1])
    pair.release_freed()
    assert set(memoryview(kept)) == {7}


def test_a_slot_is_free_after_the_last_view_of_it(pair):
    kept = np.frombuffer(pair.open(pair.arena.put([b"1" * 5000, b"2"]))[1], dtype=np.uint8)
    del kept
    pair.release_freed()
    assert pair.arena.used == 0


def test_a_free_slot_is_wiped_on_request(pair):
    slot = pair.arena.put([b"secret"])
    stale = pair.open(slot)
    pair.arena.release(slot.id)
    assert stale[0].to_pybytes() == bytes([WIPED]) * 6


def test_the_environment_requests_wiping(monkeypatch):
    monkeypatch.setenv("ANABRANCH_WIPE_SLOTS", "1")
    arena, mappings = Arena(), Mappings()
    slot = arena.put([b"secret"])
    mappings.add(OWNER, slot.segment, *arena.descriptor(slot.segment))
    arena.release(slot.id)
    assert mappings.open(OWNER, slot)[0].to_pybytes() == bytes([WIPED]) * 6
    arena.close()


def test_a_slot_with_several_readers_is_free_after_the_last(pair):
    slot = pair.arena.put([b"x"], readers=3)
    pair.arena.release(slot.id)
    pair.arena.release(slot.id)
    assert pair.arena.used == slot.size
    pair.arena.release(slot.id)
    assert pair.arena.used == 0


def test_buffers_that_fit_in_no_segment_get_a_larger_one(pair):
    large = os.urandom(5 * SMALL_SEGMENT)
    pair.arena.put([b"small"])
    assert pair.open(pair.arena.put([large]))[0].to_pybytes() == large


def test_buffers_outlive_the_arena(pair):
    buffers = pair.open(pair.arena.put([b"x" * 5000]))
    pair.arena.close()
    assert buffers[0].to_pybytes() == b"x" * 5000


def test_an_arena_leaves_no_file_behind():
    before = _shared_files()
    arena = Arena()
    arena.put([b"x" * 100_000])
    assert _shared_files() == before
    arena.close()


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 5)), max_size=40))
def test_slots_never_overlap(steps):
    """Each step puts a buffer, and releases the oldest slots until few enough are held."""
    arena, held = Arena(SMALL_SEGMENT), []
    for size, kept in steps:
        held.append(arena.put([b"x" * size]))
        ranges = sorted((slot.segment, slot.offset, slot.size) for slot in held)
        for (segment, offset, length), following in pairwise(ranges):
            assert segment < following[0] or offset + length <= following[1]
        while len(held) > kept:
            arena.release(held.pop(0).id)
    assert arena.used == sum(slot.size for slot in held)
    arena.close()


def _shared_files() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
