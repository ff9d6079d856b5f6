"""What the parking lot promises to whoever parks, claims and copies."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.engines.spark import state_cache as parking
from anabranch.engines.spark.state_cache import ParkingFull, StateCache
from anabranch.state.tables.keyed_table import KeyedTable
from tests.engines.spark.parked import LARGE, MEGABYTE, bytes_in, large
from tests.state.tables import (
    BUCKETS,
    KEY_TYPES,
    VALUES,
    columns,
    contents,
    counting,
    key_schema,
    texts,
    value_of,
)


@pytest.fixture
def lot(tmp_path: Path) -> StateCache:
    return StateCache(tmp_path)


def test_arrays_come_back_as_they_were(lot: StateCache) -> None:
    fixed = np.arange(5)
    fixed.flags.writeable = False
    state = {
        "small": np.arange(10, dtype=np.int16),
        "large": large(7),
        "empty": np.zeros(0),
        "fixed": fixed,
        "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "not contiguous": np.arange(20)[::2],
        "objects": np.array(["a", None], object),
        "times": np.array(["2020-01-01"], "datetime64[us]"),
    }
    lot.park("s", state)
    claimed = lot.claim("s")
    assert claimed.keys() == state.keys()
    for name, array in state.items():
        assert claimed[name].dtype == array.dtype
        assert np.array_equal(claimed[name], array)
        assert claimed[name].flags.writeable is array.flags.writeable


def test_arrays_are_aligned(lot: StateCache) -> None:
    lot.park("s", [np.arange(size, dtype=np.uint8) for size in (1, 63, 65, 100_000, 3)])
    assert [array.ctypes.data % 64 for array in lot.claim("s")] == [0] * 5


def test_state_without_buffers_leaves_no_file_once_it_is_claimed(
    lot: StateCache, tmp_path: Path
) -> None:
    lot.park("s", {"a": [1, "two"]})
    assert lot.claim("s") == {"a": [1, "two"]}
    assert not list(tmp_path.iterdir())


def test_arrow_batches_come_back_without_a_copy(lot: StateCache, tmp_path: Path) -> None:
    batch = pa.record_batch(
        {"n": pa.array([1, None, 3] * 10_000), "t": pa.array(["a", "bc", None] * 10_000)}
    )
    lot.park("s", batch)
    gc.collect()  # or what other tests left behind may be given back below
    before = pa.total_allocated_bytes()
    claimed = lot.claim("s")
    assert claimed.equals(batch)
    assert pa.total_allocated_bytes() - before < batch.nbytes / 4
    assert lot.park("s", claimed).bytes_written < 1 << 16  # the small buffers
    assert lot.claim("s").slice(3, 9).equals(batch.slice(3, 9))


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_keyed_table_is_looked_up_and_grows_after_it_was_claimed(
    lot: StateCache, name: str
) -> None:
    types, keys = KEY_TYPES[name]
    table = KeyedTable(key_schema(types), VALUES, BUCKETS)
    half = len(keys) // 2
    slots = table.groups(columns(keys[:half], types)).slots
    table.set("n", slots, np.arange(half))
    expected = contents(table)
    lot.park("t", table)
    claimed = lot.claim("t")
    assert contents(claimed) == expected
    assert claimed.find(columns(keys[:half], types)).tolist() == slots.tolist()
    assert claimed.groups(columns(keys, types)).fresh.tolist() == [False] * half + [True] * (
        len(keys) - half
    )
    lot.park("t", claimed)
    assert len(contents(lot.claim("t"))) == len(keys)


def test_a_large_keyed_table_is_parked_again_without_being_written(lot: StateCache) -> None:
    table = counting(200_000, pa.string())
    first = lot.park("t", table)
    claimed = lot.claim("t")
    slots = claimed.find([texts([5, 199_999])])
    claimed.set("n", slots, np.array([-5, -9]))
    claimed.commit()
    again = lot.park("t", claimed)
    assert again.bytes_written < first.bytes_written / 50
    found = lot.claim("t")
    assert [value_of(found, key) for key in ("key-5", "key-199999", "key-77")] == [-5, -9, 77]
    assert value_of(found, "key-200000") is None


# Who has it


def test_state_is_claimed_once(lot: StateCache) -> None:
    assert lot.claim("s") is None
    lot.park("s", [1])
    assert lot.names() == {"s"}
    assert lot.claim("s") == [1]
    assert lot.claim("s") is None
    assert lot.names() == set()


def test_copies_are_private_and_the_entry_stays(lot: StateCache) -> None:
    lot.park("s", [large(1), np.arange(3)])
    one, other = lot.copy("s"), lot.copy("s")
    one[0][:] = 2
    one[1][0] = 9
    assert (other[0][0], other[1][0]) == (1, 0)
    assert lot.names() == {"s"}
    assert lot.park("one", one).bytes_written > LARGE
    assert lot.claim("one")[0][0] == 2
    assert lot.claim("s")[0][0] == 1
    assert lot.copy("s") is None


def test_a_copy_does_not_see_what_a_later_claimer_writes(lot: StateCache) -> None:
    lot.park("s", [large(1)])
    copied = lot.copy("s")
    claimed = lot.claim("s")
    claimed[0][:] = 2
    assert copied[0][0] == 1
    lot.park("s", claimed)
    del claimed
    following = lot.claim("s")
    following[0][:] = 3
    assert copied[0][0] == 1
    assert lot.park("s", following).bytes_written < 5_000


def test_a_copy_that_a_claimer_overtakes_is_none(
    lot: StateCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    lot.park("s", [large(1)])
    claims: list[Any] = []
    lock = parking._Directory.lock

    def overtaken(directory: Any, kind: int) -> bool:
        monkeypatch.setattr(parking._Directory, "lock", lock)
        claims.append(lot.claim("s"))  # after the copier opened the directory, before its lock
        return lock(directory, kind)

    monkeypatch.setattr(parking._Directory, "lock", overtaken)
    assert lot.copy("s") is None
    assert claims[0][0][0] == 1


def test_a_copy_that_was_dropped_does_not_hinder(lot: StateCache) -> None:
    lot.park("s", [large(1)])
    copied = lot.copy("s")
    del copied
    claimed = lot.claim("s")
    assert lot.park("s", claimed).bytes_written < 5_000


def test_parking_under_a_name_again_replaces_it(lot: StateCache, tmp_path: Path) -> None:
    lot.park("s", [large(1)])
    reader = lot.copy("s")
    parked = lot.park("s", [large(2)])
    assert reader[0][0] == 1
    assert bytes_in(tmp_path) == parked.bytes_total
    assert lot.claim("s")[0][0] == 2


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "..", "a\n", "a b", "é", "a" * 201])
def test_names_that_are_no_file_names_are_refused(lot: StateCache, name: str) -> None:
    for method in (lot.claim, lot.copy, lambda name: lot.park(name, 1)):
        with pytest.raises(ValueError, match="expected letters"):
            method(name)


# What goes wrong


@pytest.mark.parametrize("pick", ["claim", "copy"])
def test_an_index_with_any_damage_counts_as_absent(
    lot: StateCache, tmp_path: Path, pick: str
) -> None:
    lot.park("s", {"a": np.arange(4)})
    whole = (tmp_path / "s" / "index").read_bytes()
    for at in range(len(whole)):
        lot.park("s", {"a": np.arange(4)})
        damaged = bytearray(whole)
        damaged[at] ^= 1
        (tmp_path / "s" / "index").write_bytes(damaged)
        assert getattr(lot, pick)("s") is None
    lot.sweep([])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pick", ["claim", "copy"])
@pytest.mark.parametrize("file", ["index", "0"])
def test_missing_and_cut_files_count_as_absent(
    lot: StateCache, tmp_path: Path, file: str, pick: str
) -> None:
    for size in (None, 0, 10):
        lot.park("s", pa.py_buffer(bytes(100)))
        path = tmp_path / "s" / file
        if size is None:
            path.unlink()
        else:
            os.truncate(path, size)
        assert getattr(lot, pick)("s") is None
    lot.sweep([])
    assert not list(tmp_path.iterdir())


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_lot_is_left_as_it_was_and_the_state_stays_the_callers(
    lot: StateCache, tmp_path: Path
) -> None:
    lot.park("s", [large(1)])
    claimed = lot.claim("s")
    claimed.append(np.zeros(MEGABYTE))
    lot.park("t", "before")
    with no_file_above(MEGABYTE), pytest.raises(ParkingFull, match="state 't'"):
        lot.park("t", claimed)
    assert lot.names() == {"t"}
    assert lot.copy("t") == "before"
    assert bytes_in(tmp_path) < LARGE + 1_000
    claimed.pop()
    claimed[0][0] = 5
    assert lot.park("t", claimed).bytes_written < 5_000
    assert lot.claim("t")[0][:2].tolist() == [5, 1]


def test_a_lot_without_its_directory_is_empty_and_full(tmp_path: Path) -> None:
    lot = StateCache(tmp_path / "gone")
    assert (lot.claim("s"), lot.copy("s"), lot.names()) == (None, None, set())
    lot.sweep([])
    with pytest.raises(ParkingFull):
        lot.park("s", 1)


def test_state_that_cannot_be_pickled_leaves_the_lot_alone(lot: StateCache, tmp_path: Path) -> None:
    with pytest.raises((AttributeError, TypeError)):
        lot.park("s", [large(1), lambda: None])
    assert not list(tmp_path.iterdir())
