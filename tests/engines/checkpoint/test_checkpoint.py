import os
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from anabranch.engines.checkpoint import checkpoint as recovery
from anabranch.engines.checkpoint import identity
from anabranch.engines.checkpoint.checkpoint import Checkpoint
from anabranch.engines.checkpoint.manifest import BatchLog, Manifest
from anabranch.engines.checkpoint.state_files import (
    StateFile,
    chain,
    read_state,
    state_name,
    write_state,
)
from anabranch.errors import StateError
from anabranch.flow import Flow
from anabranch.io import collect, memory
from anabranch.io.offsets import SourceOffsets
from anabranch.running import rollback, run

WHOLE_EVERY = 4


@pytest.fixture
def opened(storage, visits):
    return lambda **options: Checkpoint.open(storage, visits(), **options)


def run_batch(checkpoint: Checkpoint, version: int) -> Manifest:
    """One batch as a driver and its task would run it; every fourth writes its state whole."""
    checkpoint.write_log(BatchLog(version, checkpoint.token, "{}", {"clicks": version}))
    file = write_file(checkpoint, version, attempt=0)
    last = checkpoint.last
    files = chain(last.state if last else (), [file])
    manifest = Manifest(
        version, checkpoint.token, "{}", {"clicks": SourceOffsets(rows=version)}, files
    )
    checkpoint.publish(manifest)
    return manifest


def write_file(checkpoint: Checkpoint, version: int, attempt: int) -> StateFile:
    name = state_name(version, "count", 0, checkpoint.token, attempt)
    size, crc = write_state(checkpoint.storage, name, {("count", 0): b"%d" % version})
    whole = version % WHOLE_EVERY == 0
    return StateFile(name, "count", 0, version, whole, (0,), size, crc)


def run_batches(checkpoint: Checkpoint, *versions: int) -> list[Manifest]:
    return [run_batch(checkpoint, version) for version in versions]


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def test_a_fresh_checkpoint_has_no_last_version(opened):
    checkpoint = opened()
    assert checkpoint.last is None
    assert checkpoint.log(0) is None
    assert checkpoint.manifest(0) is None
    checkpoint.clean()


def test_another_run_goes_on_from_the_last_published_batch(opened):
    *_, last = run_batches(opened(), 0, 1, 2)
    again = opened()
    assert again.last == last
    assert again.manifest(1).offsets == {"clicks": SourceOffsets(rows=1)}
    assert [read_state(again.storage, file) for file in again.last.state] == [
        {("count", 0): b"%d" % version} for version in (0, 1, 2)
    ]


def test_a_batch_that_was_killed_is_run_again_as_its_log_says(opened):
    killed = opened()
    run_batches(killed, 0)
    log = BatchLog(1, killed.token, '{"replicas": 3}', {"clicks": [5, 9]})
    killed.write_log(log)
    again = opened()
    assert again.last.version == 0
    assert again.log(1) == log
    with pytest.raises(StateError, match="run the batch again as its log says"):
        again.write_log(replace(log, plan="{}"))
    assert again.log(1) == log


def test_a_run_that_was_taken_over_can_neither_log_nor_publish_nor_clean_nor_roll_back(opened):
    zombie = opened()
    first = run_batch(zombie, 0)
    opened()
    for act in (
        lambda: zombie.write_log(BatchLog(1, zombie.token, "{}", {})),
        lambda: zombie.publish(replace(first, version=1)),
        zombie.clean,
        lambda: zombie.rollback(0),
    ):
        with pytest.raises(StateError, match="another run took over"):
            act()
    assert opened().last == first


def test_a_version_is_published_once(opened):
    checkpoint = opened()
    first = run_batch(checkpoint, 0)
    with pytest.raises(StateError, match="version 0 to be published once"):
        checkpoint.publish(replace(first, ended=True))
    assert opened().last == first


def test_a_version_that_comes_after_the_last_one_was_looked_for_is_noticed(opened):
    old = opened()
    run_batch(old, 0)
    new = opened()
    new.require_newest()
    assert new.last.version == 0
    # The old run had passed the fence before: its manifest is written all the same.
    new.storage.create(recovery.document(recovery.MANIFESTS, 1), b"{}")
    with pytest.raises(StateError, match=r"version 0 to be the last, got version 1.*start again"):
        new.require_newest()


def test_a_start_that_was_overtaken_is_not_the_newest_though_no_version_came(opened):
    overtaken, newest = opened(), opened()
    newest.require_newest()
    with pytest.raises(StateError, match="another run took over"):
        overtaken.require_newest()


def test_the_first_version_of_all_is_noticed_too(opened):
    new = opened()
    assert new.last is None
    new.storage.create(recovery.document(recovery.MANIFESTS, 0), b"{}")
    with pytest.raises(StateError, match="got version 0"):
        new.require_newest()


def test_a_flow_with_another_number_of_buckets_is_refused(storage, opened, visits):
    run_batches(opened(), 0)
    with pytest.raises(StateError, match="fixed when the flow first starts"):
        Checkpoint.open(storage, visits(buckets=8))


def test_a_refused_flow_does_not_stop_the_run_that_owns_the_directory(storage, opened, visits):
    owner = opened()
    with pytest.raises(StateError):
        Checkpoint.open(storage, visits("other"))
    run_batch(owner, 0)


def cut_manifest(folder: Path) -> str:
    os.truncate(folder / "manifests" / "000000000006.json", 40)
    return "000000000006.json"


def flip_state(folder: Path) -> str:
    name = next(name for name in listed(folder / "state") if name.startswith("000000000006"))
    flip(folder / "state" / name)
    return name


def delete_state(folder: Path) -> str:
    name = next(name for name in listed(folder / "state") if name.startswith("000000000005"))
    (folder / "state" / name).unlink()
    return name


def damage_several(folder: Path) -> str:
    flip(folder / "manifests" / "000000000004.json")
    return delete_state(folder)


@pytest.mark.parametrize(
    ("damage", "intact"),
    [(cut_manifest, 5), (flip_state, 5), (delete_state, 4), (damage_several, 3)],
)
def test_damage_is_named_with_the_version_to_go_on_from_and_going_back_works(
    opened, folder, damage, intact
):
    manifests = run_batches(opened(), *range(7))
    name = damage(folder)
    checkpoint = opened()
    with pytest.raises(StateError, match=f"the run can go on from version {intact}:") as caught:
        assert checkpoint.last
    assert name in caught.value.subject.name
    checkpoint.rollback(intact)
    assert checkpoint.last == manifests[intact]
    assert opened().last == manifests[intact]
    run_batches(opened(), intact + 1)
    assert opened().last.version == intact + 1


def test_without_any_intact_version_the_advice_is_to_start_afresh(opened, folder):
    run_batches(opened(), 0)
    flip(folder / "manifests" / "000000000000.json")
    with pytest.raises(StateError, match="no earlier version is intact"):
        assert opened().last


def test_a_file_that_is_cut_or_changed_is_damaged(opened, folder):
    last = run_batch(opened(), 0)
    name = last.state[0].name
    flip(folder / "state" / name)
    with pytest.raises(StateError, match="checksum"):
        assert opened().last
    os.truncate(folder / "state" / name, 3)
    with pytest.raises(StateError, match="3 bytes"):
        assert opened().last


def test_cleaning_keeps_five_versions_and_all_that_they_need(opened, folder):
    checkpoint = opened()
    run_batches(checkpoint, *range(11))
    checkpoint.clean()
    kept = [f"{version:012d}.json" for version in range(6, 11)]
    assert listed(folder / "manifests") == kept
    assert listed(folder / "batches") == kept
    # Version 6 starts from the whole state after version 4.
    assert [int(name[:12]) for name in listed(folder / "state")] == list(range(4, 11))
    again = opened()
    for version in range(10, 5, -1):
        again.rollback(version)
        assert again.last.version == version


def test_cleaning_removes_dead_attempts_and_leaves_running_ones_and_strangers(opened, folder):
    checkpoint = opened()
    run_batches(checkpoint, 0, 1)
    dead = write_file(checkpoint, 1, attempt=9).name
    running = write_file(checkpoint, 2, attempt=0).name
    (folder / "state" / f".pending-0123-{dead}").write_bytes(b"")
    (folder / "state" / f".pending-0123-{running}").write_bytes(b"")
    (folder / "state" / "notes.txt").write_bytes(b"")
    (folder / "manifests" / ".pending-0123-000000000001.json").write_bytes(b"")
    (folder / "manifests" / ".pending-0123-000000000002.json").write_bytes(b"")
    checkpoint.clean()
    used = [file.name for file in checkpoint.last.state]
    assert listed(folder / "state") == sorted(
        [*used, running, f".pending-0123-{running}", "notes.txt"]
    )
    assert listed(folder / "manifests") == [
        ".pending-0123-000000000002.json",
        "000000000000.json",
        "000000000001.json",
    ]


def test_cleaning_removes_no_state_while_a_kept_manifest_cannot_be_read(
    opened, folder, monkeypatch
):
    run_batches(opened(), 0, 1)
    flip(folder / "manifests" / "000000000000.json")
    checkpoint = opened()
    dead = write_file(checkpoint, 1, attempt=9).name
    checkpoint.clean()
    assert dead in listed(folder / "state")
    monkeypatch.setattr(recovery, "RETAINED", 1)
    checkpoint.clean()
    assert dead not in listed(folder / "state")


def spark_logs(folder: Path, versions: range) -> None:
    for log in ("offsets", "commits"):
        (folder / "spark" / log).mkdir(parents=True)
        for version in versions:
            (folder / "spark" / log / str(version)).write_text("v1")
            (folder / "spark" / log / f".{version}.crc").write_text("crc")
    (folder / "spark" / "metadata").write_text("{}")


def test_going_back_takes_sparks_log_along(opened, folder):
    run_batches(opened(), *range(4))
    spark_logs(folder, range(12))
    opened().rollback(1)
    for log in ("offsets", "commits"):
        assert listed(folder / "spark" / log) == [".0.crc", ".1.crc", "0", "1"]
    assert listed(folder / "spark") == ["commits", "metadata", "offsets"]
    assert listed(folder / "manifests") == ["000000000000.json", "000000000001.json"]
    assert listed(folder / "batches") == ["000000000000.json", "000000000001.json"]


def test_the_run_that_went_back_itself_forgets_what_came_after(opened):
    checkpoint = opened()
    run_batches(checkpoint, 0, 1, 2)
    checkpoint.rollback(1)
    assert checkpoint.manifest(2) is None
    assert checkpoint.log(2) is None
    assert run_batch(checkpoint, 2).state[-1].version == 2


def test_a_manifest_under_the_name_of_another_version_is_not_believed(opened, folder):
    run_batches(opened(), 0, 1)
    manifests = folder / "manifests"
    (manifests / "000000000002.json").write_bytes((manifests / "000000000001.json").read_bytes())
    with pytest.raises(StateError, match=r"the manifest of version 1; the run can go on from .* 1"):
        assert opened().last


def test_going_back_to_a_version_that_is_not_intact_is_refused(opened, folder):
    run_batches(opened(), 0, 1, 2)
    flip(folder / "manifests" / "000000000001.json")
    checkpoint = opened()
    with pytest.raises(StateError, match="can go on from version 0"):
        checkpoint.rollback(1)
    with pytest.raises(StateError, match="no such file"):
        checkpoint.rollback(7)
    assert checkpoint.last.version == 2


def test_going_back_that_was_killed_halfway_is_finished_by_the_next_run(
    opened, folder, storage, monkeypatch
):
    run_batches(opened(), *range(4))
    spark_logs(folder, range(4))
    checkpoint = opened()
    removals = iter(range(2))
    remove = type(storage).remove

    def killed(self, path: str) -> None:
        if next(removals, None) is None:
            raise KeyboardInterrupt
        remove(self, path)

    monkeypatch.setattr(type(storage), "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.rollback(1)
    monkeypatch.undo()
    assert listed(folder / "spark" / "commits") == [".0.crc", ".1.crc", ".2.crc", "0", "1", "2"]
    assert opened().last.version == 1
    assert listed(folder / "spark" / "offsets") == [".0.crc", ".1.crc", "0", "1"]
    assert recovery.ROLLBACK not in listed(folder)


def test_a_directory_that_cannot_be_used_is_an_error_with_its_path(tmp_path, visits):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=f"{tmp_path}/file/cp"):
        Checkpoint.open(tmp_path / "file" / "cp", visits())


def test_going_back_makes_no_checkpoint_where_there_is_none(tmp_path):
    flow = Flow("f")
    flow.source("s", memory([{"x": 1}])).sink("out", collect())
    with pytest.raises(StateError, match=r"expected a checkpoint.*name the directory"):
        rollback(flow, tmp_path / "mistyped", 3)
    assert not (tmp_path / "mistyped").exists()


def test_a_source_tree_that_is_not_installed_writes_checkpoints(tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(identity, "version", missing)
    flow = Flow("f")
    flow.source("s", memory([{"x": 1}])).sink("out", collect())
    assert run(flow, engine="local", checkpoint=tmp_path / "here").ended
    assert "unknown version" in (tmp_path / "here" / "anabranch.json").read_text()
