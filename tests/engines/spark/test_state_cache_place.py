"""Where a cache lies: in shared memory if there is room, and never where others can write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from anabranch.engines.spark import state_cache as parking_place
from anabranch.engines.spark.state_cache import StateCacheFull, cache_directory


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "memory"
    place.mkdir(mode=0o755)
    monkeypatch.setattr(parking_place, "SHARED_MEMORY", place)
    monkeypatch.setattr(parking_place, "ENOUGH_BYTES", 1)
    return place


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "temporary").mkdir(mode=0o755)
    return {"TMPDIR": str(tmp_path / "temporary")}


def home_in(place: Path) -> Path:
    return place / f"anabranch-{os.geteuid()}"


def test_a_checkpoint_has_its_own_directory_that_only_its_user_enters(
    memory: Path, environment: dict[str, str]
) -> None:
    cache = cache_directory("s3://bucket/a", environment)
    assert cache.parent == home_in(memory)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (cache, cache.parent)] == [0o700, 0o700]
    assert cache_directory("s3://bucket/a", environment) == cache
    assert cache_directory("s3://bucket/b", environment) != cache


def test_without_enough_shared_memory_a_lot_is_temporary(
    memory: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_before = cache_directory("a", environment)
    monkeypatch.setattr(parking_place, "ENOUGH_BYTES", 1 << 80)
    assert cache_directory("b", environment).parent == home_in(Path(environment["TMPDIR"]))
    assert cache_directory("a", environment) == made_before


def test_without_shared_memory_a_lot_is_temporary(
    memory: Path, environment: dict[str, str]
) -> None:
    memory.rmdir()
    assert cache_directory("a", environment).parent == home_in(Path(environment["TMPDIR"]))


def test_a_link_is_passed_over(memory: Path, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir(mode=0o700)
    home_in(memory).symlink_to(tmp_path / "trap")
    assert cache_directory("a", environment).parent == home_in(Path(environment["TMPDIR"]))


def test_a_directory_of_another_user_is_passed_over(
    memory: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = os.geteuid() + 1
    for place in (memory, Path(environment["TMPDIR"])):
        (place / f"anabranch-{stranger}").mkdir(mode=0o700)
    monkeypatch.setattr(parking_place.os, "geteuid", lambda: stranger)
    with pytest.raises(StateCacheFull, match="TMPDIR"):
        cache_directory("a", environment)


@pytest.mark.parametrize("mode", [0o701, 0o750, 0o777])
def test_a_directory_that_others_enter_is_passed_over(
    memory: Path, environment: dict[str, str], mode: int
) -> None:
    home_in(memory).mkdir()
    home_in(memory).chmod(mode)
    assert cache_directory("a", environment).parent == home_in(Path(environment["TMPDIR"]))


def test_a_place_where_others_may_rename_is_passed_over(
    memory: Path, environment: dict[str, str]
) -> None:
    memory.chmod(0o777)
    assert cache_directory("a", environment).parent == home_in(Path(environment["TMPDIR"]))
    memory.chmod(0o1777)
    assert cache_directory("a", environment).parent == home_in(memory)
