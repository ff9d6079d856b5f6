"""Chains: which state files rebuild the state.

A region's state is spread over files, oldest first. A *whole* file holds everything of its buckets,
any other what changed in them. So for one bucket only its youngest whole file counts, and what
changed after it. All functions here are pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from anabranch.errors import StateError, Subject

SNAPSHOT_BYTES = 1 << 20
SNAPSHOT_FILES = 128


@dataclass(frozen=True)
class StateFile:
    """A file of state, as its manifest knows it.

    Attributes:
        name: Of the file, below `state/`.
        region: Whose state.
        replica: Which replica wrote it.
        version: The batch after which the state was so.
        whole: Whether it holds all of its buckets, or what changed in them.
        buckets: Which; a region without buckets (a gate in front of a sink) says (0,).
        size: In bytes.
        crc: Checksum of its bytes.
    """

    name: str
    region: str
    replica: int
    version: int
    whole: bool
    buckets: tuple[int, ...]
    size: int
    crc: int

    def __post_init__(self) -> None:
        """Without a bucket a file would never be needed, and what it holds would be lost."""
        if not self.buckets:
            raise StateError(
                Subject("region", self.region),
                "the buckets of a state file",
                "none",
                "use bucket 0 for a region without buckets",
            )


Chain = tuple[StateFile, ...]


def chain(previous: Chain, added: Sequence[StateFile]) -> Chain:
    """The files that count once a batch has added its own; others can be removed.

    A file stays while one of its buckets has no younger whole file.
    """
    covered: defaultdict[str, set[int]] = defaultdict(set)
    kept = []
    for file in reversed((*previous, *added)):
        behind = covered[file.region]
        if behind.issuperset(file.buckets):
            continue
        kept.append(file)
        if file.whole:
            behind.update(file.buckets)
    return tuple(reversed(kept))


def needed(
    files: Chain, region: str, buckets: Collection[int]
) -> list[tuple[StateFile, tuple[int, ...]]]:
    """The files to read for some buckets, oldest first, and which buckets to take from each."""
    wanted = set(buckets)
    found = []
    for file in reversed(files):
        if file.region != region or not (taken := wanted.intersection(file.buckets)):
            continue
        found.append((file, tuple(sorted(taken))))
        if file.whole:
            wanted -= taken
    return found[::-1]


def should_snapshot(
    files: Chain,
    region: str,
    replica_buckets: Collection[int],
    *,
    least_bytes: int = SNAPSHOT_BYTES,
    most_files: int = SNAPSHOT_FILES,
) -> bool:
    """Whether a replica should write its buckets whole in the batch to come.

    It should once the changes since the last whole files outweigh those, so that over time a byte
    of state is written at most twice as often as it changes; and never lets reading open too many
    files. A file that holds other buckets, too, counts with these buckets' share.
    """
    whole = changes = 0.0
    change_files = 0
    for file, taken in needed(files, region, replica_buckets):
        share = file.size * len(taken) / len(file.buckets)
        if file.whole:
            whole += share
        else:
            changes += share
            change_files += 1
    return change_files >= most_files or changes > max(whole, least_bytes)
