"""Recovery: which versions of a checkpoint are intact, and going back to one of them."""

from __future__ import annotations

import re

from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.sealed import damaged, seal, unseal
from anabranch.engines.checkpoint.state_files import FOLDER, checked
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError

MANIFESTS = "manifests"
LOGS = "batches"
ROLLBACK = "rollback.json"
SPARK_LOGS = ("spark/commits", "spark/offsets")

_DOCUMENT = re.compile(r"(\d{12,})\.json")
_SPARK_ENTRY = re.compile(r"\.?(\d+)(?:\.compact)?(?:\.crc)?")


def document(folder: str, version: int) -> str:
    """Path of the log or manifest of a version."""
    return f"{folder}/{version:012d}.json"


def versions(storage: Storage, folder: str) -> list[int]:
    """The versions that have a log or manifest, oldest first."""
    found = (_DOCUMENT.fullmatch(name) for name in storage.entries(folder))
    return sorted(int(match[1]) for match in found if match)


def read_manifest(storage: Storage, version: int) -> Manifest | None:
    """A manifest; None when there is none, StateError when it is damaged."""
    path = document(MANIFESTS, version)
    data = storage.read(path)
    if data is None:
        return None
    manifest = Manifest.from_json(data, storage.named(path))
    if manifest.version != version:
        raise damaged(storage.named(path), f"the manifest of version {manifest.version}")
    return manifest


def require_intact(storage: Storage, version: int, *, contents: bool) -> Manifest:
    """A manifest whose state files are all there; raises StateError that names the damaged file.

    Args:
        storage: The checkpoint.
        version: Which manifest.
        contents: Whether to read every state file, or to compare sizes only.
    """
    manifest = read_manifest(storage, version)
    if manifest is None:
        raise damaged(storage.named(document(MANIFESTS, version)), "no such file")
    sizes = {} if contents else storage.entries(FOLDER)
    for file in manifest.state:
        if sizes.get(file.name) != file.size:
            checked(storage, file)
    return manifest


def newest_intact(storage: Storage, *, below: int, contents: bool) -> int | None:
    """The newest version under `below` from which a run can go on."""
    for version in reversed(versions(storage, MANIFESTS)):
        if version < below:
            try:
                return require_intact(storage, version, contents=contents).version
            except StateError:
                continue
    return None


def way_back(storage: Storage, error: StateError, version: int, *, contents: bool) -> StateError:
    """An error about damage in `version`, with the version from which a run can go on."""
    intact = newest_intact(storage, below=version, contents=contents)
    remedy = (
        "no earlier version is intact: put the file back from a copy, or start afresh in a new "
        "checkpoint directory"
        if intact is None
        else f"the run can go on from version {intact}: roll back with `anabranch rollback APP "
        f"--checkpoint DIR --to {intact}` or ab.rollback, or put the file back from a copy"
    )
    return StateError(error.subject, error.expected, error.got, remedy)


def roll_back(storage: Storage, version: int) -> None:
    """Forget everything after a version, Spark's own log of it included.

    A kill in between would leave logs that contradict each other, so the wish is written down
    first, and whoever opens the checkpoint next finishes it.
    """
    storage.write(ROLLBACK, seal({"to": version}), durable=True)
    finish_rollback(storage)


def finish_rollback(storage: Storage) -> None:
    """Do what `roll_back` has written down, if it has."""
    data = storage.read(ROLLBACK)
    if data is None:
        return
    version = int(unseal(data, storage.named(ROLLBACK))["to"])
    for folder in (*SPARK_LOGS, MANIFESTS, LOGS):
        pattern = _SPARK_ENTRY if folder in SPARK_LOGS else _DOCUMENT
        found = ((pattern.fullmatch(name), name) for name in storage.entries(folder))
        later = [(int(m[1]), name) for m, name in found if m and int(m[1]) > version]
        for _, name in sorted(later, reverse=True):  # the newest first: never a hole
            storage.remove(f"{folder}/{name}")
    storage.remove(ROLLBACK)
