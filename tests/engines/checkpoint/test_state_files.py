import os

import pytest

from anabranch.engines.checkpoint.state_files import (
    StateFile,
    read_state,
    state_name,
    version_of,
    write_state,
)
from anabranch.engines.checkpoint.storage import pending_name
from anabranch.errors import StateError

SECTIONS = {("count", 0): b"abc", ("count", 1): b"", ("top", 0): bytes(range(256)) * 50}


@pytest.fixture
def written(storage) -> StateFile:
    storage.make("state")
    name = state_name(12, "count", 1, "1-ab", 7)
    size, crc = write_state(storage, name, {**SECTIONS, ("top", 1): None})
    return StateFile(name, "count", 1, 12, True, (0,), size, crc)


def test_sections_come_back_without_those_that_had_nothing_to_say(storage, written):
    assert read_state(storage, written) == SECTIONS


def test_a_file_without_sections_is_a_file(storage):
    storage.make("state")
    size, crc = write_state(storage, "x", {}, durable=True)
    assert read_state(storage, StateFile("x", "r", 0, 0, True, (0,), size, crc)) == {}


def test_a_flipped_byte_is_noticed_wherever_it_is(storage, folder, written):
    path = folder / "state" / written.name
    intact = path.read_bytes()
    assert len(intact) == written.size
    for place in range(0, len(intact), 97):
        path.write_bytes(intact[:place] + bytes([intact[place] ^ 4]) + intact[place + 1 :])
        with pytest.raises(StateError, match=r"region 'count' after version 12 .* got checksum"):
            read_state(storage, written)


def test_a_cut_file_and_a_missing_file_are_named(storage, folder, written):
    path = folder / "state" / written.name
    os.truncate(path, 100)
    with pytest.raises(StateError, match=f"{written.name}.*got 100 bytes"):
        read_state(storage, written)
    path.unlink()
    with pytest.raises(StateError, match=f"{written.name}.*got no such file"):
        read_state(storage, written)


@pytest.mark.parametrize(
    "region", ["count", "a/b", "../..", "-1-", "ä ö%", "", "x" * 300, "語" * 90]
)
def test_any_region_makes_a_name_that_is_a_file_and_tells_its_version(tmp_path, region):
    name = state_name(12, region, 3, "7-1f3a", 99)
    (tmp_path / name).write_bytes(b"")
    assert os.listdir(tmp_path) == [name]
    assert version_of(name) == 12
    assert version_of(pending_name(f"state/{name}").removeprefix("state/")) == 12


def test_names_of_different_regions_differ_however_long_they_are():
    regions = ["a", "a/b", "a-b", "a%2Fb", "x" * 300, "x" * 301]
    assert len({state_name(1, region, 0, "t", 0) for region in regions}) == len(regions)


def test_a_foreign_file_has_no_version():
    assert [version_of(n) for n in ("README", "12-x", ".pending-x", "a00000000012-x")] == [None] * 4
    assert version_of(state_name(10**13, "a", 0, "t", 0)) == 10**13
