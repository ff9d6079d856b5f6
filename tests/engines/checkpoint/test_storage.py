import errno
import os
import pickle

import pytest

from anabranch.engines.checkpoint.storage import PENDING, storage_at
from anabranch.errors import StateError


@pytest.fixture
def made(storage):
    storage.make("a")
    return storage


def test_what_was_written_is_read_back_also_in_another_process(made):
    made.write("a/x", b"one")
    assert pickle.loads(pickle.dumps(made)).read("a/x") == b"one"


def test_a_later_write_replaces_the_file_and_leaves_nothing_else(made):
    made.write("a/x", b"one")
    made.write("a/x", b"longer", durable=True)
    assert made.read("a/x") == b"longer"
    assert made.entries("a") == {"x": 6}


def test_creating_never_replaces_a_file_and_leaves_nothing_pending(made):
    assert made.create("a/x", b"one")
    assert not made.create("a/x", b"two")
    assert made.read("a/x") == b"one"
    assert made.entries("a") == {"x": 3}


def test_what_is_not_there_reads_as_none_lists_as_empty_and_can_be_removed(made):
    assert made.read("a/none") is None
    assert made.entries("nowhere") == {}
    made.remove("a/none")


def test_removing_removes(made):
    made.write("a/x", b"")
    made.remove("a/x")
    assert made.entries("a") == {}


def test_a_file_without_a_folder_is_an_error_that_names_the_path(storage):
    with pytest.raises(StateError, match=r"to be able to write .*/nowhere/x, got .*free space"):
        storage.write("nowhere/x", b"")


def test_a_full_disk_is_named_and_harms_neither_the_earlier_file_nor_the_space_left(
    tmp_path, monkeypatch
):
    storage = storage_at(tmp_path)
    storage.write("x", b"one")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for failing in (storage.create, lambda *a: storage.write(*a, durable=True)):
        with pytest.raises(StateError) as caught:
            failing("x", b"two")
        assert f"to be able to write {tmp_path}/x" in str(caught.value)
        assert "No space left" in str(caught.value)
    assert storage.entries("") == {"x": 3}
    assert storage.read("x") == b"one"


def test_without_links_a_local_file_is_still_created_once(tmp_path, monkeypatch):
    def refused(*_: str) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    storage = storage_at(tmp_path)
    assert storage.create("x", b"one")
    assert not storage.create("x", b"two")
    assert storage.read("x") == b"one"
    assert storage.entries("") == {"x": 3}


def test_a_file_system_that_does_not_rename_over_files_is_helped(tmp_path, monkeypatch):
    import anabranch.engines.checkpoint.storage as remote

    class Stubborn(remote.fs.SubTreeFileSystem):
        def move(self, source, target):
            if os.path.exists(tmp_path / target):
                raise OSError("target exists")
            super().move(source, target)

    inside = Stubborn(str(tmp_path), remote.fs.LocalFileSystem())
    storage = remote.RemoteStorage("test://cp", inside, "cp")
    storage.make("")
    storage.write("x", b"one")
    storage.write("x", b"two")
    assert storage.read("x") == b"two"
    assert not [name for name in storage.entries("") if name.startswith(PENDING)]


def test_paths_and_file_uris_are_local(tmp_path):
    for location in (tmp_path, str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        assert storage_at(location).location == str(tmp_path)


def test_an_unknown_kind_of_location_is_refused_without_repeating_its_password():
    with pytest.raises(StateError, match="a URI that can be reached") as caught:
        storage_at("zz://user:secret@host/path")
    assert "'zz'" in caught.value.got
