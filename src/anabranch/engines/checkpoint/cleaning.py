"""Cleaning: removes what no version that is kept needs."""

from __future__ import annotations

from anabranch.engines.checkpoint.manifest import Manifest
from anabranch.engines.checkpoint.recovery import LOGS, MANIFESTS, document, versions
from anabranch.engines.checkpoint.state_files import FOLDER, version_of
from anabranch.engines.checkpoint.storage import PENDING, Storage


def remove_documents(storage: Storage, below: int) -> None:
    """Remove the logs and manifests of versions under `below`, the oldest first."""
    for folder in (MANIFESTS, LOGS):
        for version in versions(storage, folder):
            if version < below:
                storage.remove(document(folder, version))


def remove_state(storage: Storage, kept: list[Manifest], published: int) -> None:
    """Remove state files that no kept manifest names: replaced ones, and those of dead attempts.

    Files of a batch after the last published one stay: a task may be writing them now.
    """
    used = {file.name for manifest in kept for file in manifest.state}
    for name in storage.entries(FOLDER):
        version = version_of(name)
        if name not in used and version is not None and version <= published:
            storage.remove(f"{FOLDER}/{name}")


def remove_pending(storage: Storage, published: int) -> None:
    """Remove half-written logs and manifests that a kill left."""
    for folder in (MANIFESTS, LOGS):
        for name in storage.entries(folder):
            number = name.rpartition("-")[2].removesuffix(".json")
            if name.startswith(PENDING) and number.isdecimal() and int(number) <= published:
                storage.remove(f"{folder}/{name}")
