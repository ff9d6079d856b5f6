"""Checkpoint: what the driver of a run sees of durable storage.

    anabranch.json             the flow that owns the directory
    fence.json                 the run that owns it now
    spark/                     Spark's own checkpoint
    batches/000000000012.json  what batch 12 is going to do
    manifests/000000000012.json  what batch 12 did: the commit point
    state/                     state files, written by tasks

Batch n: `write_log` → tasks write state files → `publish`. After a kill, `last` is where to go on;
a batch with a log but without a manifest is run again as its log says.
"""

from __future__ import annotations

import os

from anabranch.engines.checkpoint import cleaning, recovery
from anabranch.engines.checkpoint.fence import Fence
from anabranch.engines.checkpoint.identity import claim
from anabranch.engines.checkpoint.locations import storage_at
from anabranch.engines.checkpoint.manifest import BatchLog, Manifest
from anabranch.engines.checkpoint.recovery import LOGS, MANIFESTS, document
from anabranch.engines.checkpoint.state_files import FOLDER
from anabranch.engines.checkpoint.storage import Storage
from anabranch.errors import StateError, Subject
from anabranch.flow import Flow

RETAINED = 5


class Checkpoint:
    """A checkpoint directory in the hands of one run; `open` gets one."""

    def __init__(self, storage: Storage, fence: Fence, *, contents: bool = True) -> None:
        """Hold a storage that has been claimed and fenced."""
        self.storage = storage
        self._fence = fence
        self._contents = contents
        self._known: dict[int, Manifest] = {}
        self._last: Manifest | None = None
        self._looked = False

    @staticmethod
    def open(
        location: str | os.PathLike[str] | Storage, flow: Flow, *, contents: bool = True
    ) -> Checkpoint:
        """Claim a directory for a flow and take it over from whatever run had it.

        Args:
            location: A path or URI; absent and empty directories are fresh checkpoints.
            flow: Must be the one that the directory belongs to.
            contents: Whether `last` reads all state to verify it, or compares sizes only; then
                damage shows when a task reads the file.
        """
        storage = location if isinstance(location, Storage) else storage_at(location)
        claim(storage, flow)
        for folder in (LOGS, MANIFESTS, FOLDER):
            storage.make(folder)
        fence = Fence.take(storage)
        recovery.finish_rollback(storage)
        return Checkpoint(storage, fence, contents=contents)

    @property
    def token(self) -> str:
        """Of this run, for logs, manifests and the names of state files."""
        return self._fence.token

    def require_owned(self) -> None:
        """Raise StateError when another run took over."""
        self._fence.check()

    @property
    def last(self) -> Manifest | None:
        """The newest manifest, with all its state intact; None in a fresh checkpoint.

        Raises:
            StateError: It is damaged; says which file, and which version a run can go on from.
        """
        if not self._looked:
            found = recovery.versions(self.storage, MANIFESTS)
            self._last = self._intact(found[-1]) if found else None
            self._looked = True
        return self._last

    def require_newest(self) -> None:
        """Raise if the run before committed another version while it was being taken over."""
        found = recovery.versions(self.storage, MANIFESTS)
        known = self.last.version if self.last is not None else -1
        if found and found[-1] > known:
            raise StateError(
                Subject("checkpoint", self.storage.location),
                f"version {known} to be the last",
                f"version {found[-1]}, which the run before committed meanwhile",
                "start again: the run goes on from there",
            )

    def log(self, version: int) -> BatchLog | None:
        """What a batch was going to do, None when it has no log."""
        path = document(LOGS, version)
        data = self.storage.read(path)
        return None if data is None else BatchLog.from_json(data, self.storage.named(path))

    def manifest(self, version: int) -> Manifest | None:
        """What a batch did, None when it has not happened or was cleaned away."""
        if version not in self._known:
            found = recovery.read_manifest(self.storage, version)
            if found is None:
                return None
            self._known[version] = found
        return self._known[version]

    def write_log(self, log: BatchLog) -> None:
        """Say what a batch is going to do, before it does it.

        Raises:
            StateError: Another run took over, or the batch has a log already.
        """
        self._fence.check()
        if not self.storage.create(document(LOGS, log.version), log.to_json()):
            raise StateError(
                Subject("checkpoint", self.storage.location),
                f"batch {log.version} without a log",
                "one that has been logged before",
                "run the batch again as its log says",
            )

    def publish(self, manifest: Manifest) -> None:
        """Commit a batch.

        Raises:
            StateError: Another run took over, or the batch has been committed already.
        """
        self._fence.check()
        if not self.storage.create(document(MANIFESTS, manifest.version), manifest.to_json()):
            raise StateError(
                Subject("checkpoint", self.storage.location),
                f"version {manifest.version} to be published once",
                "a manifest of that version, perhaps by a run that was taken over meanwhile",
                "start again: the run goes on from the manifest that is there",
            )
        self._known[manifest.version] = manifest
        self._last, self._looked = manifest, True

    def clean(self, keep_from_version: int | None = None) -> None:
        """Remove versions that nobody will go back to; by default all but the last five.

        State files go when no kept manifest names them, unless they are of a batch that has not
        been published yet: a running task may have written them.
        """
        last = self.last
        if last is None:
            return
        self._fence.check()
        keep = last.version - RETAINED + 1 if keep_from_version is None else keep_from_version
        keep = min(keep, last.version)
        cleaning.remove_documents(self.storage, keep)
        cleaning.remove_pending(self.storage, last.version)
        self._known = {v: m for v, m in self._known.items() if v >= keep}
        try:
            kept = [self.manifest(v) for v in recovery.versions(self.storage, MANIFESTS)]
        except StateError:
            return  # which files an unreadable manifest needs is not known: leave all until it goes
        cleaning.remove_state(self.storage, [m for m in kept if m is not None], last.version)

    def rollback(self, version: int) -> None:
        """Forget all versions after `version`, so that the run goes on from there.

        For recovery by hand, while no run uses the checkpoint.

        Raises:
            StateError: That version is not intact; says which one is.
        """
        self._fence.check()
        self._intact(version)
        recovery.roll_back(self.storage, version)
        self._known.clear()
        self._looked = False

    def _intact(self, version: int) -> Manifest:
        try:
            found = recovery.require_intact(self.storage, version, contents=self._contents)
        except StateError as error:
            raise recovery.way_back(
                self.storage, error, version, contents=self._contents
            ) from error
        self._known[version] = found
        return found
