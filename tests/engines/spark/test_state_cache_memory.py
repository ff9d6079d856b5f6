"""What caching writes, and that memory which nobody uses is given back."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.engines.spark.state_cache import CachedState, StateCache
from tests.engines.spark.cached_states import (
    LARGE,
    MEGABYTE,
    bytes_in,
    files,
    large,
    maps_of,
    open_files_of,
)
from tests.state.tables.tables import ints


@pytest.fixture
def cache(tmp_path: Path) -> StateCache:
    return StateCache(tmp_path)


def test_parked_says_what_it_took(cache: StateCache, tmp_path: Path) -> None:
    cached = cache.put("s", [large(1), ints(range(3)), 7])
    assert cached == CachedState(cached.bytes_total, bytes_in(tmp_path))
    assert LARGE < cached.bytes_total <= cached.bytes_written


def test_a_small_change_of_a_large_state_writes_little(cache: StateCache) -> None:
    state: dict[str, Any] = {"rows": np.zeros(100 * MEGABYTE // 8, np.int64), "count": 0}
    assert cache.put("1", state).bytes_written > 100 * MEGABYTE
    claimed = cache.claim("1")
    claimed["rows"][12_345] = 6
    claimed["count"] = 1
    cached = cache.put("2", claimed)
    assert cached.bytes_total > 100 * MEGABYTE
    assert cached.bytes_written < MEGABYTE / 100
    found = cache.claim("2")
    assert (found["rows"][12_345], found["rows"].sum(), found["count"]) == (6, 6, 1)


def test_a_grown_array_is_written_alone_and_lets_go_of_its_old_memory(
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", [large(1), large(2), large(3)])
    claimed = cache.claim("s")
    claimed[1] = np.concatenate([claimed[1], claimed[1]])
    cached = cache.put("s", claimed)
    assert 2 * LARGE < cached.bytes_written < 2 * LARGE + 5_000
    del claimed
    assert bytes_in(tmp_path) == cached.bytes_total
    assert [(len(array), array[-1]) for array in cache.claim("s")] == [
        (LARGE // 8, 1),
        (LARGE // 4, 2),
        (LARGE // 8, 3),
    ]


def test_small_arrays_do_not_gather_files_over_time(cache: StateCache, tmp_path: Path) -> None:
    state: list[np.ndarray] = []
    for batch in range(100):
        state.append(np.full(500, batch))
        cache.put("s", state)
        del state
        state = cache.claim("s")
        assert [array[0] for array in state] == list(range(batch + 1))
    assert len(files(tmp_path)) <= 2 + 100 * 4_000 // (1 << 16)


def test_many_large_arrays_do_not_need_a_file_each(cache: StateCache, tmp_path: Path) -> None:
    arrays = [np.full(9_000, number) for number in range(600)]
    cache.put("s", arrays)
    assert len(files(tmp_path)) <= 257
    assert [array[-1] for array in cache.claim("s")] == list(range(600))


def test_memory_of_small_arrays_that_were_dropped_is_given_back(
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", [np.full(1_000, number) for number in range(100)])
    kept = cache.claim("s")[::10]
    cache.put("s", kept)
    del kept
    assert bytes_in(tmp_path) < 100_000
    assert [array[7] for array in cache.claim("s")] == list(range(0, 100, 10))


def test_the_same_memory_is_parked_once(cache: StateCache) -> None:
    array = large(4)
    assert cache.put("s", [array, array, array.view(np.uint64)]).bytes_total < LARGE + 5_000
    claimed = cache.claim("s")
    claimed[0][3] = 9
    assert claimed[2][3] == 9


def test_overlapping_views_keep_their_values(cache: StateCache) -> None:
    base = np.arange(50_000)
    state = [base, base[10:], base[:7], base[100:40_000]]
    for _ in range(3):
        cache.put("s", state)
        state = cache.claim("s")
        assert [(view[0], view[-1]) for view in state] == [
            (0, 49_999),
            (10, 49_999),
            (0, 6),
            (100, 39_999),
        ]


def test_state_parked_under_two_names_is_not_shared_by_them(cache: StateCache) -> None:
    cache.put("s", [large(1)])
    claimed = cache.claim("s")
    assert cache.put("a", claimed).bytes_written < 5_000
    assert cache.put("b", claimed).bytes_written > LARGE
    del claimed
    a, b = cache.claim("a"), cache.claim("b")
    a[0][:] = 2
    assert b[0].tolist() == large(1).tolist()


def test_memory_beside_a_claimed_segment_is_written(cache: StateCache) -> None:
    def beside(fill: int) -> np.ndarray:
        array = np.frombuffer(mmap.mmap(-1, LARGE), np.int64)
        array[:] = fill
        return array

    cache.put("s", [large(1)])
    above = [beside(2) for _ in range(5)]
    claimed = cache.claim("s")
    below = [beside(3) for _ in range(5)]
    cached = cache.put("s", [*above, *claimed, *below])
    assert cached.bytes_written > 10 * LARGE
    assert [array[-1] for array in cache.claim("s")] == [2] * 5 + [1] + [3] * 5


def test_random_changes_over_many_batches_are_all_kept(cache: StateCache, tmp_path: Path) -> None:
    random = np.random.default_rng(17)
    state: dict[int, np.ndarray] = {}
    truth: dict[int, np.ndarray] = {}
    for batch in range(200):
        for key in random.integers(0, 30, 5).tolist():
            change = random.integers(0, 4)
            if key not in state or change == 0:
                state[key] = random.integers(0, 99, int(2.0 ** random.uniform(0, 16)))
            elif change == 1:
                state[key][random.integers(0, len(state[key]))] = batch
            elif change == 2:
                state[key] = state[key][: len(state[key]) // 2 + 1]
            else:
                state[key] = np.concatenate([state[key], [batch]])
            truth[key] = state[key].copy()
        for key in random.integers(0, 30, 2).tolist():
            state.pop(key, None)
            truth.pop(key, None)
        cached = cache.put(f"s{batch}", state)
        del state
        assert bytes_in(tmp_path) < 2.5 * cached.bytes_total + 10_000
        state = cache.claim(f"s{batch}")
        assert state.keys() == truth.keys()
        assert all(np.array_equal(state[key], truth[key]) for key in truth)


def test_claimed_state_that_is_dropped_leaves_no_file_and_no_mapping(
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", [large(1), np.arange(3)])
    claimed = cache.claim("s")
    part = claimed[1][1:]
    del claimed
    assert maps_of(tmp_path)
    assert part.tolist() == [1, 2]
    del part
    assert not maps_of(tmp_path)
    assert not list(tmp_path.iterdir())
    assert cache.claim("s") is None


def test_nothing_stays_mapped_or_open_over_many_batches(cache: StateCache, tmp_path: Path) -> None:
    cache.put("s", [large(1), np.arange(3)])
    for _ in range(20):
        cache.copy("s")
        cache.put("s", cache.claim("s"))
    assert not maps_of(tmp_path)
    assert not open_files_of(tmp_path)
    cache.sweep([])
    assert not list(tmp_path.iterdir())


def test_sweep_removes_what_is_not_kept_and_spares_what_is_in_use(
    cache: StateCache, tmp_path: Path
) -> None:
    for name in "abc":
        cache.put(name, [large(1)])
    claimed = cache.claim("c")
    cache.sweep(["b"])
    assert cache.names() == {"b"}
    assert cache.put("c", claimed).bytes_written < 5_000


def test_state_whose_files_were_removed_meanwhile_is_written(
    cache: StateCache, tmp_path: Path
) -> None:
    cache.put("s", [large(1)])
    claimed = cache.claim("s")
    for path in files(tmp_path):
        path.unlink()
    assert cache.put("s", claimed).bytes_written > LARGE
    assert cache.claim("s")[0][0] == 1
