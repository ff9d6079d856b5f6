"""What the state cache promises to whoever stores, claims and copies."""

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

from anabranch.engines.spark import state_cache as caching
from anabranch.engines.spark.state_cache import StateCache, StateCacheFull
from anabranch.state.tables.keyed_table import KeyedTable
from tests.engines.spark.cached_states import LARGE, MEGABYTE, bytes_in, large
from tests.state.tables.tables import (
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
def cache(tmp_path: Path) -> StateCache:
    return StateCache(tmp_path)


def test_arrays_come_back_as_they_were(cache: StateCache) -> None:
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
    cache.put("s", state)
    claimed = cache.claim("s")
    assert claimed.keys() == state.keys()
    for name, array in state.items():
        assert claimed[name].dtype == array.dtype
        assert np.array_equal(claimed[name], array)
        assert claimed[name].flags.writeable is array.flags.writeable


def test_arrays_are_aligned(cache: StateCache) -> None:
    cache.put("s", [np.arange(size, dtype=np.uint8) for size in (1, 63, 65, 100_000, 3)])
    assert [array.ctypes.data % 64 for array in cache.claim("s")] == [0] * 5


def test_state_without_buffers_leaves_no_file_once_it_is_claimed(
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", {"a": [1, "two"]})
    assert cache.claim("s") == {"a": [1, "two"]}
    assert not list(tmp_path.iterdir())


def test_arrow_batches_come_back_without_a_copy(cache: StateCache, tmp_path: Path) -> None:
    batch = pa.record_batch(
        {"n": pa.array([1, None, 3] * 10_000), "t": pa.array(["a", "bc", None] * 10_000)}
    )
    cache.put("s", batch)
    gc.collect()  # or what other tests left behind may be given back below
    before = pa.total_allocated_bytes()
    claimed = cache.claim("s")
    assert claimed.equals(batch)
    assert pa.total_allocated_bytes() - before < batch.nbytes / 4
    assert cache.put("s", claimed).bytes_written < 1 << 16  # the small buffers
    assert cache.claim("s").slice(3, 9).equals(batch.slice(3, 9))


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_keyed_table_is_looked_up_and_grows_after_it_was_claimed(
    cache: StateCache, name: str
) -> None:
    types, keys = KEY_TYPES[name]
    table = KeyedTable(key_schema(types), VALUES, BUCKETS)
    half = len(keys) // 2
    slots = table.groups(columns(keys[:half], types)).slots
    table.set("n", slots, np.arange(half))
    expected = contents(table)
    cache.put("t", table)
    claimed = cache.claim("t")
    assert contents(claimed) == expected
    assert claimed.find(columns(keys[:half], types)).tolist() == slots.tolist()
    assert claimed.groups(columns(keys, types)).fresh.tolist() == [False] * half + [True] * (
        len(keys) - half
    )
    cache.put("t", claimed)
    assert len(contents(cache.claim("t"))) == len(keys)


def test_a_large_keyed_table_is_parked_again_without_being_written(cache: StateCache) -> None:
    table = counting(200_000, pa.string())
    first = cache.put("t", table)
    claimed = cache.claim("t")
    slots = claimed.find([texts([5, 199_999])])
    claimed.set("n", slots, np.array([-5, -9]))
    claimed.commit()
    again = cache.put("t", claimed)
    assert again.bytes_written < first.bytes_written / 50
    found = cache.claim("t")
    assert [value_of(found, key) for key in ("key-5", "key-199999", "key-77")] == [-5, -9, 77]
    assert value_of(found, "key-200000") is None


# Who has it


def test_state_is_claimed_once(cache: StateCache) -> None:
    assert cache.claim("s") is None
    cache.put("s", [1])
    assert cache.names() == {"s"}
    assert cache.claim("s") == [1]
    assert cache.claim("s") is None
    assert cache.names() == set()


def test_copies_are_private_and_the_entry_stays(cache: StateCache) -> None:
    cache.put("s", [large(1), np.arange(3)])
    one, other = cache.copy("s"), cache.copy("s")
    one[0][:] = 2
    one[1][0] = 9
    assert (other[0][0], other[1][0]) == (1, 0)
    assert cache.names() == {"s"}
    assert cache.put("one", one).bytes_written > LARGE
    assert cache.claim("one")[0][0] == 2
    assert cache.claim("s")[0][0] == 1
    assert cache.copy("s") is None


def test_a_copy_does_not_see_what_a_later_claimer_writes(cache: StateCache) -> None:
    cache.put("s", [large(1)])
    copied = cache.copy("s")
    claimed = cache.claim("s")
    claimed[0][:] = 2
    assert copied[0][0] == 1
    cache.put("s", claimed)
    del claimed
    following = cache.claim("s")
    following[0][:] = 3
    assert copied[0][0] == 1
    assert cache.put("s", following).bytes_written < 5_000


def test_a_copy_that_a_claimer_overtakes_is_none(
    cache: StateCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("s", [large(1)])
    claims: list[Any] = []
    lock = caching._Directory.lock

    def overtaken(directory: Any, kind: int) -> bool:
        monkeypatch.setattr(caching._Directory, "lock", lock)
        claims.append(cache.claim("s"))  # after the copier opened the directory, before its lock
        return lock(directory, kind)

    monkeypatch.setattr(caching._Directory, "lock", overtaken)
    assert cache.copy("s") is None
    assert claims[0][0][0] == 1


def test_a_copy_that_was_dropped_does_not_hinder(cache: StateCache) -> None:
    cache.put("s", [large(1)])
    copied = cache.copy("s")
    del copied
    claimed = cache.claim("s")
    assert cache.put("s", claimed).bytes_written < 5_000


def test_parking_under_a_name_again_replaces_it(cache: StateCache, tmp_path: Path) -> None:
    cache.put("s", [large(1)])
    reader = cache.copy("s")
    cached = cache.put("s", [large(2)])
    assert reader[0][0] == 1
    assert bytes_in(tmp_path) == cached.bytes_total
    assert cache.claim("s")[0][0] == 2


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "..", "a\n", "a b", "é", "a" * 201])
def test_names_that_are_no_file_names_are_refused(cache: StateCache, name: str) -> None:
    for method in (cache.claim, cache.copy, lambda name: cache.put(name, 1)):
        with pytest.raises(ValueError, match="expected letters"):
            method(name)


# What goes wrong


@pytest.mark.parametrize("pick", ["claim", "copy"])
def test_an_index_with_any_damage_counts_as_absent(
    cache: StateCache, tmp_path: Path, pick: str
) -> None:
    cache.put("s", {"a": np.arange(4)})
    whole = (tmp_path / "s" / "index").read_bytes()
    for at in range(len(whole)):
        cache.put("s", {"a": np.arange(4)})
        damaged = bytearray(whole)
        damaged[at] ^= 1
        (tmp_path / "s" / "index").write_bytes(damaged)
        assert getattr(cache, pick)("s") is None
    cache.sweep([])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pick", ["claim", "copy"])
@pytest.mark.parametrize("file", ["index", "0"])
def test_missing_and_cut_files_count_as_absent(
    cache: StateCache, tmp_path: Path, file: str, pick: str
) -> None:
    for size in (None, 0, 10):
        cache.put("s", pa.py_buffer(bytes(100)))
        path = tmp_path / "s" / file
        if size is None:
            path.unlink()
        else:
            os.truncate(path, size)
        assert getattr(cache, pick)("s") is None
    cache.sweep([])
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
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", [large(1)])
    claimed = cache.claim("s")
    claimed.append(np.zeros(MEGABYTE))
    cache.put("t", "before")
    with no_file_above(MEGABYTE), pytest.raises(StateCacheFull, match="state 't'"):
        cache.put("t", claimed)
    assert cache.names() == {"t"}
    assert cache.copy("t") == "before"
    assert bytes_in(tmp_path) < LARGE + 1_000
    claimed.pop()
    claimed[0][0] = 5
    assert cache.put("t", claimed).bytes_written < 5_000
    assert cache.claim("t")[0][:2].tolist() == [5, 1]


def test_a_lot_without_its_directory_is_empty_and_full(tmp_path: Path) -> None:
    cache = StateCache(tmp_path / "gone")
    assert (cache.claim("s"), cache.copy("s"), cache.names()) == (None, None, set())
    cache.sweep([])
    with pytest.raises(StateCacheFull):
        cache.put("s", 1)


def test_state_that_cannot_be_pickled_leaves_the_lot_alone(
    cache: StateCache, tmp_path: Path
) -> None:
    with pytest.raises((AttributeError, TypeError)):
        cache.put("s", [large(1), lambda: None])
    assert not list(tmp_path.iterdir())
