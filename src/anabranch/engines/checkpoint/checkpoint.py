"""Checkpoint: what the driver of a run sees of durable storage.

    anabranch.json             the flow that owns the directory
    fence.json                 the run that owns it now
    spark/                     Spark's own checkpoint; spark-12/ if Spark took over with version 12
    batches/000000000012.json  what batch 12 is going to do
    manifests/000000000012.json  what batch 12 did: the commit point
    state/                     state files, written by tasks

Batch n: `write_log` → tasks write state files → `publish`. After a kill, `last` is where to go on;
a batch with a log but without a manifest is run again as its log says.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass

from anabranch.engines.checkpoint.checksummed_json import damaged, seal, unseal
from anabranch.engines.checkpoint.identity import claim
from anabranch.engines.checkpoint.manifest import BatchLog, Manifest
from anabranch.engines.checkpoint.state_files import FOLDER, checked, version_of
from anabranch.engines.checkpoint.storage import PENDING, Storage, storage_at
from anabranch.errors import StateError, Subject
from anabranch.flow import Flow

RETAINED = 5


class Checkpoint:
    """A checkpoint directory in the hands of one run; `open` gets one."""

    def __init__(self, storage: Storage, fence: Fence) -> None:
        """Hold a storage that has been claimed and fenced."""
        self.storage = storage
        self._fence = fence
        self._known: dict[int, Manifest] = {}
        self._last: Manifest | None = None
        self._looked = False

    @staticmethod
    def open(
        location: str | os.PathLike[str] | Storage, flow: Flow, *, fresh: bool = True
    ) -> Checkpoint:
        """Claim a directory for a flow and take it over from whatever run had it.

        Args:
            location: A path or URI; absent and empty directories are fresh checkpoints.
            flow: Must be the one that the directory belongs to.
            fresh: Whether a directory without a checkpoint may become one.
        """
        storage = location if isinstance(location, Storage) else storage_at(location)
        claim(storage, flow, fresh=fresh)
        for folder in (LOGS, MANIFESTS, FOLDER):
            storage.make(folder)
        fence = Fence.take(storage)
        finish_rollback(storage)
        return Checkpoint(storage, fence)

    @property
    def token(self) -> str:
        """Of this run, for logs, manifests and the names of state files."""
        return self._fence.token

    def require_owned(self) -> None:
        """Raise StateError when another run took over."""
        self._fence.check()

    @property
    def last(self) -> Manifest | None:
        """Return the newest manifest, with all its state intact; None in a fresh checkpoint.

        Raises:
            StateError: It is damaged; says which file, and which version a run can go on from.
        """
        if not self._looked:
            found = versions(self.storage, MANIFESTS)
            self._last = self._intact(found[-1]) if found else None
            self._looked = True
        return self._last

    def require_newest(self) -> None:
        """Raise unless this run is the newest one, and goes on from the newest version.

        Opening the sinks removes what came after that version, so this comes right before it: the
        run before may have committed another version while it was being taken over.
        """
        self.require_owned()
        found = versions(self.storage, MANIFESTS)
        known = self.last.version if self.last is not None else -1
        if found and found[-1] > known:
            raise StateError(
                Subject("checkpoint", self.storage.location),
                f"version {known} to be the last",
                f"version {found[-1]}, which the run before committed meanwhile",
                "start again: the run goes on from there",
            )

    def log(self, version: int) -> BatchLog | None:
        """Return what a batch was going to do, None when it has no log."""
        path = document(LOGS, version)
        data = self.storage.read(path)
        return None if data is None else BatchLog.from_json(data, self.storage.named(path))

    def manifest(self, version: int) -> Manifest | None:
        """Return what a batch did, None when it has not happened or was cleaned away."""
        if version not in self._known:
            found = read_manifest(self.storage, version)
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

    def clean(self) -> None:
        """Remove versions that nobody will go back to: all but the last five.

        State files go when no kept manifest names them, unless they are of a batch that has not
        been published yet: a running task may have written them.
        """
        last = self.last
        if last is None:
            return
        self._fence.check()
        keep = last.version - RETAINED + 1
        remove_documents(self.storage, keep)
        remove_pending(self.storage, last.version)
        self._known = {v: m for v, m in self._known.items() if v >= keep}
        try:
            kept = [self.manifest(v) for v in versions(self.storage, MANIFESTS)]
        except StateError:
            return  # which files an unreadable manifest needs is not known: leave all until it goes
        remove_state(self.storage, [m for m in kept if m is not None], last.version)

    def rollback(self, version: int) -> None:
        """Forget all versions after `version`, so that the run goes on from there.

        For recovery by hand, while no run uses the checkpoint.

        Raises:
            StateError: That version is not intact; says which one is.
        """
        self._fence.check()
        self._intact(version)
        roll_back(self.storage, version)
        self._known.clear()
        self._looked = False

    def _intact(self, version: int) -> Manifest:
        try:
            found = require_intact(self.storage, version)
        except StateError as error:
            raise way_back(self.storage, error, version) from error
        self._known[version] = found
        return found


# Recovery: which versions of a checkpoint are intact, and going back to one of them.

MANIFESTS = "manifests"
LOGS = "batches"
ROLLBACK = "rollback.json"
SPARK = "spark"
SPARK_LOGS = ("commits", "offsets")

_DOCUMENT = re.compile(r"(\d{12,})\.json")
_SPARK_FOLDER = re.compile(rf"{SPARK}(?:-(\d+))?")
_SPARK_ENTRY = re.compile(r"\.?(\d+)(?:\.compact)?(?:\.crc)?")


def document(folder: str, version: int) -> str:
    """Path of the log or manifest of a version."""
    return f"{folder}/{version:012d}.json"


def versions(storage: Storage, folder: str) -> list[int]:
    """Return the versions that have a log or manifest, oldest first."""
    found = (_DOCUMENT.fullmatch(name) for name in storage.entries(folder))
    return sorted(int(match[1]) for match in found if match)


def read_manifest(storage: Storage, version: int) -> Manifest | None:
    """Return a manifest; None when there is none, StateError when it is damaged."""
    path = document(MANIFESTS, version)
    data = storage.read(path)
    if data is None:
        return None
    manifest = Manifest.from_json(data, storage.named(path))
    if manifest.version != version:
        raise damaged(storage.named(path), f"the manifest of version {manifest.version}")
    return manifest


def require_intact(storage: Storage, version: int) -> Manifest:
    """Return a manifest whose state files are all there, or name the damaged one."""
    manifest = read_manifest(storage, version)
    if manifest is None:
        raise damaged(storage.named(document(MANIFESTS, version)), "no such file")
    for file in manifest.state:
        checked(storage, file)
    return manifest


def newest_intact(storage: Storage, *, below: int) -> int | None:
    """Return the newest version under `below` from which a run can go on."""
    for version in reversed(versions(storage, MANIFESTS)):
        if version < below:
            try:
                return require_intact(storage, version).version
            except StateError:
                continue
    return None


def way_back(storage: Storage, error: StateError, version: int) -> StateError:
    """Return an error about damage in `version`, with the version from which a run can go on."""
    intact = newest_intact(storage, below=version)
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

    A kill in between would leave logs that contradict each other, so the request is written down
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
    for spark in storage.entries(""):
        if (match := _SPARK_FOLDER.fullmatch(spark)) is not None:
            for log in SPARK_LOGS:
                last_batch = version - int(match[1] or 0)
                _remove_after(storage, f"{spark}/{log}", _SPARK_ENTRY, last_batch)
    for folder in (MANIFESTS, LOGS):
        _remove_after(storage, folder, _DOCUMENT, version)
    storage.remove(ROLLBACK)


def _remove_after(storage: Storage, folder: str, pattern: re.Pattern[str], last: int) -> None:
    found = ((pattern.fullmatch(name), name) for name in storage.entries(folder))
    later = [(int(m[1]), name) for m, name in found if m and int(m[1]) > last]
    for _, name in sorted(later, reverse=True):  # the newest first: never a hole
        storage.remove(f"{folder}/{name}")


def spark_folder(batch_zero: int) -> str:
    """Return the folder of Spark's own checkpoint, whose batch 0 makes such a version.

    Spark numbers its batches without gaps. After versions of the local engine it has to begin
    anew, in a folder of its own.

    Example:
        >>> spark_folder(0), spark_folder(12)
        ('spark', 'spark-12')
    """
    return f"{SPARK}-{batch_zero}" if batch_zero else SPARK


# Cleaning: removes what no version that is kept needs.


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


# The fence: of all runs that believe they own a checkpoint, the one that came last does.
#
# A run that was given up may still be alive (the JVM of a killed driver, a machine that was cut
# off). It finds another token than its own before it can commit anything.

FENCE = "fence.json"


@dataclass(frozen=True)
class Fence:
    """The claim of one run.

    Attributes:
        storage: The checkpoint.
        token: A number that counts runs, for people, and random digits, which no two runs share.
    """

    storage: Storage
    token: str

    @staticmethod
    def take(storage: Storage) -> Fence:
        """Take the checkpoint over; whoever had it fails at its next check."""
        number = int((_holder(storage) or "0").split("-")[0])
        token = f"{number + 1}-{secrets.token_hex(6)}"
        storage.write(FENCE, seal({"token": token}))
        return Fence(storage, token)

    def check(self) -> None:
        """Raise unless this run still owns the checkpoint."""
        holder = _holder(self.storage)
        if holder != self.token:
            raise StateError(
                Subject("checkpoint", self.storage.location),
                f"to be owned by this run ({self.token})",
                f"{holder or 'no readable fence'}: another run took over",
                "let one run at a time use a checkpoint directory; this one has stopped",
            )


def _holder(storage: Storage) -> str | None:
    """Return the token in force; None when there is none that can be read."""
    data = storage.read(FENCE)
    if data is None:
        return None
    try:
        return str(unseal(data, storage.named(FENCE))["token"])
    except (StateError, KeyError):
        # Its loss costs nothing: the next run takes a new token, and this one stops.
        return None
